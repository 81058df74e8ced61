"""Settling a turn: leave the run ended, waiting, handed over or blocked, and nothing in between.

Order matters, for a crash may come between any two writes: rows before events that rest on them,
events before timers, timers before the header, the header before the message is acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import replace

from stepwell.authoring.hooks import STEP_HOOK_TIMEOUT
from stepwell.core import events as e
from stepwell.core.attributes import write_attributes
from stepwell.core.commands import StartTimer
from stepwell.core.decide import closing
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.failure import describe
from stepwell.core.messages import Continue
from stepwell.core.parts import Alarm
from stepwell.core.records import Attention, HookStatus, Millis, RunHeader, RunStatus, Wait
from stepwell.core.state import fold_commits
from stepwell.engine import children, continuing, dispatched_maps, hooks, noting
from stepwell.engine.deletion import erase
from stepwell.engine.dispatch import call_off
from stepwell.engine.endings import Cancelled, Continues, Outcome, Raised, Returned
from stepwell.engine.journal import Fenced
from stepwell.engine.replay import Replay
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import Failure, PayloadError, StepFailed, UsageError

_LOG = logging.getLogger("stepwell.engine")
#: Waits that a header shows, the oldest and the next to come due; a header is one item and has a
#: size.
SHOWN_WAITS = 100

_STATUS = {
    "completed": RunStatus.COMPLETED,
    "failed": RunStatus.FAILED,
    "cancelled": RunStatus.CANCELLED,
    "continued": RunStatus.CONTINUED,
    "running": RunStatus.SUSPENDED,
}


async def finish(
    turn: TurnContext, workflow: WorkflowDefinition | None, outcome: Outcome, before: Alarm | None
) -> None:
    """End the run: close its open rows, write its last events, then its header; tell other runs.

    The timer is dropped last. Only what came of code needs its workflow, for the types of values.
    """
    await drop_open(turn)
    turn.journal.record(await _last_event(turn, workflow, outcome))
    await turn.journal.flush()
    await write_header(turn)
    await tell_others(turn)
    if before is not None:
        await turn.ports.timers.cancel(turn.run_id, before.wait_id, before.arm)


async def drop_open(turn: TurnContext) -> None:
    """Call off what was dispatched, and close the rows that are open: nobody will ask for them."""
    await call_off(
        turn, [(step.id, step.order) for step in turn.state.steps.values() if step.order]
    )
    open_maps = [
        each for each in turn.state.maps.values() if each.dispatched and each.status == "started"
    ]
    await dispatched_maps.call_off(turn, [*open_maps, *dispatched_maps.called_off(turn)])
    await _close_rows(turn)


async def tell_others(turn: TurnContext) -> None:
    """Tell other runs that this one has ended: its children, and its parent or its successor."""
    await children.close(turn)
    if turn.state.subscription is not None:
        await noting.unsubscribe(turn)
    if turn.state.continued is not None:
        await continuing.start_next(turn)
    else:
        await children.report(turn)


async def _close_rows(turn: TurnContext) -> None:
    # A row found decided is recorded: its answer was promised to somebody.
    left = [row.hook_id for row in turn.rows.values() if hooks.is_open(turn, row)]
    await hooks.close_all(turn, left)


async def close_late(turn: TurnContext) -> None:
    """Close rows that came after the end: of an attempt that did not know of it yet."""
    for row in turn.rows.values():
        if row.status is HookStatus.PENDING:
            decision = closing(turn.journal.now())
            await turn.ports.store.decide_hook(turn.run_id, row.hook_id, decision)


async def close_behind(turn: TurnContext) -> None:
    """Close what an overtaken turn opened, if the run has ended meanwhile: nobody else knows."""
    rows = await turn.ports.store.load(turn.run_id)
    if rows.header is not None and rows.header.deleted_at is not None:
        await erase(turn.ports, rows.header, rows.commits)
        return
    if not fold_commits(rows.commits).terminal:
        return
    turn.take_rows(rows.hooks)
    await close_late(turn)


async def _last_event(
    turn: TurnContext, workflow: WorkflowDefinition | None, outcome: Outcome
) -> e.RunCompleted | e.RunFailed | e.RunCancelled | e.RunContinued:
    at = turn.journal.now()
    if isinstance(outcome, Cancelled):
        cancel = turn.state.cancel
        return e.RunCancelled(
            at=at,
            reason=None if cancel is None else cancel.reason,
            redo=outcome.redo or None,
            forced=outcome.forced or None,
        )
    if isinstance(outcome, Returned):
        assert workflow is not None
        try:
            return e.RunCompleted(at=at, result=await _result(turn, workflow, outcome))
        except PayloadError as error:
            return e.RunFailed(at=at, error=describe(error))
    if isinstance(outcome, Continues):
        assert workflow is not None
        try:
            return await continuing.continued(turn, workflow, outcome)
        except PayloadError as error:
            return e.RunFailed(at=at, error=describe(error))
    assert isinstance(outcome, Raised)
    return e.RunFailed(at=at, error=failure_of(outcome.error), redo=outcome.redo or None)


async def _result(turn: TurnContext, workflow: WorkflowDefinition, outcome: Returned) -> str:
    owner = f"workflow {workflow.name!r}"
    if outcome.value is STEP_HOOK_TIMEOUT:
        raise PayloadError(owner, "$", "STEP_HOOK_TIMEOUT is a mark, not a value")
    text, _ = workflow.result.round_trip(outcome.value)
    return await turn.values.put(text, owner)


def failure_of(error: BaseException) -> Failure:
    """An exception as recorded; a failed step keeps what it failed with as the cause."""
    failure = describe(error)
    if isinstance(error, StepFailed) and failure.cause is None:
        return replace(failure, cause=error.failure)
    return failure


async def note_waits(turn: TurnContext, replay: Replay) -> None:
    """Record what the run waits for from here on, and what it does not wait for any more."""
    state, journal, pending = turn.state, turn.journal, replay.pending
    for waiting in pending.values():
        command = waiting.command
        if isinstance(command, StartTimer) and command.id not in state.timers:
            journal.record(
                e.TimerStarted(
                    at=journal.now(), timer=command.id, name=command.name, due=command.due
                )
            )
    for timer in list(state.timers.values()):
        if timer.status == "started" and timer.id not in pending:
            journal.record(e.TimerCancelled(at=journal.now(), timer=timer.id, name=timer.name))
    for each in state.maps.values():
        if each.status == "started" and each.id not in pending:
            away = each.dispatched or None
            journal.record(e.MapEnded(at=journal.now(), map=each.id, name=each.name, left=away))
    dropped = [(step.id, step.order) for step in state.steps.values() if step.order]
    dropped = [(step, order) for step, order in dropped if step not in pending]
    for step in list(state.steps.values()):
        if step.status in ("started", "suspended", "retrying") and step.id not in pending:
            journal.record(
                e.StepCancelled(at=journal.now(), step=step.id, name=step.name, digest=step.digest)
            )
    await call_off(turn, dropped)
    await dispatched_maps.call_off(turn, dispatched_maps.called_off(turn))
    left = [
        row.hook_id
        for row in turn.rows.values()
        if hooks.is_open(turn, row) and not _is_waited(row.step or row.hook_id, pending)
    ]
    await hooks.close_all(turn, left)


def _is_waited(owner: str, pending: Container[str]) -> bool:
    """Whether code waits for the owner of a hook, or for the map that it is an item of."""
    return owner in pending or owner.partition("#")[0] in pending


async def suspend(turn: TurnContext, before: Alarm | None, note: Attention | None = None) -> None:
    """Leave the run waiting: events, then the timer, then the header."""
    await turn.journal.flush()
    await set_alarm(turn, before, turn.state.next_alarm())
    await noting.tell_parent(turn)
    await write_header(turn, note)


async def park(turn: TurnContext, reason: str, before: Alarm | None) -> None:
    """Leave the run waiting for input, which its workflow asks for by raising `Suspend`.

    What other branches of it wait for stays as it is: the code begins again from its top, and then
    it shows what of that is still wanted.
    """
    if turn.state.suspended is None:
        turn.journal.record(e.RunSuspended(at=turn.journal.now(), reason=reason))
    await suspend(turn, before)


async def set_alarm(turn: TurnContext, before: Alarm | None, after: Alarm | None) -> None:
    """Start the timer that wakes the run next, and stop the one before if it is over for good.

    One that may be needed again is left to fire: a turn that was overtaken in the meantime must not
    stop what its successor counts on, and a wake-up too many is harmless.
    """
    timers = turn.ports.timers
    if after is not None and (after != before or not turn.settled):
        await timers.start(turn.run_id, after.wait_id, after.arm, after.due)
    if before is not None and before not in set(turn.state.alarms()):
        await timers.cancel(turn.run_id, before.wait_id, before.arm)


async def hand_over(turn: TurnContext, before: Alarm | None) -> bool:
    """The turn is out of time: make all durable and wake the next one. Whether it was woken.

    It is not after too many turns that recorded nothing: the run is marked STUCK then.
    """
    idle = 0 if turn.journal.recorded else turn.idle + 1
    if idle > turn.settings.limits.idle_hops:
        await suspend(turn, before, _idle(turn, idle))
        return False
    await suspend(turn, before)
    # From the id of the message, not from what it says: a redelivery sends the same again, while
    # a second message of the same text is another cause.
    await turn.ports.queue.send(Continue(run_id=turn.run_id, cause=turn.message_id, idle=idle))
    return True


def _idle(turn: TurnContext, turns: int) -> Attention:
    reason = (
        f"{turns} turns one after the other ran out of time and recorded nothing; see the log of "
        "the worker, give its turns more time, and wake the run"
    )
    _LOG.error("run %s is stuck: %s", turn.run_id, reason)
    return Attention(kind="STUCK", reason=reason, since=turn.journal.now())


async def block(turn: TurnContext, reason: str, before: Alarm | None) -> None:
    """Note on the header that the run cannot go on with this code.

    What was decided outside is recorded all the same: the message that brought it is done with.
    """
    await turn.journal.flush()
    # What is due by now waits for other code: a timer for it would wake this code again and again.
    await set_alarm(turn, before, turn.state.next_alarm(after=turn.time))
    known = turn.header.attention
    if known is None or known.reason != reason:
        known = Attention(kind="BLOCKED", reason=reason, since=turn.journal.now())
    await write_header(turn, known, last_event=sent_until(turn))


def sent_until(turn: TurnContext) -> int:
    """The last event that the header of a run may name whose turn sends nothing.

    A turn that died may not have sent what it had begun. Its successors know by a header that lags,
    so that stays until one of them sends.
    """
    steps = [step.order for step in turn.state.steps.values()]
    maps = [each.order for each in turn.state.maps.values() if each.status == "started"]
    lags = any(order > turn.header.last_event for order in (*steps, *maps))
    return turn.header.last_event if lags else turn.state.last


async def write_header(
    turn: TurnContext, attention: Attention | None = None, *, last_event: int | None = None
) -> None:
    """Make the header agree with the log, up to an event. Writes nothing if it does."""
    await turn.outbox.send()
    header, state = turn.header, turn.state
    assert state.status is not None
    waits = () if state.terminal else state.waits()
    status = _STATUS[state.status]
    agreeing = replace(
        header,
        status=status,
        last_event=state.last if last_event is None else last_event,
        waiting=_shown(waits),
        waits_not_shown=max(len(waits) - SHOWN_WAITS, 0),
        attention=attention,
        result=state.result,
        error=state.error,
        retry=None,
        attributes=write_attributes(state.attributes) if state.attributes else None,
        continued_to=None if state.continued is None else state.continued.next,
        kept_until=_kept_until(turn, status),
        snapshot=state.snapshot,
        subscription=noting.glance(state.subscription, turn.types),
    )
    if agreeing != header:
        await _update(turn, replace(agreeing, updated_at=turn.ports.clock.now()))


def _kept_until(turn: TurnContext, status: RunStatus) -> Millis | None:
    """Until when an ended run is kept: as it was decided at its end, whatever is set meanwhile."""
    header, state = turn.header, turn.state
    if not state.terminal or state.subscription is not None:
        return None  # a subscription goes with its stream run
    if header.status.terminal and header.last_event == state.last:
        return header.kept_until
    return turn.settings.retention.kept_until(status, state.at)


def _shown(waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """The oldest waits, with the one among them that comes due first."""
    if len(waits) <= SHOWN_WAITS:
        return waits
    timed = [wait for wait in waits if wait.due is not None]
    first = min(timed, key=lambda wait: wait.due or 0, default=waits[0])
    shown = waits[:SHOWN_WAITS]
    return shown if first in shown else (*shown[:-1], first)


async def _update(turn: TurnContext, header: RunHeader) -> None:
    # Not over a note that came during this turn: who wrote it counts on the next turn to see it.
    if not await turn.ports.store.update_header(header, over=turn.header):
        raise Fenced(f"the header of run {turn.run_id!r} is further on, or was marked meanwhile")


def waits_for_nothing() -> Raised:
    """How a run ends whose workflow waits for something that nothing can bring about."""
    return Raised(
        UsageError(
            "the workflow waits for something that is no step, hook, timer or child, and none of those is "
            "left that could end the wait"
        )
    )
