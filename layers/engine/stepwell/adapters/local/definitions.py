"""Published definitions: a row per digest, and a copy of the current one of each workflow."""

from __future__ import annotations

from pydantic import TypeAdapter

from stepwell.adapters.local.database import Database, Row
from stepwell.core.cursors import Place, check_limit, read_cursor, write_cursor
from stepwell.core.definitions import version_order
from stepwell.core.records import PublishedWorkflow
from stepwell.engine.ports import Page

_DEFINITION: TypeAdapter[PublishedWorkflow] = TypeAdapter(PublishedWorkflow)

_PUT = """
INSERT INTO definitions (workflow, digest, body) VALUES (?, ?, ?)
ON CONFLICT (workflow, digest) DO NOTHING
"""

_MAKE_CURRENT = """
INSERT INTO current_definitions (workflow, digest, version_order, published_at, body)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (workflow) DO UPDATE SET digest = excluded.digest,
    version_order = excluded.version_order, published_at = excluded.published_at,
    body = excluded.body
WHERE digest <> excluded.digest
    AND (version_order, published_at) <= (excluded.version_order, excluded.published_at)
"""

_LIST = """
SELECT body FROM current_definitions WHERE ifnull(workflow > ?, true) ORDER BY workflow LIMIT ?
"""


def body_of(definition: PublishedWorkflow) -> bytes:
    """What is kept of a definition, as `put` takes it."""
    return _DEFINITION.dump_json(definition)


def put(database: Database, definition: PublishedWorkflow, body: str) -> None:
    """Keep a definition, and make it the current one unless that is newer."""
    name, digest = definition.name, definition.digest
    order = version_order(definition.version)
    with database.writing():
        database.change(_PUT, name, digest, body)
        database.change(_MAKE_CURRENT, name, digest, order, definition.published_at, body)


def current(database: Database, workflow: str) -> PublishedWorkflow | None:
    """The current definition of a workflow."""
    rows = database.query("SELECT body FROM current_definitions WHERE workflow = ?", workflow)
    return _read(rows[0]) if rows else None


def page(database: Database, limit: int, cursor: str | None) -> Page[PublishedWorkflow]:
    """Current definitions by name. Raises `ValueError` on a bad cursor or limit."""
    check_limit(limit)
    after = None if cursor is None else read_cursor(cursor, "definitions", 1).ids[0]
    found = [_read(row) for row in database.query(_LIST, after, limit + 1)]
    more = len(found) > limit
    return Page(
        items=tuple(found[:limit]),
        cursor=write_cursor("definitions", Place(0, (found[limit - 1].name,))) if more else None,
    )


def _read(row: Row) -> PublishedWorkflow:
    return _DEFINITION.validate_json(row[0])
