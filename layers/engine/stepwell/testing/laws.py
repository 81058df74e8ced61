"""Laws that every history obeys, as checks that a test can call on any run.

`check_run` reads a run from an environment and checks all of them. `check_history` takes the events
themselves. A broken law raises `AssertionError` saying which one, and where.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from stepwell.authoring.registry import registry
from stepwell.client import Recorded, RunHandle
from stepwell.core import events as e
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.failure import describe
from stepwell.core.records import Millis, Payload, RunHeader, RunStatus
from stepwell.core.state import RunState, fold
from stepwell.engine.replay import Cancelled, Outcome, Raised, Replay, Returned
from stepwell.testing.environment import Environment

_ENDS = (e.RunCompleted, e.RunFailed, e.RunCancelled)
_STEP_ENDS = (e.StepCompleted, e.StepFailed)
_STEP_WAITS = (e.StepRetryScheduled, e.StepSuspended, e.StepCancelled)
_DECISIONS = (e.HookReceived, e.HookExpired, e.HookClosed)
_STATUS = {
    "completed": RunStatus.COMPLETED,
    "failed": RunStatus.FAILED,
    "cancelled": RunStatus.CANCELLED,
    "running": RunStatus.SUSPENDED,
}


def check_run(env: Environment, run: RunHandle[Any]) -> None:
    """All laws, on a run that is at rest: no turn of it is under way or due."""
    recorded = env.history(run)
    check_numbers(recorded)
    header = env.get(run)
    events = [each.event for each in recorded]
    check_history(events, header, registry.workflow(header.workflow))
    if not header.status.terminal and header.attention is None:
        check_timer(events, env.next_timer(run))
        check_attempts(events, env.attempts(run))


def check_timer(events: Sequence[e.Event], due: Millis | None) -> None:
    """A run that waits for a time has a timer that wakes it by then."""
    alarm = fold(events).next_alarm()
    assert alarm is None or (due is not None and due <= alarm.due), f"{alarm}, timer: {due}"


def check_attempts(events: Sequence[e.Event], under_way: Set[int]) -> None:
    """A run that waits for a dispatched step has a message for it, or somebody who works on it."""
    for step in fold(events).steps.values():
        assert not step.order or step.order in under_way, f"nobody makes attempt of {step.id!r}"


def check_history(
    events: Sequence[e.Event],
    header: RunHeader | None = None,
    workflow: WorkflowDefinition | None = None,
) -> None:
    """The laws of a log by itself, of its header and of its replay, as far as those are given.

    Values of the events must be inline, as `Client.history` returns them.
    """
    check_order(events)
    check_outcomes(events)
    check_times(events)
    check_dispatches(events)
    check_folds(events)
    if header is not None:
        check_header(events, header)
    if workflow is not None and not (header is not None and header.attention is not None):
        check_replay(events, workflow, "a-run" if header is None else header.run_id)


def check_numbers(recorded: Sequence[Recorded]) -> None:
    """Events are numbered 1, 2, 3 … without gaps."""
    assert [each.number for each in recorded] == list(range(1, len(recorded) + 1))


def check_order(events: Sequence[e.Event]) -> None:
    """The first event starts the run; at most one ends it, and nothing follows that."""
    assert events, "a history has a first event"
    assert isinstance(events[0], e.RunStarted), f"the first event is {events[0].type}"
    ends = [n for n, event in enumerate(events, 1) if isinstance(event, _ENDS)]
    assert ends in ([], [len(events)]), f"events {ends} end the run, of {len(events)}"


def check_outcomes(events: Sequence[e.Event]) -> None:
    """Each step has at most one outcome, each hook one decision, each timer fires once."""
    for kinds, field in ((_STEP_ENDS, "step"), (_DECISIONS, "hook"), ((e.TimerFired,), "timer")):
        ids = [getattr(event, field) for event in events if isinstance(event, kinds)]
        twice = {identity for identity in ids if ids.count(identity) > 1}
        assert not twice, f"more than one {field} outcome: {sorted(twice)}"


def check_times(events: Sequence[e.Event]) -> None:
    """Time never runs backwards, and nothing that has a time happens before it."""
    expires: dict[str, Millis] = {}
    retries: dict[str, Millis] = {}
    last: Millis = 0
    for number, event in enumerate(events, 1):
        assert event.at >= last, f"event {number}: {event.at} is before {last}"
        last = event.at
        early: Millis = 0
        if isinstance(event, e.HookOpened) and event.expires_at is not None:
            expires[event.hook] = event.expires_at
        elif isinstance(event, e.HookExpired):
            early = expires.get(event.hook, 0)
        elif isinstance(event, e.TimerFired):
            early = event.due
        elif isinstance(event, e.StepRetryScheduled):
            early = retries.get(event.step, 0)
            retries[event.step] = event.due
        elif isinstance(event, (e.StepStarted, e.StepSuspended, *_STEP_ENDS)):
            early = retries.pop(event.step, 0)
        assert event.at >= early, f"event {number}: {event.type} at {event.at}, due at {early}"


def check_dispatches(events: Sequence[e.Event]) -> None:
    """A dispatched attempt comes to something before the next one, which has the same input."""
    open_attempts: set[str] = set()
    inputs: dict[str, Payload] = {}
    for number, event in enumerate(events, 1):
        if isinstance(event, e.StepStarted):
            assert event.step not in open_attempts, f"event {number}: two attempts at a time"
            if event.input is not None:
                open_attempts.add(event.step)
                first = inputs.setdefault(event.step, event.input)
                assert event.input == first, f"event {number}: the input has changed"
        elif isinstance(event, (*_STEP_ENDS, *_STEP_WAITS)):
            open_attempts.discard(event.step)


def check_folds(events: Sequence[e.Event]) -> None:
    """Folding a prefix and then the rest is folding all, also of events written and read back."""
    whole = _facts(fold(events))
    read = e.load_events(e.dump_events(events))
    assert list(read) == list(events), "events change when they are written and read"
    for cut in range(len(events) + 1):
        state = fold(events[:cut])
        assert state.last == cut
        for event in read[cut:]:
            state.apply(event)
        assert _facts(state) == whole, f"the fold depends on a cut after event {cut}"


def _facts(state: RunState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in RunState.__slots__}


def check_header(events: Sequence[e.Event], header: RunHeader) -> None:
    """The header says what the log says, and a run that waits has something to wait for."""
    if header.attention is not None:
        # What a blocked turn learned is not in the log, and the header keeps what it said before.
        assert header.last_event <= len(events)
        return
    state = fold(events)
    assert state.status is not None
    assert header.status is _STATUS[state.status], f"{header.status}, the log: {state.status}"
    assert header.last_event == len(events)
    assert (header.result, header.error) == (state.result, state.error)
    if state.terminal:
        assert header.waiting == (), "an ended run waits for nothing"
    else:
        assert header.waiting == state.waits()
        assert header.waiting, "the run waits, and nothing can wake it"


def check_replay(
    events: Sequence[e.Event], workflow: WorkflowDefinition, run_id: str = "a-run"
) -> list[str]:
    """Replaying all, and every prefix, asks for the same commands. Returns their ids, in order.

    Every prefix must ask for what the next event is about, without having ended before the whole
    does, and what it asks for must be the beginning of what the whole history asks for.
    """
    ended = isinstance(events[-1], _ENDS)
    body = events[:-1] if ended else events
    asked, outcome = _replayed(body, workflow, run_id)
    again, same = _replayed(body, workflow, run_id)
    assert again == asked, f"two replays differ: {asked}, {again}"
    told = _told(outcome, workflow)
    assert _told(same, workflow) == told
    if ended:
        _check_end(outcome, events[-1], workflow)
    else:
        assert outcome is None, f"the run waits, its replay ended: {outcome}"
    for cut in range(1, len(body)):
        before, early = _replayed(body[:cut], workflow, run_id)
        # When the code has ended, what is left open is closed before that is recorded; and what is
        # decided together is recorded together, also if the first of it ended the code.
        same_end = ended and before == asked and _told(early, workflow) == told
        assert early is None or same_end, f"the replay of the first {cut} events ended: {early}"
        assert before == asked[: len(before)], f"after {cut} events: {before}, of all {asked}"
        about = _subject(body[cut])
        assert about is None or about in before, f"after {cut} events nobody asked for {about!r}"
    return asked


def _replayed(
    events: Sequence[e.Event], workflow: WorkflowDefinition, run_id: str
) -> tuple[list[str], Outcome | None]:
    replay = Replay(run_id, workflow, fold(events), {})
    try:
        replay.run(events)
        return replay.asked, replay.outcome
    finally:
        replay.unwind()


def _subject(event: e.Event) -> str | None:
    """The step, hook or timer of the workflow that an event is about."""
    step: str | None = getattr(event, "step", None)
    if step is not None:
        return step
    found: str | None = getattr(event, "hook", None) or getattr(event, "timer", None)
    return found


def _check_end(outcome: Outcome | None, end: e.Event, workflow: WorkflowDefinition) -> None:
    told = _told(outcome, workflow)
    if isinstance(end, e.RunCompleted):
        assert told == ("returned", end.result), f"{told}, recorded: {end.result}"
    elif isinstance(end, e.RunCancelled):
        assert told == ("cancelled",), f"{told}, recorded: cancelled"
    else:
        assert isinstance(end, e.RunFailed)
        # A result that cannot be carried, or a wait for nothing, fails a run after its code.
        assert told[0] != "raised" or told[1:] == (end.error.type, end.error.message), f"{told}"


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
    assert outcome is None, f"blocked: {outcome.error}"
    return ("waiting",)
