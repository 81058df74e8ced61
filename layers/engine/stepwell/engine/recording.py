"""Recording what was decided outside a run since its last turn, whatever woke this one.

A row is decided first, and what stands in it then is recorded: of two that decide, one has won.
"""

from __future__ import annotations

from stepwell.core import events as e
from stepwell.core.decide import decide, due_decisions, entry_of, first_event, lost_cancel
from stepwell.core.messages import InboxPut, Message
from stepwell.engine import children, dispatched_maps
from stepwell.engine.turn_context import TurnContext


async def record_decided(turn: TurnContext, message: Message, log: list[e.Event]) -> list[e.Event]:
    """Record all of it, behind a log. The events; they are durable with the next flush."""
    await _decide_rows(turn, message)
    ended = await children.endings(turn, message)
    events: list[e.Event] = []
    if turn.state.started is None:
        events.append(first_event(turn.header))
        turn.journal.record(events[0])
    events += _record(turn, message, ended)
    return [*events, *await dispatched_maps.take_in(turn, [*log, *events])]


async def _decide_rows(turn: TurnContext, message: Message) -> None:
    """Decide rows that the message or a deadline decides; take what others decided."""
    rows, store = list(turn.rows.values()), turn.ports.store
    for hook_id, decision in due_decisions(rows, message, turn.time).items():
        row = await store.decide_hook(turn.run_id, hook_id, decision)
        if row is not None:
            turn.rows[hook_id] = row
    if isinstance(message, InboxPut) and message.entry_id not in turn.inbox:
        turn.inbox[message.entry_id] = await store.put_inbox(entry_of(message))


def _record(turn: TurnContext, message: Message, ended: list[e.ChildEnded]) -> list[e.Event]:
    decided = decide(
        turn.state,
        turn.rows.values(),
        message,
        turn.time,
        turn.steps.values(),
        inbox=turn.inbox.values(),
        children=ended,
    )
    for event in decided:
        turn.journal.record(event)
    lost = lost_cancel(turn.state, turn.header, turn.journal.now())
    if lost is not None:
        turn.journal.record(lost)
        decided.append(lost)
    return decided
