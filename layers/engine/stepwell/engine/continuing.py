"""Going on as a new run: what ends this one begins the next.

`RunContinued` holds all that the next run begins from, so a turn that dies after it is followed by
one that starts the same run again. The next run is a function of this one: there is only one.
"""

from __future__ import annotations

from dataclasses import replace

from stepwell.core import events as e
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.ids import derived_seed, next_run_id
from stepwell.core.messages import CancelRun, InboxPut, LookAgain, Message, StartRun
from stepwell.engine.endings import Continues
from stepwell.engine.handing_on import forward_entry, hand_on
from stepwell.engine.headers import header_of, start_from_turn
from stepwell.engine.journal import Fenced
from stepwell.engine.turn_context import TurnContext


async def continued(
    turn: TurnContext, workflow: WorkflowDefinition, outcome: Continues
) -> e.RunContinued:
    """The event that ends the run. Raises `PayloadTooLarge`."""
    owner = f"input of workflow {workflow.name!r}"
    return e.RunContinued(
        at=turn.journal.now(),
        next=next_run_id(turn.run_id),
        version=workflow.version,
        input=await turn.values.put(outcome.input, owner),
        digest=outcome.digest,
        context=outcome.context,
    )


async def is_cancelled(turn: TurnContext) -> bool:
    """Whether somebody has asked for a cancel that the run does not know of yet.

    Its message waits behind this turn: the next one is told, and does not go on as a new run.
    """
    if turn.state.cancel is not None:
        return False
    header = await turn.ports.store.get_header(turn.run_id)
    return header is not None and header.cancel_requested


async def start_next(turn: TurnContext) -> None:
    """Start the run that goes on, when this one has ended. What a run hands on goes in here."""
    event = turn.state.continued
    assert event is not None
    message = await _start(turn, event)
    # First what it begins with: its first turn finds the entries.
    await hand_on(turn.ports, turn.values, turn.inbox.values(), turn.state, event.next)
    await start_from_turn(turn.ports, message)


async def _start(turn: TurnContext, event: e.RunContinued) -> StartRun:
    header = turn.header
    return StartRun(
        run_id=event.next,
        workflow=header.workflow,
        version=event.version,
        # Its own, so that it can do without this run.
        input=await turn.values.of(event.next).own(event.input),
        input_digest=event.digest,
        seed=derived_seed(header.seed, event.next),
        created_at=event.at,
        tags=header.tags,
        context=event.context,
        parent=header.parent,
        continued_from=header.run_id,
        guards=turn.state.guards,
    )


async def pause_next(turn: TurnContext) -> None:
    """Pause the run that goes on: somebody paused this one just after it had ended so.

    Before this run's header is written, which then says no more of it.
    """
    event, store = turn.state.continued, turn.ports.store
    assert event is not None
    header = await store.put_header(header_of(await _start(turn, event)))
    if header.paused or header.status.terminal:
        return
    assert turn.header.attention is not None
    note = replace(turn.header.attention, before=header.attention)
    if not await store.update_header(replace(header, attention=note), over=header):
        raise Fenced(f"run {event.next!r} goes on while it is paused")


async def forward(turn: TurnContext, message: Message) -> None:
    """Pass on what came for this run after it had gone on as a new one, if that is for it too."""
    event = turn.state.continued
    assert event is not None
    if isinstance(message, CancelRun):
        await turn.ports.queue.send(message.model_copy(update={"run_id": event.next}))
        await turn.ports.store.request_cancel(event.next)
    elif isinstance(message, InboxPut):
        await forward_entry(turn.ports, turn.values, message, event.next)
    elif isinstance(message, LookAgain) and message.change is not None:
        # Without other guards there is nothing to pass on: the new run has only just looked.
        await turn.ports.queue.send(message.model_copy(update={"run_id": event.next}))
