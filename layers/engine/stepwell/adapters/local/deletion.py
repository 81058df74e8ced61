"""Deleted runs: what is left of them in the tables, and for how long."""

from __future__ import annotations

from stepwell.adapters.local.database import Database
from stepwell.core.records import Millis, RunHeader

#: The status of a deleted run in its column; the header keeps the one that it had.
DELETED = "DELETED"
#: Tables whose rows of a run go when it is deleted.
_TABLES = ("hooks", "steps", "checkpoints", "chunks", "inbox", "map_shards", "map_items")

_BURY = """
UPDATE runs SET status = ?, attention = NULL, due = NULL, kept_until = ?, last_event = ?,
    cancel_requested = 0, body = ?
WHERE run_id = ? AND last_event <= ?
"""

_EMPTY = "UPDATE commits SET turn = '', number = 0, size = 0, events = '[]' WHERE run_id = ?"

_FORGOTTEN = f"SELECT run_id FROM runs WHERE kept_until <= ? AND status = '{DELETED}'"  # noqa: S608


def bury(database: Database, tombstone: RunHeader, body: str) -> bool:
    """Replace a header by what is left of a deleted run, unless the run went on. Whether so."""
    changed = database.change(
        _BURY,
        DELETED,
        tombstone.kept_until,
        tombstone.last_event,
        body,
        tombstone.run_id,
        tombstone.last_event,
    )
    return changed == 1


def erase(database: Database, run_id: str, now: Millis) -> None:
    """Delete a run's rows and empty its commits; forget runs that were deleted long ago."""
    with database.writing():
        for table in _TABLES:
            database.change(f"DELETE FROM {table} WHERE run_id = ?", run_id)  # noqa: S608
        database.change(_EMPTY, run_id)
        for (old,) in database.query(_FORGOTTEN, now):
            database.change("DELETE FROM commits WHERE run_id = ?", old)
            database.change("DELETE FROM runs WHERE run_id = ?", old)
