"""Rows of stream runs in the file. As strict as DynamoDB about their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter

from stepwell.adapters.local.database import Database
from stepwell.core.records import Millis
from stepwell.core.signals import (
    BATCH,
    NumberedSignal,
    SignalBatch,
    StreamHead,
    StreamKey,
    SubscriptionRow,
)
from stepwell.engine.ports import Clock, ItemTooLarge

_BATCH: TypeAdapter[SignalBatch] = TypeAdapter(SignalBatch)
_SUBSCRIPTION: TypeAdapter[SubscriptionRow] = TypeAdapter(SubscriptionRow)
_TABLES = ("stream_heads", "signal_batches", "signal_numbers", "subscriptions")
_OF = "stream = ? AND stream_run = ?"

_APPEND = """
INSERT INTO signal_batches (stream, stream_run, first, batch_id, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (stream, stream_run, first) DO UPDATE SET batch_id = excluded.batch_id
WHERE batch_id = excluded.batch_id
"""

_MOVE_HEAD = """
INSERT INTO stream_heads (stream, stream_run, last, created_at, updated_at, counts)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, stream_run)
DO UPDATE SET last = excluded.last, updated_at = excluded.updated_at, counts = excluded.counts
WHERE excluded.last > last
"""

_HEAD = f"""
SELECT last, created_at, updated_at, counts FROM stream_heads WHERE {_OF}
"""  # noqa: S608

_READ = f"""
SELECT body FROM signal_batches WHERE {_OF} AND first > ? ORDER BY first LIMIT ?
"""  # noqa: S608

_FIND = f"""
SELECT number FROM signal_numbers WHERE {_OF} AND signal_id = ? AND until > ?
"""  # noqa: S608

_REMEMBER = """
INSERT INTO signal_numbers (stream, stream_run, signal_id, number, until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (stream, stream_run, signal_id)
DO UPDATE SET number = excluded.number, until = excluded.until
"""

_SUBSCRIBE = """
INSERT INTO subscriptions (stream, stream_run, step, body) VALUES (?, ?, ?, ?)
ON CONFLICT (stream, stream_run, step) DO UPDATE SET body = excluded.body
"""


class SqliteStreams:
    """Implements the `Streams` port."""

    def __init__(self, database: Database, clock: Clock, *, item_limit: int = 400 * 1024) -> None:
        self._database = database
        self._clock = clock
        self._item_limit = item_limit

    async def head(self, key: StreamKey) -> StreamHead | None:
        """How far a stream run has come, None before its first signal."""
        for last, created_at, updated_at, counts in self._database.query(_HEAD, *key):
            return StreamHead(
                key=key, last=last, created_at=created_at, updated_at=updated_at, counts=counts
            )
        return None

    async def append(self, key: StreamKey, batch: SignalBatch) -> bool:
        """Put a batch, only if none has its first number. Whether it stands."""
        if not 1 <= len(batch.signals) <= BATCH:
            raise ValueError(f"a batch of {len(batch.signals)} signals on stream run {key}")
        body = _BATCH.dump_json(batch, exclude_none=True)
        self._check_size(f"signals {batch.first} to {batch.last} of stream run {key}", body)
        values = (*key, batch.first, batch.batch_id, body.decode())
        return self._database.change(_APPEND, *values) == 1

    async def move_head(self, head: StreamHead) -> None:
        """Note how far a stream run has come, unless it is noted to be further already."""
        times = (head.created_at, head.updated_at)
        self._database.change(_MOVE_HEAD, *head.key, head.last, *times, head.counts)

    async def read(self, key: StreamKey, *, after: int, limit: int) -> tuple[NumberedSignal, ...]:
        """Signals with a number above `after`, in order and without gaps, at most `limit`."""
        # The batch that holds the next number may begin before it; no batch is longer than that.
        first, wanted = after - BATCH, limit // BATCH + 2
        found: list[NumberedSignal] = []
        while True:
            rows = self._database.query(_READ, *key, first, wanted)
            batches = [_BATCH.validate_json(body) for (body,) in rows]
            for batch in batches:
                found += [each for each in batch.numbered() if each.sequence > after]
            if len(found) >= limit or len(batches) < wanted:
                return tuple(found[:limit])
            first = batches[-1].first

    async def find(self, key: StreamKey, signal_ids: Sequence[str]) -> Mapping[str, int]:
        """The numbers of those of these signals that are remembered."""
        now = self._clock.now()
        # One by one: a text in SQLite's JSON ends at a NUL.
        return {
            signal_id: number
            for signal_id in signal_ids
            for (number,) in self._database.query(_FIND, *key, signal_id, now)
        }

    async def remember(self, key: StreamKey, numbers: Mapping[str, int], until: Millis) -> None:
        """Remember the numbers of signals by their ids, until a time or later."""
        with self._database.writing():
            self._database.change("DELETE FROM signal_numbers WHERE until <= ?", self._clock.now())
            for signal_id, number in numbers.items():
                self._database.change(_REMEMBER, *key, signal_id, number, until)

    async def subscribe(self, row: SubscriptionRow) -> None:
        """Put a subscription, in place of the one that stands."""
        body = _SUBSCRIPTION.dump_json(row)
        self._check_size(f"subscription {row.step!r} of stream run {row.key}", body)
        self._database.change(_SUBSCRIBE, *row.key, row.step, body.decode())

    async def subscriptions(self, key: StreamKey) -> tuple[SubscriptionRow, ...]:
        """All subscriptions of a stream run by step."""
        sql = f"SELECT body FROM subscriptions WHERE {_OF} ORDER BY step"  # noqa: S608
        return tuple(
            _SUBSCRIPTION.validate_json(body) for (body,) in self._database.query(sql, *key)
        )

    async def erase(self, key: StreamKey) -> None:
        """Delete all rows of a stream run."""
        with self._database.writing():
            for table in _TABLES:
                self._database.change(f"DELETE FROM {table} WHERE {_OF}", *key)  # noqa: S608

    def _check_size(self, what: str, body: bytes) -> None:
        if len(body) > self._item_limit:
            raise ItemTooLarge(what, len(body), self._item_limit)
