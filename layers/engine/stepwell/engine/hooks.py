"""Opening a hook: row first, then `on_created`, then the note that it was called.

A crash in between finds the row and calls `on_created` again with the same token. A row that is
found decided is taken as it stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from stepwell.core import events as e
from stepwell.core.decide import closing, decided_event
from stepwell.core.definitions import HookDefinition, OnCreated
from stepwell.core.records import HookRow, HookStatus
from stepwell.engine.threads import in_thread
from stepwell.engine.turn_context import TurnContext


async def put_row(
    turn: TurnContext, hook_id: str, definition: HookDefinition, step: str | None
) -> HookRow:
    """Make sure of the hook's row; the one that is there already stands."""
    # The row lets the world in: what led to it must be durable first.
    if turn.journal.behind:
        await turn.journal.flush()
    now = turn.journal.now()
    deadline = None if definition.timeout is None else now + definition.timeout
    waits = definition.on_timeout == "wait"
    row = HookRow(
        run_id=turn.run_id,
        hook_id=hook_id,
        name=definition.name,
        step=step,
        key_id=turn.settings.keyring.newest,
        created_at=now,
        expires_at=None if waits else deadline,
        due_at=deadline if waits else None,
        schema=definition.schema,
        question=definition.question,
    )
    return await turn.puts.run(_place(turn, row))


async def _place(turn: TurnContext, row: HookRow) -> HookRow:
    standing = await turn.ports.store.put_hook(row)
    turn.rows[standing.hook_id] = standing
    if turn.confirm is not None:
        await turn.confirm(standing)
    return standing


def token_of(turn: TurnContext, row: HookRow) -> str:
    """The token of a hook; the same every time."""
    return turn.settings.keyring.token(row.key_id, row.run_id, row.hook_id)


async def notify(turn: TurnContext, row: HookRow, on_created: OnCreated | None) -> None:
    """Call `on_created` with the hook's token. Raises what it raises."""
    if on_created is None:
        return
    token = token_of(turn, row)
    if inspect.iscoroutinefunction(on_created):
        await on_created(token)
        return
    result = await in_thread(turn.notifiers, lambda: on_created(token))
    if inspect.isawaitable(result):
        await result


def opened(turn: TurnContext, row: HookRow) -> e.HookOpened:
    """The event that says `on_created` was called for a row."""
    return e.HookOpened(
        at=turn.journal.now(),
        hook=row.hook_id,
        name=row.name,
        step=row.step,
        expires_at=row.expires_at,
        due_at=row.due_at,
        question=row.question,
    )


def decision_event(turn: TurnContext, row: HookRow) -> e.Event | None:
    """The event that records a row's decision; None when there is none, or it is recorded."""
    return decided_event(turn.state, row, turn.journal.now())


def record_decision(turn: TurnContext, row: HookRow) -> bool:
    """Record a decided row that is not recorded yet. Whether the row is decided."""
    event = decision_event(turn, row)
    if event is not None:
        turn.journal.record(event)
    return row.status is not HookStatus.PENDING


def open_hooks_of(turn: TurnContext, step: str) -> list[str]:
    """Hooks of a step that have not ended yet, also rows whose opening was never noted."""
    return [row.hook_id for row in turn.rows.values() if row.step == step and is_open(turn, row)]


def is_open(turn: TurnContext, row: HookRow) -> bool:
    """Whether the log does not say yet how the hook ended. Its row may: somebody has answered."""
    known = turn.state.hooks.get(row.hook_id)
    return known is None or known.open


async def close_all(turn: TurnContext, hook_ids: Sequence[str]) -> None:
    """Close hooks that have not ended, or record the decisions that came first."""
    # What made them unwanted must be durable before: after a crash in between, the next turn would
    # tell of a row that it finds closed to code that still waits for it.
    pending = [each for each in hook_ids if not record_decision(turn, turn.rows[each])]
    if pending and turn.journal.behind:
        await turn.journal.flush()
    for hook_id in pending:
        await _close(turn, hook_id)


async def _close(turn: TurnContext, hook_id: str) -> None:
    """Close an open hook, or record the decision that came first."""
    decision = closing(turn.journal.now())
    row = await turn.ports.store.decide_hook(turn.run_id, hook_id, decision)
    if row is not None:
        turn.rows[hook_id] = row
        record_decision(turn, row)
