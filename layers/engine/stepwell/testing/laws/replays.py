"""Laws of replaying a log: the code takes the same way, wherever it is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.core import events as e
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.failure import describe
from stepwell.core.records import Payload
from stepwell.core.state import fold
from stepwell.engine.child_calls import cancel_id
from stepwell.engine.endings import (
    Blocked,
    Cancelled,
    Continues,
    Outcome,
    Parked,
    Raised,
    Returned,
)
from stepwell.engine.past import subject
from stepwell.engine.replay import Replay
from stepwell.errors import DefinitionError, PayloadError
from stepwell.testing.laws.log import ENDS, cuts

_OPEN_STEPS = ("started", "suspended", "retrying")


@dataclass(frozen=True, slots=True)
class _Pass:
    """One replay: what it asked for, in order; what of that has no outcome; how it ended.

    `epoch` says from which event on the code has begun again, 0 if it did not.
    """

    epoch: int
    asked: list[str]
    pending: frozenset[str]
    ended: bool
    told: tuple[Payload, ...]


def check_replay(
    events: Sequence[e.Event],
    workflow: WorkflowDefinition,
    run_id: str = "a-run",
    *,
    at_rest: bool = True,
) -> list[str]:
    """Replaying all, and every prefix, asks for the same commands. Returns their ids, in order.

    The whole asks for nothing new: it ends as the log says, or waits for just what the log waits
    for. Every prefix must ask for what the next event is about, without having ended before the
    whole does, and what it asks for must be the beginning of what the whole history asks for. Of a
    run that is not `at_rest`, what it does next may not be in the log yet. Of a run that was
    retried, or forked, this holds of its last life: its code may be another since then.
    """
    recorded_end = isinstance(events[-1], ENDS)
    body = events[:-1] if recorded_end else events
    whole = _replayed(body, workflow, run_id)
    again = _replayed(body, workflow, run_id)
    assert again == whole, f"two replays differ: {whole}, {again}"
    if recorded_end:
        _check_end(whole, events[-1])
    elif at_rest:
        _check_waits(whole, body)
    began = _last_beginning(body)
    for cut in cuts(len(body)):
        if began <= cut < len(body):
            _check_cut(_replayed(body[:cut], workflow, run_id), whole, body, cut)
    return whole.asked


def _last_beginning(body: Sequence[e.Event]) -> int:
    begins = (e.RunStarted, e.RunRetried, e.RunForked)
    return max(number for number, event in enumerate(body, 1) if isinstance(event, begins))


def _replayed(events: Sequence[e.Event], workflow: WorkflowDefinition, run_id: str) -> _Pass:
    state = fold(events)
    try:
        replay = Replay(run_id, workflow, state, {})
    except (PayloadError, DefinitionError) as error:  # its input: such a run fails when it begins
        return _Pass(0, [], frozenset(), True, _told(Raised(error), workflow))
    try:
        replay.run(events)
        return _Pass(
            state.epoch,
            replay.asked,
            frozenset(replay.pending),
            replay.outcome is not None and not isinstance(replay.outcome, Parked),
            _told(replay.outcome, workflow),
        )
    finally:
        replay.unwind()


def _check_waits(whole: _Pass, body: Sequence[e.Event]) -> None:
    """A run at rest waits for what it has asked for, and for nothing else."""
    assert not whole.ended, f"the run waits, its replay ended: {whole.told}"
    state = fold(body)
    if state.suspended is not None:
        suspended = ("suspended", state.suspended.reason)
        assert whole.told == suspended, f"the log says {suspended}, its replay: {whole.told}"
        return
    assert whole.told == ("waiting",), f"the log says nothing of {whole.told}"
    waits = {step.id for step in state.steps.values() if step.status in _OPEN_STEPS}
    waits |= {hook.id for hook in state.hooks.values() if hook.open and hook.step is None}
    waits |= {each.id for each in state.maps.values() if each.status == "started"}
    waits |= {timer.id for timer in state.timers.values() if timer.status == "started"}
    # The log tells of a child that it is open, not whether the code waits for it now.
    children = {child.id for child in state.open_children()}
    new, left = sorted(whole.pending - waits - children), sorted(waits - whole.pending)
    assert not new, f"the replay of all {len(body)} events asks for something new: {new}"
    assert not left, f"the log waits for what the replay does not wait for: {left}"


def _check_cut(part: _Pass, whole: _Pass, body: Sequence[e.Event], cut: int) -> None:
    if part.epoch != whole.epoch:
        return  # with other input the code may have gone another way
    before = part.asked
    # When the code has ended, what is left open is closed before that is recorded; and what is
    # decided together is recorded together, also if the first of it ended the code.
    same_end = whole.ended and before == whole.asked and part.told == whole.told
    # A cancel that was recorded together with what came before goes before going on as a new run.
    cancelled = any(isinstance(event, e.CancelRequested) for event in body[cut:])
    same_end |= part.told[0] == "continued" and cancelled
    ended = f"the replay of the first {cut} events ended: {part.told}"
    assert not part.ended or same_end, ended
    same = before == whole.asked[: len(before)]
    assert same, f"after {cut} events: {before}, of all {whole.asked}"
    about = _subject(body[cut])
    past = {subject(event) for event in body[: whole.epoch]}
    asked = about is None or about in before or about in past
    # Of items of a dispatched map that it asked for, a run may hear without asking for each.
    asked |= str(about).partition("#")[0] in before
    assert asked, f"event {cut + 1}: {body[cut].type} of {about!r}, and nobody had asked for it"


def _subject(event: e.Event) -> str | None:
    """The step, map, hook, timer or child of the workflow that an event is about."""
    if isinstance(event, e.ChildCancelRequested):
        return cancel_id(event.child)
    for kind in ("step", "map", "hook", "timer", "child"):
        found: str | None = getattr(event, kind, None)
        if found is not None:
            return found
    return None


def _check_end(whole: _Pass, end: e.Event) -> None:
    told = whole.told
    if isinstance(end, e.RunCompleted):
        assert told == ("returned", end.result), f"{told}, recorded: {end.result}"
    elif isinstance(end, e.RunCancelled):
        if end.forced:
            return  # whatever the code would have done
        assert told == ("cancelled",), f"{told}, recorded: cancelled"
    elif isinstance(end, e.RunContinued):
        assert told == ("continued", end.input), f"{told}, recorded: {end}"
    else:
        assert isinstance(end, e.RunFailed)
        # A result that cannot be carried, or a wait for nothing, fails a run after its code.
        failed = (end.error.type, end.error.message)
        assert told[0] != "raised" or told[1:] == failed, f"{told}, recorded: {failed}"


def _told(outcome: Outcome | None, workflow: WorkflowDefinition) -> tuple[Payload, ...]:
    if isinstance(outcome, Returned):
        try:
            return ("returned", workflow.result.round_trip(outcome.value)[0])
        except Exception as error:
            return ("unfit", str(error))
    if isinstance(outcome, Raised):
        failure = describe(outcome.error)
        return ("raised", failure.type, failure.message)
    if isinstance(outcome, Cancelled):
        return ("cancelled",)
    if isinstance(outcome, Parked):
        return ("suspended", outcome.reason)
    if isinstance(outcome, Continues):
        return ("continued", outcome.input)
    assert not isinstance(outcome, Blocked), f"blocked: {outcome.error}"
    return ("waiting",)
