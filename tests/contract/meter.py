"""What AWS would bill: capacity units by the sizes of items, and requests by operation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.dynamodb.models import dynamodb_backends

from stepwell.adapters.aws.items import item_size
from stepwell.adapters.aws.table import Table

_ACCOUNT = "123456789012"
#: What is asked of SQS by Lambda, not by us.
_LAMBDAS = frozenset({"ReceiveMessage", "DeleteMessage"})


class Meter:
    """Counts units as DynamoDB bills them: each KB of an item and of an index entry begun.

    And the requests made by other clients that it is told of. It changes as they are made.
    """

    def __init__(self, table: Table, region: str, *others: Any) -> None:
        self.written = 0
        self.read = 0
        self.requests: Counter[str] = Counter()
        self._table = table.name
        self._region = region
        self._counting = True
        self._seen: dict[tuple[str, str], dict[str, Any]] = {}
        events = table.client.meta.events
        for operation, count in {
            "PutItem": self._write,
            "UpdateItem": self._write,
            "BatchWriteItem": self._write,
            "Query": self._query,
            "GetItem": self._get,
            "BatchGetItem": self._get_batch,
        }.items():
            events.register(f"after-call.dynamodb.{operation}", count)
        for client in (table.client, *others):
            client.meta.events.register("after-call", self._note)

    def reset(self) -> None:
        """Begin at zero."""
        self.written = self.read = 0
        self.requests.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what is done meanwhile."""
        self._counting = False
        yield
        self._counting = True

    def _note(self, event_name: str, **_: Any) -> None:
        operation = event_name.rpartition(".")[2]
        if self._counting and operation not in _LAMBDAS:
            self.requests[operation] += 1

    def _write(self, parsed: dict[str, Any], **_: Any) -> None:
        assert "Error" not in parsed, "a reference run loses no condition"
        stored = dynamodb_backends[_ACCOUNT][self._region].tables[self._table].all_items()
        items = [item.to_json()["Attributes"] for item in stored]
        now = {(item["pk"]["S"], item["sk"]["S"]): item for item in items}
        changed = [key for key in now if now[key] != self._seen.get(key)]
        for key in changed:
            before, after = self._seen.get(key, {}), now[key]
            self.written += math.ceil(max(item_size(before), item_size(after)) / 1024)
            for entry in (("listed_in", "created_at"), ("wanted_in", "wanted_at")):
                old, new = (self._entry(item, entry) for item in (before, after))
                if old != new:
                    self.written += (old is not None) + (new is not None)
        self._seen = now

    @staticmethod
    def _entry(item: dict[str, Any], key: tuple[str, str]) -> list[Any] | None:
        """The key of an item's entry in an index; None if it has none."""
        return [item[name] for name in key] if all(name in item for name in key) else None

    def _query(self, parsed: dict[str, Any], **_: Any) -> None:
        self._add(sum(map(item_size, parsed["Items"])))

    def _get(self, parsed: dict[str, Any], **_: Any) -> None:
        self._add(item_size(parsed.get("Item", {})))

    def _get_batch(self, parsed: dict[str, Any], **_: Any) -> None:
        """Each item begun, if it was read consistently; the keys that have none are not told."""
        for item in parsed["Responses"][self._table]:
            self._add(item_size(item))

    def _add(self, size: int) -> None:
        if self._counting:
            self.read += max(1, math.ceil(size / 4096))
