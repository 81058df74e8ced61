"""Dead letters of the queues, as they are told to whoever looks after them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from stepwell.adapters.local.database import Database
from stepwell.core.records import Millis


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that nobody will receive any more, and why. `redrive` sends it again."""

    message_id: str
    run_id: str
    body: str
    sent_at: Millis
    receive_count: int
    reason: str
    died_at: Millis


_COLUMNS = ", ".join(field.name for field in fields(DeadLetter))


_Table = Literal["dead_letters", "step_dead_letters", "signal_dead_letters"]


def read_dead_letters(
    database: Database, table: _Table, *, new: bool = False
) -> tuple[DeadLetter, ...]:
    """Dead letters of one queue, in the order in which they died; with `new` those not taken."""
    which = "WHERE taken_at IS NULL" if new else ""
    rows = database.query(f"SELECT {_COLUMNS} FROM {table} {which} ORDER BY place")  # noqa: S608
    return tuple(DeadLetter(*row) for row in rows)


def note_taken(database: Database, table: _Table, message_id: str, now: Millis) -> bool:
    """Note that the run of a dead letter was told of it. False if it was noted, or has gone."""
    sql = f"UPDATE {table} SET taken_at = ? WHERE message_id = ? AND taken_at IS NULL"  # noqa: S608
    return database.change(sql, now, message_id) == 1
