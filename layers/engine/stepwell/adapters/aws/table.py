"""The one table: its items as pynamodb models, its two indexes, and the connection to it.

Index `runs` holds each run under its workflow; index `wanted` holds what waits or wants attention,
and pending hooks. Both hold keys only, sort by `created_at`, and are spread over shards. The keys
of `runs` never change, so it is written once per run. The table's TTL, `expires_at`, is in seconds
and deletes; what ends a hook is therefore named `ends_at`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.attributes import (
    BooleanAttribute,
    ListAttribute,
    MapAttribute,
    NumberAttribute,
    TTLAttribute,
    UnicodeAttribute,
)
from pynamodb.connection.base import Connection, MetaTable
from pynamodb.constants import PAY_PER_REQUEST_BILLING_MODE
from pynamodb.exceptions import PynamoDBException
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.operand import Path
from pynamodb.expressions.update import Action
from pynamodb.indexes import GlobalSecondaryIndex, KeysOnlyProjection
from pynamodb.models import Model

from stepwell.adapters.aws.clients import (
    ATTEMPTS,
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    THREADS,
    error_code,
)
from stepwell.engine.ports import TransientError

#: An item as DynamoDB speaks of it: `{name: {type: value}}`.
RawItem = dict[str, Any]

#: What one BatchGetItem takes.
_BATCH = 100


class RunsIndex(GlobalSecondaryIndex["TableItem"]):  # type: ignore[no-untyped-call]
    """Runs by workflow and time."""

    class Meta:
        index_name = "runs"
        projection = KeysOnlyProjection()

    listed_in = UnicodeAttribute(hash_key=True)
    created_at = NumberAttribute(range_key=True)


class WantedIndex(GlobalSecondaryIndex["TableItem"]):  # type: ignore[no-untyped-call]
    """Runs that wait, have failed or want attention, by which of it; pending hooks."""

    class Meta:
        index_name = "wanted"
        projection = KeysOnlyProjection()

    wanted_in = UnicodeAttribute(hash_key=True)
    created_at = NumberAttribute(range_key=True)


class TableItem(Model):
    """What all items have, and the schema of the table."""

    pk = UnicodeAttribute(hash_key=True)
    sk = UnicodeAttribute(range_key=True)
    listed_in = UnicodeAttribute(null=True)
    wanted_in = UnicodeAttribute(null=True)
    created_at = NumberAttribute(null=True)
    expires_at = TTLAttribute(null=True)
    runs = RunsIndex()
    wanted = WantedIndex()


class RunItem(TableItem):
    """A run header."""

    run_id = UnicodeAttribute()
    workflow = UnicodeAttribute()
    version = UnicodeAttribute()
    status = UnicodeAttribute()
    input = UnicodeAttribute()
    input_digest = UnicodeAttribute()
    seed = UnicodeAttribute()
    updated_at = NumberAttribute()
    last_event = NumberAttribute()
    result = UnicodeAttribute(null=True)
    error: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    waiting: ListAttribute[Any] = ListAttribute(null=True)
    waits_not_shown = NumberAttribute(null=True)
    attention: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    cancel_requested = BooleanAttribute(null=True)
    idempotency_key = UnicodeAttribute(null=True)
    tags: ListAttribute[Any] = ListAttribute(null=True)


class CommitItem(TableItem):
    """Consecutive events, as JSON; the number of the first is in the key."""

    turn = UnicodeAttribute()
    number = NumberAttribute()
    events = UnicodeAttribute()


class HookItem(TableItem):
    """A hook. In index `wanted` while it is pending."""

    run_id = UnicodeAttribute()
    hook_id = UnicodeAttribute()
    name = UnicodeAttribute()
    step = UnicodeAttribute(null=True)
    key_id = UnicodeAttribute()
    ends_at = NumberAttribute(null=True)
    due_at = NumberAttribute(null=True)
    schema = UnicodeAttribute(null=True)
    status = UnicodeAttribute()
    decision_id = UnicodeAttribute(null=True)
    payload = UnicodeAttribute(null=True)
    decided_at = NumberAttribute(null=True)
    actor = UnicodeAttribute(null=True)


class CheckpointItem(TableItem):
    """The last checkpoint of a step."""

    step = UnicodeAttribute()
    last_event = NumberAttribute()
    save_id = UnicodeAttribute()
    saved_at = NumberAttribute()
    output = NumberAttribute()
    answers: ListAttribute[Any] = ListAttribute()
    value = UnicodeAttribute()


class ChunkItem(TableItem):
    """One row of a step's output; its position is in the key."""

    step = UnicodeAttribute()
    position = NumberAttribute()
    number = NumberAttribute()
    at = NumberAttribute()
    value = UnicodeAttribute(null=True)
    last_event = NumberAttribute()


