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


def read_dead_letters(
    database: Database, table: Literal["dead_letters", "step_dead_letters"]
) -> tuple[DeadLetter, ...]:
    """All dead letters of one queue, in the order in which they died."""
    rows = database.query(f"SELECT {_COLUMNS} FROM {table} ORDER BY place")  # noqa: S608
    return tuple(DeadLetter(*row) for row in rows)
