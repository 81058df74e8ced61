"""The lists of runs and hooks, a page at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from stepwell.adapters.local.database import Database, Row, SqlValue
from stepwell.adapters.local.deletion import DELETED
from stepwell.adapters.local.rows import HOOK_COLUMNS, read_header, read_hook
from stepwell.core.cursors import Place, check_limit, read_cursor, write_cursor
from stepwell.core.records import AttentionKind, HookRow, Millis, RunHeader, RunStatus
from stepwell.engine.ports import Page

T = TypeVar("T")
_LOG = logging.getLogger("stepwell.local")


def runs(
    database: Database,
    *,
    workflow: str | None,
    status: RunStatus | None,
    attention: AttentionKind | None,
    limit: int,
    cursor: str | None,
) -> Page[RunHeader]:
    """Runs, newest first. Raises `ValueError` on a bad cursor or limit."""
    wanted = {
        "workflow": workflow,
        "status": None if status is None else status.value,
        "attention": attention,
    }
    filters = {name: value for name, value in wanted.items() if value is not None}
    conditions = [f"{name} = ?" for name in filters]
    if status is None:
        conditions.append(f"status <> '{DELETED}'")
    values: list[SqlValue] = [*filters.values()]
    if cursor is not None:
        place = read_cursor(cursor, "runs", 1)
        conditions.append("(recency, run_id) > (?, ?)")
        values += [-place.time, *place.ids]
    select = "SELECT body, cancel_requested, recency, run_id FROM runs"
    if conditions:
        select += f" WHERE {' AND '.join(conditions)}"
    rows, more = _page(database, select, "recency, run_id", values, limit)
    return Page(
        items=tuple(read_header(body, cancelled) for body, cancelled, *_ in rows),
        cursor=write_cursor("runs", Place(-rows[-1][2], (rows[-1][3],))) if more else None,
    )


def hooks(database: Database, run_id: str | None, limit: int, cursor: str | None) -> Page[HookRow]:
    """Pending hooks, of one run or of all, oldest first. `ValueError` on a bad cursor or limit."""
    conditions = ["status = 'PENDING'"]
    values: list[SqlValue] = []
    if run_id is not None:
        conditions.append("run_id = ?")
        values.append(run_id)
    if cursor is not None:
        place = read_cursor(cursor, "hooks", 2)
        conditions.append("(created_at, run_id, hook_id) > (?, ?, ?)")
        values += [place.time, *place.ids]
    select = f"SELECT {HOOK_COLUMNS} FROM hooks WHERE {' AND '.join(conditions)}"  # noqa: S608
    rows, more = _page(database, select, "created_at, run_id, hook_id", values, limit)
    items = tuple(map(read_hook, rows))
    return Page(
        items=items,
        cursor=write_cursor("hooks", _place(items[-1])) if more else None,
    )


def overdue_runs(database: Database, before: Millis, limit: int) -> tuple[RunHeader, ...]:
    """At most `limit` runs that were due before a time, the most overdue first."""
    check_limit(limit)
    select = "SELECT body, cancel_requested FROM runs WHERE due < ? ORDER BY due, run_id LIMIT ?"
    return _readable(database.query(select, before, limit), lambda row: read_header(*row))


def expired_runs(database: Database, before: Millis, limit: int) -> tuple[RunHeader, ...]:
    """At most `limit` ended runs that were kept until before a time, the longest expired first."""
    check_limit(limit)
    select = (
        f"SELECT body, cancel_requested FROM runs WHERE kept_until < ? AND status <> '{DELETED}'"  # noqa: S608
        " ORDER BY kept_until, run_id LIMIT ?"
    )
    return _readable(database.query(select, before, limit), lambda row: read_header(*row))


def overdue_hooks(database: Database, before: Millis, limit: int) -> tuple[HookRow, ...]:
    """At most `limit` pending hooks with a deadline before a time, the most overdue first."""
    check_limit(limit)
    select = (
        f"SELECT {HOOK_COLUMNS} FROM hooks WHERE status = 'PENDING' AND expires_at < ?"  # noqa: S608
        " ORDER BY expires_at, run_id, hook_id LIMIT ?"
    )
    return _readable(database.query(select, before, limit), read_hook)


def _readable(rows: Iterable[Row], read: Callable[[Row], T]) -> tuple[T, ...]:
    """What can be read: a row of a later version keeps nobody from being found but its own run."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(read(row))
        except ValueError as error:
            _LOG.error("a row cannot be read: %s", type(error).__name__)
    return tuple(found)


def _page(
    database: Database, select: str, order: str, values: Sequence[SqlValue], limit: int
) -> tuple[list[Row], bool]:
    """At most `limit` rows, and whether more follow."""
    check_limit(limit)
    rows = database.query(f"{select} ORDER BY {order} LIMIT ?", *values, limit + 1)
    return rows[:limit], len(rows) > limit


def _place(row: HookRow) -> Place:
    return Place(row.created_at, (row.run_id, row.hook_id))
