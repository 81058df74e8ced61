"""Rows of stream runs in the table. Each write is one item with its condition, or has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import TypeAdapter
from pynamodb.attributes import BooleanAttribute, ListAttribute, NumberAttribute, UnicodeAttribute

from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.items import RawItem, TableItem, fields, item_size, raw
from stepwell.adapters.aws.keys import (
    STREAM_HEAD,
    batch_first,
    batch_key,
    last_batch_key,
    signal_key,
    stream_partition,
    subscription_key,
    subscriptions_after,
)
from stepwell.adapters.aws.rows import seconds
from stepwell.adapters.aws.table import Table
from stepwell.core.records import Millis
from stepwell.core.signals import (
    BATCH,
    NumberedSignal,
    SentSignal,
    SignalBatch,
    StreamHead,
    StreamKey,
    SubscriptionRow,
)
from stepwell.engine.ports import ItemTooLarge, TransientError

_ITEM_LIMIT = 400 * 1024
#: Rows that one pass of an erasure looks at and deletes.
_ERASED = 250
_SIGNALS: TypeAdapter[tuple[SentSignal, ...]] = TypeAdapter(tuple[SentSignal, ...])
_SUBSCRIPTION: TypeAdapter[SubscriptionRow] = TypeAdapter(SubscriptionRow)


class StreamItem(TableItem):
    """How far a stream run has come."""

    last = NumberAttribute()
    updated_at = NumberAttribute()
    counts = UnicodeAttribute(null=True)


class BatchItem(TableItem):
    """Consecutive signals, as JSON; the number of the first is in the key."""

    batch_id = UnicodeAttribute()
    signals = UnicodeAttribute()


class SignalItem(TableItem):
    """The number of a signal; its id is in the key. It goes by itself."""

    number = NumberAttribute()


class SubscriptionItem(TableItem):
    """Who is woken, and by which types."""

    step = UnicodeAttribute()
    run_id = UnicodeAttribute()
    types: ListAttribute[Any] = ListAttribute()
    ended = BooleanAttribute(null=True)


class DynamoStreams:
    """Implements the `Streams` port on the one table."""

    def __init__(self, table: Table, clients: Clients) -> None:
        self._table = table
        self._clients = clients

    async def head(self, key: StreamKey) -> StreamHead | None:
        """How far a stream run has come, None before its first signal."""
        item = await self._clients.call(self._table.get, stream_partition(key), STREAM_HEAD)
        return (
            None if item is None else StreamHead(key=key, **fields(StreamItem.from_raw_data(item)))
        )

    async def append(self, key: StreamKey, batch: SignalBatch) -> bool:
        """Put a batch, only if none has its first number. Whether it stands.

        True also when the one there has the same `batch_id`: an own write whose reply was lost.
        """
        if not 1 <= len(batch.signals) <= BATCH:
            raise ValueError(f"a batch of {len(batch.signals)} signals on stream run {key}")
        return await self._clients.call(self._append, key, batch)

    async def move_head(self, head: StreamHead) -> None:
        """Note how far a stream run has come, unless it is noted to be further already."""
        await self._clients.call(
            self._table.update,
            stream_partition(head.key),
            STREAM_HEAD,
            [
                StreamItem.last.set(head.last),
                StreamItem.updated_at.set(head.updated_at),
                StreamItem.created_at.set(StreamItem.created_at | head.created_at),
                *([] if head.counts is None else [StreamItem.counts.set(head.counts)]),
            ],
            StreamItem.pk.does_not_exist() | (StreamItem.last < head.last),
        )

    async def read(self, key: StreamKey, *, after: int, limit: int) -> tuple[NumberedSignal, ...]:
        """Signals with a number above `after`, in order and without gaps, at most `limit`."""
        if limit < 1:
            return ()
        return await self._clients.call(self._read, key, max(after, 0), limit)

    async def find(self, key: StreamKey, signal_ids: Sequence[str]) -> Mapping[str, int]:
        """The numbers of those of these signals that are remembered; any number of ids."""
        if not signal_ids:
            return {}
        return await self._clients.call(self._find, key, signal_ids)

    async def remember(self, key: StreamKey, numbers: Mapping[str, int], until: Millis) -> None:
        """Remember the numbers of signals by their ids: DynamoDB deletes them some days late."""
        partition = stream_partition(key)
        items = [
            {
                **raw(SignalItem(partition, signal_key(each), number=number)),
                "expires_at": seconds(until),
            }
            for each, number in numbers.items()
        ]
        await self._clients.call(self._table.write_many, items, [])

    async def subscribe(self, row: SubscriptionRow) -> None:
        """Put a subscription, in place of the one that stands."""
        item = _subscription_item(row)
        _check_size(f"subscription {row.step!r} of stream run {row.key}", item)
        await self._clients.call(self._table.put, item)

    async def subscriptions(self, key: StreamKey) -> tuple[SubscriptionRow, ...]:
        """All subscriptions of a stream run by step; every page of them."""
        return await self._clients.call(self._subscriptions, key)

    async def erase(self, key: StreamKey) -> None:
        """Delete all rows of a stream run, as many at a time as stay in memory with ease."""
        await self._clients.call(self._erase, key)

    # What follows blocks: `Clients.call` runs it in a thread.

    def _append(self, key: StreamKey, batch: SignalBatch) -> bool:
        item = _batch_item(key, batch)
        _check_size(f"signals {batch.first} to {batch.last} of stream run {key}", item)
        if self._table.put(item, BatchItem.pk.does_not_exist()):
            return True
        found = self._table.get(item["pk"]["S"], item["sk"]["S"], only=("batch_id",))
        if found is None:
            raise TransientError(f"stream run {key} was deleted while it was written")
        return bool(found["batch_id"] == item["batch_id"])

    def _read(self, key: StreamKey, after: int, limit: int) -> tuple[NumberedSignal, ...]:
        signals = self._after(key, after, limit)
        return tuple(islice(signals, limit))

    def _after(self, key: StreamKey, after: int, limit: int) -> Iterator[NumberedSignal]:
        # The batch that holds the next number may begin before it; no batch is longer than that.
        begin = batch_key(max(after - BATCH + 2, 0))
        rows = self._table.query(
            stream_partition(key),
            BatchItem.sk.between(begin, last_batch_key()),
            page=limit // BATCH + BATCH,
        )
        for row in rows:
            for signal in _read_batch(row).numbered():
                if signal.sequence <= after:
                    continue
                if signal.sequence != after + 1:
                    return  # what is missing was put behind the query's back: it comes next time
                after = signal.sequence
                yield signal

    def _find(self, key: StreamKey, signal_ids: Sequence[str]) -> Mapping[str, int]:
        partition = stream_partition(key)
        ids = {signal_key(each): each for each in signal_ids}
        items = self._table.get_many([(partition, each) for each in ids], consistent=True)
        return {ids[item["sk"]["S"]]: int(item["number"]["N"]) for item in items}

    def _subscriptions(self, key: StreamKey) -> tuple[SubscriptionRow, ...]:
        begin = SubscriptionItem.sk.startswith(subscriptions_after())
        rows = [
            _read_subscription(key, item)
            for item in self._table.query(stream_partition(key), begin)
        ]
        return tuple(sorted(rows, key=lambda row: row.step))

    def _erase(self, key: StreamKey) -> None:
        items = self._table.query(stream_partition(key), only=("pk", "sk"))
        while page := [(item["pk"]["S"], item["sk"]["S"]) for item in islice(items, _ERASED)]:
            self._table.write_many([], page)


def _batch_item(key: StreamKey, batch: SignalBatch) -> RawItem:
    return raw(
        BatchItem(
            stream_partition(key),
            batch_key(batch.first),
            batch_id=batch.batch_id,
            signals=_SIGNALS.dump_json(batch.signals, exclude_none=True).decode(),
        )
    )


def _read_batch(item: RawItem) -> SignalBatch:
    return SignalBatch(
        first=batch_first(item["sk"]["S"]),
        batch_id=item["batch_id"]["S"],
        signals=_SIGNALS.validate_json(item["signals"]["S"]),
    )


def _subscription_item(row: SubscriptionRow) -> RawItem:
    return raw(
        SubscriptionItem(
            stream_partition(row.key),
            subscription_key(row.step),
            step=row.step,
            run_id=row.run_id,
            types=list(row.types),
            created_at=row.created_at,
            ended=row.ended or None,
        )
    )


def _read_subscription(key: StreamKey, item: RawItem) -> SubscriptionRow:
    values = fields(SubscriptionItem.from_raw_data(item))
    return _SUBSCRIPTION.validate_python({"key": key, **values})


def _check_size(name: str, item: RawItem) -> None:
    size = item_size(item)
    if size > _ITEM_LIMIT:
        raise ItemTooLarge(name, size, _ITEM_LIMIT)
