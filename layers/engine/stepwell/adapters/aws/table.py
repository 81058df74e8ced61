"""The connection to the one table: requests, their conditions, and pages of what they bring."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.connection.base import Connection, MetaTable
from pynamodb.exceptions import PynamoDBException
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from stepwell.adapters.aws.clients import (
    ATTEMPTS,
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    THREADS,
    error_code,
    refuse_broken_replies,
)
from stepwell.adapters.aws.items import RawItem, TableItem
from stepwell.engine.ports import TransientError

if TYPE_CHECKING:
    from botocore.session import Session

#: What one BatchGetItem takes.
_BATCH = 100
#: What one BatchWriteItem takes.
_WRITES = 25

_SCHEMA: Mapping[str, Any] = TableItem._get_schema()


class _Connection(Connection):
    """pynamodb's connection, on a given session if there is one.

    It makes its own otherwise: with other credentials than the given ones perhaps, and reading the
    descriptions of AWS's services a second time.
    """

    def __init__(self, session: Session | None, **options: Any) -> None:
        super().__init__(**options)
        self._given = session

    @property
    def session(self) -> Any:
        """The botocore session that the client is made from."""
        return super().session if self._given is None else self._given


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
        session: Session | None = None,
        attempts: int = ATTEMPTS,
        connections: int = THREADS,
    ) -> None:
        self.name = name
        self._attempts = attempts
        self._connection = _Connection(
            session,
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
        refuse_broken_replies(self._client)

    @property
    def client(self) -> Any:
        """The botocore client of all requests."""
        return self._client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

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

    def keys(self, pk: str, sk: Condition | None = None) -> list[tuple[str, str]]:
        """The keys of a partition's items, of every page."""
        items = self.query(pk, sk, only=("pk", "sk"))
        return [(item["pk"]["S"], item["sk"]["S"]) for item in items]

    def erase(self, pk: str) -> None:
        """Delete all items of a partition."""
        self.write_many([], self.keys(pk))

    def write_many(self, puts: Sequence[RawItem], deletes: Sequence[tuple[str, str]]) -> None:
        """Put and delete items, without a condition, as many requests as that takes."""
        work = [("put", item) for item in puts]
        work += [("delete", {"pk": {"S": pk}, "sk": {"S": sk}}) for pk, sk in deletes]
        for start in range(0, len(work), _WRITES):
            batch = work[start : start + _WRITES]
            self._write_batch(
                {
                    self.name: [
                        {"PutRequest": {"Item": item}}
                        if kind == "put"
                        else {"DeleteRequest": {"Key": item}}
                        for kind, item in batch
                    ]
                }
            )

    def _write_batch(self, wanted: RawItem) -> None:
        """One batch. DynamoDB leaves some unwritten when throttling."""
        fruitless = 0
        while wanted:
            with _botocore_errors():
                reply = self._client.batch_write_item(RequestItems=wanted)
            undone = reply["UnprocessedItems"]
            if undone == wanted:
                fruitless += 1
                if fruitless == self._attempts:
                    raise TransientError(f"table {self.name!r}: writes stay undone")
                time.sleep(random.uniform(0, 0.05 * 2**fruitless))
            wanted = undone

    def query(
        self,
        pk: str,
        sk: Condition | None = None,
        *,
        only: Sequence[str] | None = None,
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
                    attributes_to_get=only and list(only),
                )
            yield from reply["Items"]
            start = reply.get("LastEvaluatedKey")
            if not start:
                return

    def get_many(
        self, keys: Sequence[tuple[str, str]], *, consistent: bool = False
    ) -> list[RawItem]:
        """The items that are there, in no order. No key may come twice."""
        found: list[RawItem] = []
        for start in range(0, len(keys), _BATCH):
            wanted = [{"pk": pk, "sk": sk} for pk, sk in keys[start : start + _BATCH]]
            found += self._get_batch(wanted, consistent)
        return found

    def _get_batch(self, wanted: list[Any], consistent: bool) -> list[RawItem]:
        """The items of one batch. DynamoDB leaves some unread above 16 MB, and when throttling."""
        found: list[RawItem] = []
        fruitless = 0
        while wanted:
            with _botocore_errors():
                reply = self._connection.batch_get_item(
                    self.name, wanted, consistent_read=consistent
                )
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


def _key_of(item: RawItem) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]
