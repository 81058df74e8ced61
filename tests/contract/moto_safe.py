"""moto's DynamoDB, mended where it is kinder or stricter than AWS in what the store relies on.

* moto checks a condition and then writes, with nothing to hold other threads off: two may both be
  told that they won. Here one request at a time is answered.
* moto refuses items from 405,000 bytes on. AWS takes 409,600.
* moto leaves an update that it refuses for its size half done.
* moto goes through the whole table for a query. Here it goes through the partition.

The shim lasts as long as the process; installing it twice is harmless.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from moto.dynamodb.exceptions import ItemSizeTooLarge
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import LimitedSizeDict
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

LIMIT = 400 * 1024

_one_at_a_time = threading.RLock()
_installed = threading.Event()


def install() -> None:
    """Mend moto in this process."""
    with _one_at_a_time:
        if not _installed.is_set():
            _replace(DynamoHandler, "call_action", _alone)
            _replace(LimitedSizeDict, "__setitem__", _within_limit)
            _replace(DynamoDBBackend, "update_item", _whole_or_not)
            _replace(Table, "query", _of_partition)
            _installed.set()


def _replace(owner: type, name: str, around: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(around(original)))


def _alone(answer: Any) -> Any:
    def call_action(self: Any) -> Any:
        with _one_at_a_time:
            return answer(self)

    return call_action


def _within_limit(_: Any) -> Any:
    def set_item(self: LimitedSizeDict, key: str, value: Any) -> None:
        others = sum(len(k.encode()) + v.size() for k, v in self.items() if k != key)
        if others + len(key.encode()) + value.size() > LIMIT:
            raise ItemSizeTooLarge
        dict.__setitem__(self, key, value)

    return set_item


def _whole_or_not(update: Any) -> Any:
    def update_item(self: DynamoDBBackend, name: str, key: Any, **more: Any) -> Any:
        table = self.get_table(name)
        item = table.get_item(*self.get_keys_value(table, key))
        before = None if item is None else dict(item.attrs)
        try:
            return update(self, name, key, **more)
        except Exception:
            if item is not None and before is not None:
                item.attrs.clear()
                for attribute, value in before.items():
                    dict.__setitem__(item.attrs, attribute, value)
            raise

    return update_item


def _of_partition(query: Any) -> Any:
    asked = inspect.signature(query)

    def of_partition(self: Table, *args: Any, **more: Any) -> Any:
        arguments = asked.bind(self, *args, **more).arguments
        if arguments["index_name"] is not None:
            return query(self, *args, **more)
        items = list(self.items.get(arguments["hash_key"], {}).values())
        self.all_items = lambda: items  # type: ignore[method-assign]
        try:
            return query(self, *args, **more)
        finally:
            del self.all_items

    return of_partition
