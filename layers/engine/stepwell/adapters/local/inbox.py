"""Entries of inboxes: put once each, read with their run."""

from __future__ import annotations

from pydantic import TypeAdapter

from stepwell.adapters.local.database import Database
from stepwell.core.records import InboxRow

_ENTRY: TypeAdapter[InboxRow] = TypeAdapter(InboxRow)

#: The entries of a run, for a page of a load.
ENTRIES = """
SELECT size, entry_id, body FROM inbox
WHERE run_id = ? AND ifnull(entry_id > ?, true) ORDER BY entry_id
"""

_PUT = """
INSERT INTO inbox (run_id, entry_id, size, body) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, entry_id) DO NOTHING
"""


def body_of(row: InboxRow) -> bytes:
    """An entry as the body of its row."""
    return _ENTRY.dump_json(row, exclude_none=True)


def read(body: str) -> InboxRow:
    """The entry that a body holds."""
    return _ENTRY.validate_json(body)


def put(database: Database, row: InboxRow, body: bytes) -> InboxRow | None:
    """Put if absent. Returns the entry that stands, None if there is none."""
    if database.change(_PUT, row.run_id, row.entry_id, len(body), body.decode()):
        return row
    rows = database.query(
        "SELECT body FROM inbox WHERE run_id = ? AND entry_id = ?", row.run_id, row.entry_id
    )
    return read(rows[0][0]) if rows else None
