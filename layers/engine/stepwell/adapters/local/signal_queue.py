"""The signal queue as an SQS FIFO queue behaves, and signals that are sent later; in the same file.

A group is a stream run. Up to ten messages of a group come together, and while they are in flight
nothing more of it comes. Signals of equal ids on one stream run are dropped for five minutes after
the first, even when that one has been deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.adapters.local.database import Database
from stepwell.adapters.local.dead_letters import DeadLetter, note_taken, read_dead_letters
from stepwell.core.messages import SignalSent, dump_signal, load_signal
from stepwell.core.records import Millis
from stepwell.core.signals import BATCH, StreamKey
from stepwell.engine.ports import Clock, Delivery, Ids, ItemTooLarge

_REMEMBER = """
INSERT INTO sent_signals (owner, signal_id, until) VALUES (?, ?, ?)
ON CONFLICT (owner, signal_id) DO NOTHING
"""

_PUT = """
INSERT INTO signal_messages (message_id, owner, body, sent_at) VALUES (?, ?, ?, ?)
"""

_FREE = """
SELECT owner FROM signal_messages WHERE NOT EXISTS (
    SELECT 1 FROM signal_holds
    WHERE signal_holds.owner = signal_messages.owner AND held_until > ?)
ORDER BY place LIMIT 1
"""

_TAKE = """
UPDATE signal_messages SET receive_count = receive_count + 1
WHERE place IN (SELECT place FROM signal_messages WHERE owner = ? ORDER BY place LIMIT ?)
RETURNING place, body, receive_count, message_id
"""

_HOLD = """
INSERT INTO signal_holds (owner, receipt, held_until) VALUES (?, ?, ?)
ON CONFLICT (owner) DO UPDATE SET receipt = excluded.receipt, held_until = excluded.held_until
"""

_BURY = """
INSERT INTO signal_dead_letters (message_id, run_id, body, sent_at, receive_count, reason, died_at)
SELECT message_id, owner, body, sent_at, receive_count, ?, ? FROM signal_messages
WHERE message_id = ?
"""

_SCHEDULE = """
INSERT INTO signal_timers (owner, signal_id, due, body) VALUES (?, ?, ?, ?)
ON CONFLICT (owner, signal_id) DO UPDATE SET due = excluded.due, body = excluded.body
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalDelivery:
    """Messages of one stream run, in order. `receipt` deletes or gives back just this receive."""

    owner: str
    receipt: str
    messages: tuple[Delivery, ...]


