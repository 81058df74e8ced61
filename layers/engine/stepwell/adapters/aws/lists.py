"""The lists of runs and hooks: which part of which index holds each, and what belongs to it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Literal

from stepwell.adapters.aws.items import HookItem, RawItem
from stepwell.adapters.aws.keys import SHARDS, WORKFLOWS, run_key, shard_key
from stepwell.adapters.aws.listing import Listing, read_list, readable
from stepwell.adapters.aws.rows import (
    EXPIRING,
    FAILED_GROUPS,
    PENDING_HOOKS,
    TIMED,
    read_header,
    read_hook,
    read_workflow,
)
from stepwell.adapters.aws.table import Table
from stepwell.core.cursors import Place, check_limit, read_cursor, write_cursor
from stepwell.core.records import (
    AttentionKind,
    HookRow,
    HookStatus,
    Millis,
    RunHeader,
    RunStatus,
)
from stepwell.engine.ports import Page

#: Entries of the index that a page of runs looks at. More would not be through in a request's time.
RUNS_LOOKED_AT = 1_000


def runs(
    table: Table,
    *,
    workflow: str | None,
    status: RunStatus | None,
    attention: AttentionKind | None,
    limit: int,
    cursor: str | None,
) -> Page[RunHeader]:
    """Runs, newest first. Raises `ValueError` on a bad cursor or limit.

    A page is short, or empty, when it has looked at `RUNS_LOOKED_AT` and others follow.
    """
    check_limit(limit)
    after = None if cursor is None else read_cursor(cursor, "runs", 1)

    def keep(header: RunHeader) -> bool:
        return (
            header.deleted_at is None
            and (workflow is None or header.workflow == workflow)
            and (status is None or header.status is status)
            and (attention is None or _note(header) == attention)
        )

    index, groups = _groups(table, workflow, status, attention)
    listing = Listing(
        index=index,
        groups=groups,
        newest_first=True,
        read=read_header,
        place=_run_place,
        least=("",),
        keep=keep,
    )
    rows, end = read_list(table, listing, after=after, limit=limit, look_at=RUNS_LOOKED_AT)
    return Page(items=tuple(rows), cursor=write_cursor("runs", end) if end else None)


def overdue_runs(table: Table, before: Millis, limit: int) -> tuple[RunHeader, ...]:
    """At most `limit` runs that were due before a time, the most overdue first."""
    check_limit(limit)
    listing = Listing(
        index="wanted",
        groups=(TIMED,),
        newest_first=False,
        read=read_header,
        place=_due_place,
        least=("",),
        keep=lambda header: _is_due(header, before),
    )
    rows, _ = read_list(table, listing, before=before, limit=limit)
    return tuple(rows)


def expired_runs(table: Table, before: Millis, limit: int) -> tuple[RunHeader, ...]:
    """At most `limit` ended runs that were kept until before a time, the longest expired first."""
    check_limit(limit)
    listing = Listing(
        index="expiring",
        groups=(EXPIRING,),
        newest_first=False,
        read=read_header,
        place=_kept_place,
        least=("",),
        keep=lambda header: _is_expired(header, before),
    )
    rows, _ = read_list(table, listing, before=before, limit=limit)
    return tuple(rows)


def overdue_hooks(table: Table, before: Millis, limit: int) -> tuple[HookRow, ...]:
    """At most `limit` pending hooks with a deadline before a time, the most overdue first."""
    check_limit(limit)
    entries = (
        entry
        for shard in range(SHARDS)
        for entry in table.query(shard_key(PENDING_HOOKS, shard), index="wanted")
    )
    # The index knows the deadlines: no row is read of a hook that is in time.
    late = heapq.nsmallest(limit, (e for e in entries if _ends_at(e) < before), key=_ends_at)
    items = table.get_many([(entry["pk"]["S"], entry["sk"]["S"]) for entry in late])
    rows = [
        (row.expires_at, row.run_id, row.hook_id, row)
        for row in readable(items, read_hook)
        if _is_pending(row) and row.expires_at is not None and row.expires_at < before
    ]
    return tuple(row for *_, row in sorted(rows, key=lambda found: found[:3]))


def _ends_at(entry: RawItem) -> float:
    return float(entry["ends_at"]["N"]) if "ends_at" in entry else math.inf


def hooks(table: Table, run_id: str | None, limit: int, cursor: str | None) -> Page[HookRow]:
    """Pending hooks, of one run or of all, oldest first. `ValueError` on a bad cursor or limit."""
    check_limit(limit)
    after = None if cursor is None else read_cursor(cursor, "hooks", 2)
    if run_id is None:
        rows, end = read_list(table, _HOOKS, after=after, limit=limit)
    else:
        rows, end = _hooks_of(table, run_id, after, limit)
    return Page(items=tuple(rows), cursor=write_cursor("hooks", end) if end else None)


def _groups(
    table: Table,
    workflow: str | None,
    status: RunStatus | None,
    attention: AttentionKind | None,
) -> tuple[Literal["runs", "wanted"], Sequence[str]]:
    """The index, and the groups in it, that hold all runs of a list."""
    if attention is not None:
        return "wanted", [attention]
    if status is RunStatus.FAILED:
        return "wanted", FAILED_GROUPS
    if workflow is not None:
        return "runs", [workflow]
    return "runs", [read_workflow(item) for item in table.query(WORKFLOWS)]


def _hooks_of(
    table: Table, run_id: str, after: Place | None, limit: int
) -> tuple[list[HookRow], Place | None]:
    """The pending hooks of one run. They are few, so all are read, and none lags."""
    items = table.query(run_key(run_id), HookItem.sk.startswith("H#"))
    rows = sorted(filter(_is_pending, map(read_hook, items)), key=_hook_order)
    if after is not None:
        rows = [row for row in rows if _hook_order(row) > (after.time, after.ids)]
    return rows[:limit], _hook_place(rows[limit - 1]) if len(rows) > limit else None


def _note(header: RunHeader) -> str | None:
    return None if header.attention is None else header.attention.kind


def _run_place(header: RunHeader) -> Place:
    return Place(header.created_at, (header.run_id,))


def _is_due(header: RunHeader, before: Millis) -> bool:
    return header.due is not None and header.due < before


def _due_place(header: RunHeader) -> Place:
    return Place(header.due or 0, (header.run_id,))


def _is_expired(header: RunHeader, before: Millis) -> bool:
    kept = header.kept_until
    return header.deleted_at is None and kept is not None and kept < before


def _kept_place(header: RunHeader) -> Place:
    return Place(header.kept_until or 0, (header.run_id,))


def _is_pending(row: HookRow) -> bool:
    return row.status is HookStatus.PENDING


def _hook_place(row: HookRow) -> Place:
    return Place(row.created_at, (row.run_id, row.hook_id))


def _hook_order(row: HookRow) -> tuple[int, tuple[str, ...]]:
    return row.created_at, (row.run_id, row.hook_id)


_HOOKS = Listing(
    index="wanted",
    groups=(PENDING_HOOKS,),
    newest_first=False,
    read=read_hook,
    place=_hook_place,
    least=("", ""),
    keep=_is_pending,
)
