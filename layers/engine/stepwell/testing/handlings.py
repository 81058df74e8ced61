"""Handlings of a recorded subscription, replayed: what the code of each signal comes to again.

for each in replay_handlings(definition, events):
    each.check()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepwell.core import events as e
from stepwell.core.definitions import StreamStepDefinition
from stepwell.core.records import Payload, is_reference
from stepwell.core.state import RunState
from stepwell.core.subscription import Subscription
from stepwell.engine.endings import Blocked, Outcome, Returned
from stepwell.engine.handling import handling_replay, left_by
from stepwell.errors import PayloadError
from stepwell.streams.lifecycle import Effects

_ENDS = (e.SignalHandled, e.SignalRetryScheduled, e.SignalParked)
_VALUES = ("payload", "checkpoint", "result", "input", "signals")


@dataclass(frozen=True, slots=True)
class ReplayedHandling:
    """One attempt to handle one signal: how its code ends now, and what the log says of its end.

    `end` is None where the log has none so far: the attempt is under way.
    """

    sequence: int
    before: Subscription
    outcome: Outcome | None
    end: e.SignalHandled | e.SignalRetryScheduled | e.SignalParked | None

    def check(self) -> None:
        """That the code takes the recorded way, to the recorded end."""
        where = f"signal {self.sequence}, attempt {self._attempt}"
        outcome, end = self.outcome, self.end
        assert not isinstance(outcome, Blocked), f"{where}: {outcome}"
        if isinstance(end, e.SignalHandled):
            assert isinstance(outcome, Returned), f"{where}: handled, its replay: {outcome}"
            told = _told(outcome.value, self.before)
            said = (end.status, end.reason, end.resume, end.checkpoint, end.result, _taken(end))
            assert told == said, f"{where}: the log says {said}, its replay {told}"
        elif end is None:
            assert outcome is None, f"{where}: it is under way, its replay: {outcome}"
        else:
            through = isinstance(outcome, Returned)
            assert not through, f"{where}: it failed, its replay returned: {outcome}"

    @property
    def _attempt(self) -> int:
        current = self.before.current
        return 0 if current is None else current.attempt


def _taken(end: e.SignalHandled) -> tuple[int, ...]:
    return end.acknowledged or ()


def _told(effects: Effects, known: Subscription) -> tuple[object, ...]:
    left = left_by(effects, known)
    taken = tuple(sorted(effects.acknowledged))
    kept: tuple[Payload | None, Payload | None] = (effects.checkpoint, effects.result)
    return (left.status, left.reason, left.resume, *kept, taken)


def replay_handlings(
    step: StreamStepDefinition,
    events: Sequence[e.Event],
    *,
    run_id: str = "replayed",
    before: int = 0,
) -> Iterator[ReplayedHandling]:
    """Replay each attempt of a log, which may begin with a snapshot behind `before` events.

    Nothing is performed. Left out are attempts with values that are kept elsewhere, and the one
    that a cancellation has reached.
    """
    state, taken = RunState(before), 0
    for number, event in enumerate(events):
        if isinstance(event, e.SignalTaken):
            taken = number
        if isinstance(event, _ENDS):
            yield from _replayed(step, state, events[taken:number], event, run_id)
        state.apply(event)
    known = state.subscription
    if known is not None and known.current is not None and not state.terminal:
        yield from _replayed(step, state, events[taken:], None, run_id)


def _replayed(
    step: StreamStepDefinition,
    state: RunState,
    part: Sequence[e.Event],
    end: e.SignalHandled | e.SignalRetryScheduled | e.SignalParked | None,
    run_id: str,
) -> Iterator[ReplayedHandling]:
    known, started = state.subscription, state.started
    assert known is not None
    assert known.current is not None
    assert started is not None
    whole = [*part] if end is None else [*part, end]
    if state.cancel is not None or _is_away(known.checkpoint) or any(map(_has_away, whole)):
        return
    if end is None and state.retry_due is not None:
        return  # nothing of the next attempt has happened
    try:
        replay = handling_replay(step, run_id, state, {}, grace=0)
    except PayloadError:
        assert isinstance(end, e.SignalParked), f"signal {known.current.sequence} does not fit"
        return
    replay.loop.now = part[0].at
    try:
        replay.run([started, *part], recorded=len(part) + 1)
        yield ReplayedHandling(known.current.sequence, known, replay.outcome, end)
    finally:
        replay.unwind()


def _has_away(event: e.Event) -> bool:
    return any(_is_away(getattr(event, name, None)) for name in _VALUES)


def _is_away(value: Payload | None) -> bool:
    return value is not None and is_reference(value)