class SqliteSignalQueue:
    """Implements the `SignalQueue` port, and its receiving end for any number of processes."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: Ids,
        *,
        visibility: Millis = 150_000,
        max_receive_count: int = 10,
        dedup_window: Millis = 300_000,
        body_limit: int = 1024 * 1024,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._visibility = visibility
        self._max_receive_count = max_receive_count
        self._dedup_window = dedup_window
        self._body_limit = body_limit

    async def send(self, signals: Sequence[SignalSent]) -> None:
        """Send signals, in this order within each stream run, whatever `due` says."""
        self.put(signals)

    def put(self, signals: Sequence[SignalSent]) -> None:
        """What `send` does; joins the transaction that is open."""
        now = self._clock.now()
        bodies = [(each, dump_signal(each)) for each in signals]
        for each, body in bodies:
            size = len(body.encode())
            if size > self._body_limit:
                what = f"signal {each.signal_type!r} to stream run {each.key}"
                raise ItemTooLarge(what, size, self._body_limit)
        with self._database.writing():
            self._database.change("DELETE FROM sent_signals WHERE until <= ?", now)
            for each, body in bodies:
                owner, until = each.key.owner, now + self._dedup_window
                if self._database.change(_REMEMBER, owner, each.signal_id, until):
                    self._database.change(_PUT, self._ids.new_id(), owner, body, now)

    async def receive(self) -> SignalDelivery | None:
        """The next messages of a stream run that is free, now; None if there are none."""
        now = self._clock.now()
        if not self._database.query(_FREE, now):  # an idle poll takes no write lock
            return None
        with self._database.writing():
            while rows := self._database.query(_FREE, now):
                delivery = self._take(rows[0][0], now)
                if delivery.messages:
                    return delivery
        return None

    def _take(self, owner: str, now: Millis) -> SignalDelivery:
        taken = sorted(self._database.query(_TAKE, owner, BATCH))
        receipt = self._ids.new_id()
        kept = []
        for _, body, count, message_id in taken:
            if count > self._max_receive_count:
                reason = f"received {count - 1} times and never deleted"
                self._bury(message_id, reason, now)
            else:
                kept.append(
                    Delivery(body=body, receipt=receipt, receive_count=count, message_id=message_id)
                )
        self._database.change(_HOLD, owner, receipt, now + self._visibility)
        if not kept:
            self._database.change("DELETE FROM signal_holds WHERE owner = ?", owner)
        return SignalDelivery(owner=owner, receipt=receipt, messages=tuple(kept))

    async def delete(self, delivery: SignalDelivery) -> bool:
        """Acknowledge all of them. False, without effect, when the receipt is stale."""
        with self._database.writing():
            if not self._held(delivery):
                return False
            for message in delivery.messages:
                self._remove(message.message_id)
            self._database.change("DELETE FROM signal_holds WHERE owner = ?", delivery.owner)
        return True

    async def give_back(self, delivery: SignalDelivery, *, delay: Millis = 0) -> bool:
        """Make them visible again after `delay` ms; until then their stream run waits.

        False, without effect, when the receipt is stale.
        """
        return self.postpone(delivery, delay)

    def postpone(self, delivery: SignalDelivery, delay: Millis) -> bool:
        """What `give_back` does, from any thread."""
        with self._database.writing():
            if not self._held(delivery):
                return False
            until = self._clock.now() + delay
            self._database.change(_HOLD, delivery.owner, delivery.receipt, until)
        return True

    async def reject(self, delivery: SignalDelivery, message_id: str, reason: str) -> None:
        """Move one of them to the dead letters at once. No effect when the receipt is stale."""
        with self._database.writing():
            if self._held(delivery):
                self._bury(message_id, reason, self._clock.now())

    async def dead_letters(self, *, new: bool = False) -> tuple[DeadLetter, ...]:
        """All dead letters, in the order in which they died; with `new` those not taken so far.

        Their `run_id` is that of the run that owns the stream run.
        """
        return read_dead_letters(self._database, "signal_dead_letters", new=new)

    async def take(self, message_id: str) -> bool:
        """Note that somebody was told of a dead letter. False if it was, or it has gone."""
        return note_taken(self._database, "signal_dead_letters", message_id, self._clock.now())

    async def next_visible_at(self) -> Millis | None:
        """When a message may become receivable, perhaps in the past; None without messages."""
        rows = self._database.query(
            "SELECT min(ifnull(held_until, 0)) FROM signal_messages LEFT JOIN signal_holds USING (owner)"
        )
        time: Millis | None = rows[0][0]
        return time

    async def depth(self) -> int:
        """How many messages there are, those in flight included, dead letters not."""
        count: int = self._database.query("SELECT count(*) FROM signal_messages")[0][0]
        return count

    async def depth_of(self, owners: Sequence[str]) -> int:
        """How many of them are for the stream runs that these runs own."""
        counts = [
            self._database.query("SELECT count(*) FROM signal_messages WHERE owner = ?", owner)
            for owner in owners
        ]
        return sum(rows[0][0] for rows in counts)

    def _held(self, delivery: SignalDelivery) -> bool:
        rows = self._database.query(
            "SELECT receipt FROM signal_holds WHERE owner = ? AND held_until > ?",
            delivery.owner,
            self._clock.now(),
        )
        return rows == [(delivery.receipt,)]

    def _bury(self, message_id: str, reason: str, now: Millis) -> None:
        self._database.change(_BURY, reason, now, message_id)
        self._remove(message_id)

    def _remove(self, message_id: str) -> None:
        self._database.change("DELETE FROM signal_messages WHERE message_id = ?", message_id)


class SqliteSignalTimers:
    """Implements the `SignalTimers` port. A signal is sent when somebody calls `fire_due`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def schedule(self, signal: SignalSent) -> None:
        """Make sure that a signal is sent at its `due`. Scheduling it again moves it there."""
        owner, due = signal.key.owner, signal.due or 0
        self._database.change(_SCHEDULE, owner, signal.signal_id, due, dump_signal(signal))

    async def cancel(self, key: StreamKey, signal_id: str) -> None:
        """Forget a scheduled signal; it may still be sent."""
        self._database.change(
            "DELETE FROM signal_timers WHERE owner = ? AND signal_id = ?", key.owner, signal_id
        )

    async def fire_due(self, queue: SqliteSignalQueue) -> int:
        """Send all signals that are due, the earliest first. Returns how many there were."""
        now = self._clock.now()
        if (due := await self.next_due()) is None or due > now:
            return 0
        with self._database.writing():
            rows = self._database.query(
                "DELETE FROM signal_timers WHERE due <= ? RETURNING due, rowid, body", now
            )
            for _, _, body in sorted(rows):
                queue.put([load_signal(body)])
        return len(rows)

    async def next_due(self) -> Millis | None:
        """When the next signal is due, None if there is none."""
        due: Millis | None = self._database.query("SELECT min(due) FROM signal_timers")[0][0]
        return due
