"""Laws of the steps in a log: attempts, entries and outcomes, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.core import events as e
from stepwell.core.records import Payload

_ENDS = (e.StepCompleted, e.StepFailed)
_WAITS = (e.StepRetryScheduled, e.StepSuspended, e.StepCancelled)
_STEPS = (e.StepStarted, *_ENDS, *_WAITS)
_StepEvent = (
    e.StepStarted
    | e.StepCompleted
    | e.StepFailed
    | e.StepRetryScheduled
    | e.StepSuspended
    | e.StepCancelled
)


@dataclass(slots=True)
class _Line:
    """What the events of one step came to so far.

    `spent` counts the attempts that are over or begun, `highest` is the highest attempt of all.
    """

    name: str
    digest: str
    spent: int = 0
    highest: int = 0
    entries: int = 0
    failed: int = 0
    started: e.StepStarted | None = None
    dispatched: bool = False
    ended: str = ""


def check_steps(events: Sequence[e.Event]) -> None:
    """Each step goes through its attempts and entries in order, to one end, and is one step.

    Attempts never go down, and fail at most once each; after a start comes an outcome of the same
    attempt; a dispatched step has no outcome without a start; entries count up by one; nothing
    follows the end; name and digest stay.
    """
    lines: dict[str, _Line] = {}
    for number, event in enumerate(events, 1):
        if isinstance(event, _STEPS):
            where = f"event {number}: {event.type} of step {event.step!r}"
            line = lines.get(event.step)
            if line is None:
                assert not isinstance(event, e.StepCancelled), f"{where}: nobody knew of it"
                line = lines[event.step] = _Line(event.name, event.digest)
            _check_line(line, event, where)
            _follow(line, event)


def _check_line(line: _Line, event: _StepEvent, where: str) -> None:
    same = (line.name, line.digest) == (event.name, event.digest)
    assert same, f"{where}: {event.name!r} of {event.digest}, was {line.name!r} of {line.digest}"
    assert not line.ended, f"{where}: after its {line.ended}"
    if isinstance(event, e.StepCancelled):
        return
    assert event.attempt >= line.highest, f"{where}: attempt {event.attempt} after {line.highest}"
    if isinstance(event, e.StepStarted):
        # An item of a map may have had attempts before its run took it over.
        taken_over = not line.highest and event.input is not None and "#" in event.step
        allowed = {event.attempt if taken_over else line.spent + 1}
    elif line.dispatched:
        assert line.started is not None, f"{where}: attempt {event.attempt} was never dispatched"
        allowed = {line.spent}
    elif line.started is not None:
        # One that was begun may have died with a message that was not delivered again.
        allowed = {line.spent, line.spent + 1}
    else:
        allowed = {line.spent + 1}
    assert event.attempt in allowed, f"{where}: attempt {event.attempt}, not one of {allowed}"
    over = line.failed and event.attempt <= line.failed
    assert not over, f"{where}: attempt {event.attempt} has failed before"
    if isinstance(event, e.StepSuspended):
        assert event.entry == line.entries + 1, f"{where}: entry {event.entry} after {line.entries}"


def _follow(line: _Line, event: _StepEvent) -> None:
    line.started = None
    if isinstance(event, (*_ENDS, e.StepCancelled)):
        line.ended = event.type
    elif isinstance(event, e.StepStarted):
        line.spent = event.attempt
        line.started = event
        line.dispatched = event.input is not None
    elif isinstance(event, e.StepRetryScheduled):
        line.spent = line.failed = event.attempt
    else:
        line.spent = event.attempt - 1
        line.entries = event.entry
    if not isinstance(event, e.StepCancelled):
        line.highest = event.attempt


def check_dispatches(events: Sequence[e.Event]) -> None:
    """A dispatched attempt comes to something before the next one, which has the same input."""
    open_attempts: set[str] = set()
    inputs: dict[str, Payload] = {}
    for number, event in enumerate(events, 1):
        if isinstance(event, e.StepStarted):
            where = f"event {number}: StepStarted of step {event.step!r}"
            assert event.step not in open_attempts, f"{where}: two attempts at a time"
            if event.input is not None:
                open_attempts.add(event.step)
                first = inputs.setdefault(event.step, event.input)
                assert event.input == first, f"{where}: the input has changed"
        elif isinstance(event, (*_ENDS, *_WAITS)):
            open_attempts.discard(event.step)
