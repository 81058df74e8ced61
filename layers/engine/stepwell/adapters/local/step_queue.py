"""The step queue as an SQS standard queue behaves, in a table of the same file.

There are no groups and nothing is deduplicated: every attempt can be received as soon as it is
there. One that is neither deleted nor given back within the visibility timeout is delivered again;
what was received too often becomes a dead letter. A receipt holds its message until the moment at
which it becomes visible again, as in the run queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from stepwell.adapters.local.database import Database, SqlValue
from stepwell.adapters.local.dead_letters import DeadLetter, note_taken, read_dead_letters
from stepwell.core.messages import MapItem, StepMessage, dump_message, load_attempt
from stepwell.core.records import Millis
from stepwell.engine.ports import Clock, Delivery, Ids, ItemTooLarge

#: The longest that SQS keeps a message back.
LONGEST_DELAY: Millis = 900_000

_PUT = """
INSERT INTO step_messages (message_id, run_id, name, body, sent_at, visible_at)
VALUES (?, ?, ?, ?, ?, ?)
"""

_NEXT = """
SELECT place, receive_count FROM step_messages
WHERE visible_at <= ? ORDER BY visible_at, place LIMIT 1
"""

_NEXT_OF = """
SELECT place, receive_count FROM step_messages
WHERE visible_at <= ? AND name IN (SELECT value FROM json_each(?))
ORDER BY visible_at, place LIMIT 1
"""

_NEXT_FOR = """
SELECT place, receive_count FROM step_messages
WHERE visible_at <= ? AND run_id IN (SELECT value FROM json_each(?))
ORDER BY visible_at, place LIMIT 1
"""

_TAKE = """
UPDATE step_messages SET visible_at = ?, receive_count = receive_count + 1
WHERE place = ? RETURNING body, receive_count, message_id
"""

_HELD = "place = ? AND receive_count = ? AND message_id = ? AND visible_at > ?"

_DELETE = f"DELETE FROM step_messages WHERE {_HELD}"  # noqa: S608
_GIVE_BACK = f"UPDATE step_messages SET visible_at = ? WHERE {_HELD}"  # noqa: S608
_IS_HELD = f"SELECT 1 FROM step_messages WHERE {_HELD}"  # noqa: S608

_BURY = """
INSERT INTO step_dead_letters
    (message_id, run_id, name, body, sent_at, receive_count, reason, died_at)
SELECT message_id, run_id, name, body, sent_at, receive_count, ?, ?
FROM step_messages WHERE place = ?
"""


class SqliteStepQueue:
    """Implements the `StepQueue` port, and its receiving end. Any number of processes may pull."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: Ids,
        *,
        visibility: Millis = 150_000,
        max_receive_count: int = 10,
        body_limit: int = 1024 * 1024,
    ) -> None:
        self.database = database
        self._clock = clock
        self._ids = ids
        self._visibility = visibility
        self._max_receive_count = max_receive_count
        self._body_limit = body_limit

    async def send(self, attempt: StepMessage) -> None:
        """Have an attempt made. Sent twice, it comes twice."""
        self._send(attempt, 0)

    async def send_items(self, items: Sequence[MapItem], *, delay: Millis = 0) -> None:
        """Have attempts of items made, `delay` ms from now on, which is at most 15 minutes."""
        if not 0 <= delay <= LONGEST_DELAY:
            raise ValueError(f"a queue delays by 0 to {LONGEST_DELAY} ms, not {delay}")
        for item in items:
            self._send(item, delay)

    def _send(self, attempt: StepMessage, delay: Millis) -> None:
        body = dump_message(attempt)
        size = len(body.encode())
        if size > self._body_limit:
            name = f"attempt of step {attempt.name!r} of run {attempt.run_id!r}"
            raise ItemTooLarge(name, size, self._body_limit)
        self._enter(attempt.run_id, attempt.name, body, delay)

    async def receive(
        self, *, steps: Iterable[str] | None = None, runs: Iterable[str] | None = None
    ) -> Delivery | None:
        """The next attempt, now; None if there is none.

        With `steps`, attempts of steps of all other names are left to processes that know them;
        with `runs`, those of all other runs.
        """
        now = self._clock.now()
        sql = _NEXT
        values: tuple[SqlValue, ...] = (now,)
        if runs is not None:
            sql, values = _NEXT_FOR, (now, json.dumps(list(runs)))
        elif steps is not None:
            sql, values = _NEXT_OF, (now, json.dumps(list(steps)))
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
        return self.database.change(_DELETE, *self._held(delivery)) == 1

    async def give_back(self, delivery: Delivery, *, delay: Millis = 0) -> bool:
        """Make the message visible again after `delay` ms; the receipt stays good until then.

        False, without effect, when the receipt is stale.
        """
        return self.postpone(delivery, delay)

    def postpone(self, delivery: Delivery, delay: Millis) -> bool:
        """What `give_back` does, from any thread."""
        until = self._clock.now() + delay
        return self.database.change(_GIVE_BACK, until, *self._held(delivery)) == 1

    async def reject(self, delivery: Delivery, reason: str) -> None:
        """Move the message to the dead letters at once. No effect when the receipt is stale."""
        held = self._held(delivery)
        with self.database.writing():
            if self.database.query(_IS_HELD, *held):
                self._bury(int(delivery.receipt.partition(".")[0]), reason, self._clock.now())

    async def dead_letters(self, *, new: bool = False) -> tuple[DeadLetter, ...]:
        """All dead letters, in the order in which they died; with `new` those not taken so far."""
        return read_dead_letters(self.database, "step_dead_letters", new=new)

    async def take(self, message_id: str) -> bool:
        """Note that the run of a dead letter was told of it. False if it was, or it has gone."""
        return note_taken(self.database, "step_dead_letters", message_id, self._clock.now())

    async def redrive(self, message_id: str) -> bool:
        """Send a dead letter again, as a new message. Whether there was such a letter."""
        with self.database.writing():
            rows = self.database.query(
                "DELETE FROM step_dead_letters WHERE message_id = ? RETURNING run_id, name, body",
                message_id,
            )
            for run_id, name, body in rows:
                self._enter(run_id, name, body)
        return bool(rows)

    async def attempts_of(self, run_id: str) -> tuple[StepMessage, ...]:
        """All attempts of a run that have a message, received or not."""
        sql = "SELECT body FROM step_messages WHERE run_id = ? ORDER BY place"
        return tuple(load_attempt(body) for (body,) in self.database.query(sql, run_id))

    async def next_visible_at(self) -> Millis | None:
        """When a message may become receivable, perhaps in the past; None without messages."""
        time: Millis | None = self.database.query("SELECT min(visible_at) FROM step_messages")[0][0]
        return time

    def _enter(self, run_id: str, name: str, body: str, delay: Millis = 0) -> None:
        now = self._clock.now()
        self.database.change(_PUT, self._ids.new_id(), run_id, name, body, now, now + delay)

    def _take(self, place: int, now: Millis) -> Delivery:
        ((body, count, message_id),) = self.database.query(_TAKE, now + self._visibility, place)
        return Delivery(
            body=body, receipt=f"{place}.{count}", receive_count=count, message_id=message_id
        )

    def _held(self, delivery: Delivery) -> tuple[int, int, str, Millis]:
        """What `_HELD` asks for: the message, if this receipt still holds it."""
        place, _, count = delivery.receipt.partition(".")
        return int(place), int(count), delivery.message_id, self._clock.now()

    def _bury(self, place: int, reason: str, now: Millis) -> None:
        self.database.change(_BURY, reason, now, place)
        self.database.change("DELETE FROM step_messages WHERE place = ?", place)
