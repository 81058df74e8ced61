"""The run queue as an SQS FIFO queue behaves, in a table of the same file.

A group is a run. Only the oldest message of a group can be received, and while it is in flight or
held back, nothing of its group comes. A message that is neither deleted nor given back within the
visibility timeout is delivered again. Equal bodies are dropped for five minutes after the first,
even when that one has been deleted. What was received too often becomes a dead letter.

As with SQS FIFO, a receipt holds its message until the moment at which it becomes visible again,
and no longer, even if nobody has received it since. Giving a message back only moves that moment:
with a delay it also prolongs the hold of a receiver that has not finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256

from stepwell.adapters.local.database import Database, SqlValue
from stepwell.adapters.local.dead_letters import DeadLetter, note_taken, read_dead_letters
from stepwell.core.messages import Message, dump_message
from stepwell.core.records import Millis
from stepwell.engine.ports import Clock, Delivery, Ids, ItemTooLarge

_REMEMBER = """
INSERT INTO sent_bodies (run_id, sha256, until) VALUES (?, ?, ?)
ON CONFLICT (run_id, sha256) DO NOTHING
"""

_PUT = """
INSERT INTO messages (message_id, run_id, body, sent_at, visible_at) VALUES (?, ?, ?, ?,
    CASE WHEN EXISTS (SELECT 1 FROM messages WHERE run_id = ?) THEN NULL ELSE ? END)
"""

_NEXT = """
SELECT place, receive_count FROM messages
WHERE visible_at <= ? ORDER BY visible_at, place LIMIT 1
"""

# A run without a header is anybody's: its start says in the body what it is.
_NEXT_OF = """
SELECT place, receive_count FROM messages
WHERE visible_at <= ? AND NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.run_id = messages.run_id
    AND runs.workflow NOT IN (SELECT value FROM json_each(?)))