class WorkflowItem(TableItem):
    """The name of a workflow that has had a run: what a list of all runs goes through."""

    workflow = UnicodeAttribute()


_SCHEMA: Mapping[str, Any] = TableItem._get_schema()


class Table:
    """The connection to one table. Blocks, and raises botocore's errors.

    The client is made once. It tries each request at most `attempts` times, with botocore's
    standard retries, so a write whose reply was lost may find itself standing in its own way.
    """

    def __init__(
        self,
        name: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        attempts: int = ATTEMPTS,
        connections: int = THREADS,
    ) -> None:
        self.name = name
        self._attempts = attempts
        self._connection = Connection(
            region=region,
            host=endpoint,
            connect_timeout_seconds=CONNECT_TIMEOUT_S,
            read_timeout_seconds=READ_TIMEOUT_S,
            max_pool_connections=connections,
            retry_configuration={"mode": "standard", "total_max_attempts": attempts},
        )
        self._connection.add_meta_table(
            MetaTable(
                {
                    "TableName": name,
                    "KeySchema": _SCHEMA["key_schema"],
                    "AttributeDefinitions": _SCHEMA["attribute_definitions"],
                    "GlobalSecondaryIndexes": [
                        {"IndexName": index["index_name"], "KeySchema": index["key_schema"]}
                        for index in _SCHEMA["global_secondary_indexes"]
                    ],
                }
            )
        )
        # Made here: threads that come first together would make one each.
        self._client: Any = self._connection.client

    @property
    def client(self) -> Any:
        """The botocore client of all requests."""
        return self._client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def create(self) -> None:
        """Create the table, on demand, with its indexes and TTL, where no template has."""
        self._connection.create_table(
            self.name,
            attribute_definitions=_SCHEMA["attribute_definitions"],
            key_schema=_SCHEMA["key_schema"],
            global_secondary_indexes=_SCHEMA["global_secondary_indexes"],
            billing_mode=PAY_PER_REQUEST_BILLING_MODE,
        )
        self._client.get_waiter("table_exists").wait(TableName=self.name)
        self._connection.update_time_to_live(self.name, TableItem.expires_at.attr_name)

    def put(self, item: RawItem, condition: Condition | None = None) -> bool:
        """Put the item. Whether the condition held."""
        pk, sk = _key_of(item)
        return self._held(
            lambda: self._connection.put_item(
                self.name, pk, sk, attributes=item, condition=condition
            )
        )

    def update(self, pk: str, sk: str, actions: Sequence[Action], condition: Condition) -> bool:
        """Update an item. Whether the condition held."""
        return self._held(
            lambda: self._connection.update_item(
                self.name, pk, sk, actions=actions, condition=condition
            )
        )

    def change(
        self, pk: str, sk: str, actions: Sequence[Action], condition: Condition
    ) -> RawItem | None:
        """Update an item. The item as it is then; None if the condition did not hold."""
        changed: RawItem = {}
        held = self._held(
            lambda: changed.update(
                self._connection.update_item(
                    self.name,
                    pk,
                    sk,
                    actions=actions,
                    condition=condition,
                    return_values="ALL_NEW",
                )["Attributes"]
            )
        )
        return changed if held else None

    def get(
        self, pk: str, sk: str, *, consistent: bool = True, only: Sequence[str] | None = None
    ) -> RawItem | None:
        """One item, or some of its attributes."""
        with _botocore_errors():
            reply = self._connection.get_item(
                self.name, pk, sk, consistent_read=consistent, attributes_to_get=only and list(only)
            )
        found: RawItem | None = reply.get("Item")
        return found

    def query(
        self,
        pk: str,
        sk: Condition | None = None,
        *,
        index: str | None = None,
        forward: bool = True,
        page: int | None = None,
    ) -> Iterator[RawItem]:
        """The items of a partition in order, page after page; consistent, but for an index."""
        start: RawItem | None = None
        while True:
            with _botocore_errors():
                reply = self._connection.query(
                    self.name,
                    pk,
                    sk,
                    consistent_read=index is None,
                    exclusive_start_key=start,
                    index_name=index,
                    limit=page,
                    scan_index_forward=forward,
                )
            yield from reply["Items"]
            start = reply.get("LastEvaluatedKey")
            if not start:
                return

    def get_many(self, keys: Sequence[tuple[str, str]]) -> list[RawItem]:
        """The items that are there, in no order; eventually consistent. No key may come twice."""
        found: list[RawItem] = []
        for start in range(0, len(keys), _BATCH):
            wanted = [{"pk": pk, "sk": sk} for pk, sk in keys[start : start + _BATCH]]
            found += self._get_batch(wanted)
        return found

    def _get_batch(self, wanted: list[Any]) -> list[RawItem]:
        """The items of one batch. DynamoDB leaves some unread above 16 MB, and when throttling."""
        found: list[RawItem] = []
        fruitless = 0
        while wanted:
            with _botocore_errors():
                reply = self._connection.batch_get_item(self.name, wanted)
            found += reply["Responses"].get(self.name, ())
            left = reply.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
            if len(left) == len(wanted):
                fruitless += 1
                if fruitless == self._attempts:
                    raise TransientError(f"table {self.name!r}: {len(left)} keys stay unread")
                time.sleep(random.uniform(0, 0.05 * 2**fruitless))
            wanted = left
        return found

    def _held(self, write: Callable[[], object]) -> bool:
        try:
            with _botocore_errors():
                write()
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            return False
        return True


