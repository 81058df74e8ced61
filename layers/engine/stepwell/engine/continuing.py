"""Going on as a new run: what ends this one begins the next.

`RunContinued` holds all that the next run begins from, so a turn that dies after it is followed by
one that starts the same run again. The next run is a function of this one: there is only one.
"""

from __future__ import annotations

from stepwell.core import events as e
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.ids import derived_seed, next_run_id
from stepwell.core.messages import CancelRun, StartRun
from stepwell.engine.endings import Continues
from stepwell.engine.handing_on import hand_on
from stepwell.engine.headers import start_from_turn
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
    event, header = turn.state.continued, turn.header
    assert event is not None
    message = StartRun(
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
    # First what it begins with: its first turn finds the entries.
    await hand_on(turn.ports, turn.values, turn.inbox.values(), turn.state, event.next)
    await start_from_turn(turn.ports, message)


async def forward(turn: TurnContext, message: CancelRun) -> None:
    """Pass on a cancel that came for this run after it had gone on as a new one."""
    event = turn.state.continued
    assert event is not None
    await turn.ports.queue.send(message.model_copy(update={"run_id": event.next}))
    await turn.ports.store.request_cancel(event.next)