ORDER BY visible_at, place LIMIT 1
"""

_NEXT_FOR = """
SELECT place, receive_count FROM messages
WHERE visible_at <= ? AND run_id IN (SELECT value FROM json_each(?))
ORDER BY visible_at, place LIMIT 1
"""

_TAKE = """
UPDATE messages SET visible_at = ?, receive_count = receive_count + 1
WHERE place = ? RETURNING body, receive_count, message_id
"""

_HELD = """
SELECT 1 FROM messages
WHERE place = ? AND receive_count = ? AND message_id = ? AND visible_at > ?
"""

_GIVE_BACK = "UPDATE messages SET visible_at = ? WHERE place = ?"

_PROMOTE = """
UPDATE messages SET visible_at = ?
WHERE place = (SELECT min(place) FROM messages WHERE run_id = ?) AND visible_at IS NULL
"""

_BURY = """
INSERT INTO dead_letters (message_id, run_id, body, sent_at, receive_count, reason, died_at)
SELECT message_id, run_id, body, sent_at, receive_count, ?, ? FROM messages WHERE place = ?
"""


class SqliteQueue:
    """Implements the `Queue` and `Consumer` ports. Any number of processes may pull."""

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
        self.database = database
        self._clock = clock
        self._ids = ids
        self._visibility = visibility
        self._max_receive_count = max_receive_count
        self._dedup_window = dedup_window
        self._body_limit = body_limit

    async def send(self, message: Message) -> None:
        """Send to the group of the message's run. Equal bodies within five minutes are one."""
        self.put(message)

    async def send_all(self, messages: Sequence[Message]) -> None:
        """Send messages to runs, each run named once at most."""
        with self.database.writing():
            for message in messages:
                self.put(message)

    def put(self, message: Message) -> None:
        """What `send` does; joins the transaction that is open."""
        body = dump_message(message)
        data = body.encode()
        if len(data) > self._body_limit:
            raise ItemTooLarge(f"message to run {message.run_id!r}", len(data), self._body_limit)
        now = self._clock.now()
        with self.database.writing():
            self.database.change("DELETE FROM sent_bodies WHERE until <= ?", now)
            until = now + self._dedup_window
            if self.database.change(_REMEMBER, message.run_id, sha256(data).digest(), until):
                self._enter(message.run_id, body, now)

    async def receive(
        self, *, workflows: Iterable[str] | None = None, runs: Iterable[str] | None = None
    ) -> Delivery | None:
        """The next message whose group is free, now; None if there is none.

        With `workflows`, runs of all others are left to the processes that know them; with `runs`,
        all others, whatever their workflows.
        """
        now = self._clock.now()
        sql = _NEXT
        values: tuple[SqlValue, ...] = (now,)
        if runs is not None:
            sql, values = _NEXT_FOR, (now, json.dumps(list(runs)))
        elif workflows is not None:
            sql, values = _NEXT_OF, (now, json.dumps(list(workflows)))
        if not self.database.query(sql, *values):  # an idle poll takes no write lock
            return None
        with self.database.writing():
            while rows := self.database.query(sql, *values):
                place, count = rows[0]
                if count < self._max_receive_count:
                    return self._take(place, now)
                times = "once" if count == 1 else f"{count} times"
                self._bury(place, f"received {times} and never deleted", now)
        return None

    async def delete(self, delivery: Delivery) -> bool:
        """Acknowledge. False, without effect, when the receipt is stale."""
        now = self._clock.now()
        with self.database.writing():
            place = self._held(delivery, now)
            if place is not None:
                self._remove(place, now)
        return place is not None

    async def give_back(self, delivery: Delivery, *, delay: Millis = 0) -> bool:
        """Make the message visible again after `delay` ms; until then its group waits.

        False, without effect, when the receipt is stale. Until that moment the receipt stays good,
        so a long turn keeps its message by calling this again and again.
        """
        return self.postpone(delivery, delay)

    def postpone(self, delivery: Delivery, delay: Millis) -> bool:
        """What `give_back` does, from any thread."""
        now = self._clock.now()
        with self.database.writing():
            place = self._held(delivery, now)
            if place is not None:
                self.database.change(_GIVE_BACK, now + delay, place)
        return place is not None

    async def reject(self, delivery: Delivery, reason: str) -> None:
        """Move the message to the dead letters at once. No effect when the receipt is stale."""
        now = self._clock.now()
        with self.database.writing():
            place = self._held(delivery, now)
            if place is not None:
                self._bury(place, reason, now)

    async def dead_letters(self, *, new: bool = False) -> tuple[DeadLetter, ...]:
        """All dead letters, in the order in which they died; with `new` those not taken so far."""
        return read_dead_letters(self.database, "dead_letters", new=new)

    async def take(self, message_id: str) -> bool:
        """Note that the run of a dead letter was told of it. False if it was, or it has gone."""
        return note_taken(self.database, "dead_letters", message_id, self._clock.now())

    async def redrive(self, message_id: str) -> bool:
        """Send a dead letter again: a new message, last of its group, whatever was sent before.

        Whether there was such a letter.
        """
        with self.database.writing():
            rows = self.database.query(
                "DELETE FROM dead_letters WHERE message_id = ? RETURNING run_id, body", message_id
            )
            for run_id, body in rows:
                self._enter(run_id, body, self._clock.now())
        return bool(rows)

    async def next_visible_at(self) -> Millis | None:
        """When a message may become receivable, perhaps in the past; None without messages.

        A delete, a rejection or a send makes another one receivable earlier.
        """
        rows = self.database.query(
            "SELECT min(visible_at) FROM messages WHERE visible_at IS NOT NULL"
        )
        time: Millis | None = rows[0][0]
        return time

    async def depth(self) -> int:
        """How many messages there are, those in flight included, dead letters not."""
        count: int = self.database.query("SELECT count(*) FROM messages")[0][0]
        return count

    async def depth_of(self, runs: Iterable[str]) -> int:
        """How many of them are for these runs."""
        sql = "SELECT count(*) FROM messages WHERE run_id IN (SELECT value FROM json_each(?))"
        count: int = self.database.query(sql, json.dumps(list(runs)))[0][0]
        return count

    def _enter(self, run_id: str, body: str, now: Millis) -> None:
        """Place a new message last in its group."""
        self.database.change(_PUT, self._ids.new_id(), run_id, body, now, run_id, now)

    def _take(self, place: int, now: Millis) -> Delivery:
        ((body, count, message_id),) = self.database.query(_TAKE, now + self._visibility, place)
        return Delivery(
            body=body, receipt=f"{place}.{count}", receive_count=count, message_id=message_id
        )

    def _held(self, delivery: Delivery, now: Millis) -> int | None:
        """The message's place if the receipt holds it, else None."""
        place, _, count = delivery.receipt.partition(".")
        held = self.database.query(_HELD, int(place), int(count), delivery.message_id, now)
        return int(place) if held else None

    def _bury(self, place: int, reason: str, now: Millis) -> None:
        self.database.change(_BURY, reason, now, place)
        self._remove(place, now)

    def _remove(self, place: int, now: Millis) -> None:
        ((run_id,),) = self.database.query(
            "DELETE FROM messages WHERE place = ? RETURNING run_id", place
        )
        self.database.change(_PROMOTE, now, run_id)