@contextmanager
def _botocore_errors() -> Iterator[None]:
    """Raise what botocore raised: pynamodb's own errors hold no HTTP status."""
    try:
        yield
    except PynamoDBException as error:
        cause = error.cause
        if isinstance(cause, ClientError) and isinstance(cause.__cause__, ClientError):
            raise cause.__cause__ from error
        if isinstance(cause, BotoCoreError | ClientError):
            raise cause from error
        raise


def raw(item: TableItem) -> RawItem:
    """The item as it is sent."""
    return item.serialize()


def fields(item: TableItem) -> dict[str, Any]:
    """The attributes of an item as plain values, without its keys."""
    return {
        name: _plain(value)
        for name, value in item.attribute_values.items()
        if name not in _KEYS and value is not None
    }


def replacing(item: RawItem, names: Sequence[str]) -> list[Action]:
    """What makes these attributes of a row what they are in the item, or removes them."""
    return [
        Path([name]).set(item[name]) if name in item else Path([name]).remove() for name in names
    ]


def item_size(item: RawItem) -> int:
    """Bytes that an item takes by DynamoDB's rules: names and values."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


_KEYS = ("pk", "sk", "listed_in", "wanted_in", "expires_at")


def _key_of(item: RawItem) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _plain(value: Any) -> Any:
    if isinstance(value, MapAttribute):
        return _plain(value.attribute_values)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def _value_size(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(str(content).encode())
    if kind == "N":
        digits = len(str(content).lstrip("-").rstrip("0"))
        return (digits + 1) // 2 + 1 + str(content).startswith("-")
    if kind == "M":
        return 3 + sum(
            1 + len(name.encode()) + _value_size(inner) for name, inner in content.items()
        )
    if kind == "L":
        return 3 + sum(1 + _value_size(inner) for inner in content)
    return 1
