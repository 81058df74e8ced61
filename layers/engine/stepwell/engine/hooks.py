"""Opening a hook: row first, then `on_created`, then the note that it was called.

A crash in between finds the row and calls `on_created` again with the same token. A row that is
found decided is taken as it stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from stepwell.core import events as e
from stepwell.core.decide import decided_event
from stepwell.core.definitions import HookDefinition, OnCreated
from stepwell.core.records import Decision, HookRow, HookStatus
from stepwell.engine.scope import TurnScope
from stepwell.engine.threads import in_thread


async def put_row(
    scope: TurnScope, hook_id: str, definition: HookDefinition, step: str | None
) -> HookRow:
    """Make sure of the hook's row; the one that is there already stands."""
    # The row lets the world in: what led to it must be durable first.
    if scope.journal.needs_flush:
        await scope.journal.flush()
    now = scope.ports.clock.now()
    deadline = None if definition.timeout is None else now + definition.timeout
    waits = definition.on_timeout == "wait"
    row = HookRow(
        run_id=scope.run_id,
        hook_id=hook_id,
        name=definition.name,
        step=step,
        key_id=scope.settings.keyring.newest,
        created_at=now,
        expires_at=None if waits else deadline,
        due_at=deadline if waits else None,
        schema=definition.schema,
    )
    return await scope.puts.run(_place(scope, row))


async def _place(scope: TurnScope, row: HookRow) -> HookRow:
    standing = await scope.ports.store.put_hook(row)
    scope.rows[standing.hook_id] = standing
    return standing


def token_of(scope: TurnScope, row: HookRow) -> str:
    """The token of a hook; the same every time."""
    return scope.settings.keyring.token(row.key_id, row.run_id, row.hook_id)


async def notify(scope: TurnScope, row: HookRow, on_created: OnCreated | None) -> None:
    """Call `on_created` with the hook's token. Raises what it raises."""
    if on_created is None:
        return
    token = token_of(scope, row)
    if inspect.iscoroutinefunction(on_created):
        await on_created(token)
        return
    result = await in_thread(scope.notifiers, lambda: on_created(token))
    if inspect.isawaitable(result):
        await result


def opened(scope: TurnScope, row: HookRow) -> e.HookOpened:
    """The event that says `on_created` was called for a row."""
    return e.HookOpened(
        at=scope.journal.now(),
        hook=row.hook_id,
        name=row.name,
        step=row.step,
        expires_at=row.expires_at,
        due_at=row.due_at,
    )


def decision_event(scope: TurnScope, row: HookRow) -> e.Event | None:
    """The event that records a row's decision; None when there is none, or it is recorded."""
    return decided_event(scope.state, row, scope.journal.now())


def record_decision(scope: TurnScope, row: HookRow) -> bool:
    """Record a decided row that is not recorded yet. Whether the row is decided."""
    event = decision_event(scope, row)
    if event is not None:
        scope.journal.record(event)
    return row.status is not HookStatus.PENDING


def open_hooks_of(scope: TurnScope, step: str) -> list[str]:
    """Hooks of a step that can still be answered, also rows whose opening was never noted."""
    return [row.hook_id for row in scope.rows.values() if row.step == step and is_open(scope, row)]


def is_open(scope: TurnScope, row: HookRow) -> bool:
    """Whether an answer to the hook can still come, as far as this turn knows."""
    known = scope.state.hooks.get(row.hook_id)
    return row.status is HookStatus.PENDING if known is None else known.open


async def close_all(scope: TurnScope, hook_ids: Sequence[str]) -> None:
    """Close open hooks, or record the decisions that came first."""
    # What made them unwanted must be durable before: after a crash in between, the next turn would
    # tell of a row that it finds closed to code that still waits for it.
    if hook_ids and scope.journal.needs_flush:
        await scope.journal.flush()
    for hook_id in hook_ids:
        await _close(scope, hook_id)


async def _close(scope: TurnScope, hook_id: str) -> None:
    """Close an open hook, or record the decision that came first."""
    decision = Decision(
        status=HookStatus.CLOSED, decision_id="closed", decided_at=scope.journal.now()
    )
    row = await scope.ports.store.decide_hook(scope.run_id, hook_id, decision)
    if row is not None:
        scope.rows[hook_id] = row
        record_decision(scope, row)
