"""The log that a fork begins with: a function of another run's log and of what was asked. Pure.

Outcomes are copied as they are, so that code comes to where it was. What was still open there is
left out, and begins anew: steps that had not ended, dispatched maps with all that their items came
to, hooks without an answer, timers. A cancel is left out with all that came after it.
Code that has started a child knows so, and may have gone on since: where the child had not ended,
the fork starts one of its own there. Earlier lives of a run that was retried are copied whole, for
the retry has sorted out what is left of them. A last event, `RunForked`, says where all of it comes
from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stepwell.core import events as e
from stepwell.core.parts import MapState
from stepwell.core.records import Fork, Millis, Payload
from stepwell.core.signals import run_id_of_child
from stepwell.core.state import RunState, fold

#: What ends a run: a fork does not begin with it.
ENDS = (e.RunCompleted, e.RunFailed, e.RunCancelled, e.RunContinued)
#: What begins anew if it was open, and is of no use if it was not.
_NOT_COPIED = (
    e.StepStarted,
    e.StepRetryScheduled,
    e.StepSuspended,
    e.StepCancelled,
    e.HookOpened,
    e.HookNotifyFailed,
    e.HookClosed,
    e.TimerStarted,
    e.TimerCancelled,
    e.CancelRequested,
)


def last_copied(events: Sequence[e.Event], at: int | None) -> int:
    """The number of the last event that a fork at a place copies.

    No end is copied, and no cancel with what the code did knowing of it.
    """
    last = len(events) if at is None else at
    while last and isinstance(events[last - 1], (*ENDS, e.RunDeleted)):
        last -= 1
    for number in range(_begun(events[:last]), last):
        if isinstance(events[number], e.CancelRequested):
            return number
    return last


def editable(event: e.Event) -> bool:
    """Whether the value of an event may be another one in a fork."""
    return isinstance(event, e.StepCompleted | e.HookReceived)


def read_edits(text: str | None) -> dict[int, Payload]:
    """The values that stand in events instead, by number."""
    return (
        {} if text is None else {int(number): value for number, value in json.loads(text).items()}
    )


def write_edits(edits: Mapping[int, Payload]) -> str:
    """What `read_edits` reads; equal for equal edits."""
    return json.dumps({str(number): edits[number] for number in sorted(edits)})


def copied(
    source: Sequence[e.Event],
    fork: Fork,
    run_id: str,
    *,
    input: Payload,
    edits: Mapping[int, Payload],
    at: Millis,
) -> list[e.Event]:
    """The log of the fork `run_id`, made at a time. `IndexError` if the source is too short."""
    if len(source) < fork.event:
        raise IndexError(f"event {fork.event} of {len(source)}")
    part = source[: fork.event]
    state = fold(part)
    begun = _begun(part)
    found: list[e.Event] = []
    for number, event in enumerate(part, 1):
        if number <= begun or _stays(event, state):
            found.append(_owned(_edited(event, edits.get(number)), number, state, run_id))
    assert isinstance(found[0], e.RunStarted)
    found[0] = replace(found[0], input=input)
    return [*found, e.RunForked(at=at, source=fork.run_id, event=fork.event, actor=fork.actor)]


#: A fork of a fork is one of a run that was begun with its copies.
_BEGINS = (e.RunStarted, e.RunRetried, e.RunForked)


def _begun(events: Sequence[e.Event]) -> int:
    return max((n for n, each in enumerate(events, 1) if isinstance(each, _BEGINS)), default=0)


def _stays(event: e.Event, state: RunState) -> bool:
    known = _map_of(event, state)
    if known is not None and known.dispatched:
        if not known.told:
            return False
        if isinstance(event, e.StepStarted):
            # With it an item that the map has handed over is a step of the run.
            return _ended(state, event.step)
    if isinstance(event, _NOT_COPIED):
        return False
    if isinstance(event, e.HookExpired | e.HookFailed):
        step = getattr(event, "step", None)
        return step is None or (step in state.steps and _ended(state, step))
    if isinstance(event, e.RunSuspended):
        return state.suspended is not event
    return True


def _owned(event: e.Event, number: int, state: RunState, run_id: str) -> e.Event:
    """The event; where it starts a child that has not ended, of a child that is the fork's own."""
    if not isinstance(event, e.ChildStarted):
        return event
    child = state.children.get(event.child)
    if child is None or not child.open or child.order != number:
        return event
    generation = state.lives.child_generation(child.id)
    return replace(
        event, run_id=run_id_of_child(run_id, child.id, generation, event.name, event.stream_run)
    )


def _map_of(event: e.Event, state: RunState) -> MapState | None:
    """The map that an event is about, or that the step is an item of that it is about."""
    step: str | None = getattr(event, "step", None)
    name = getattr(event, "map", None) if step is None else step.partition("#")[0]
    return None if name is None else state.maps.get(name)


def _ended(state: RunState, step: str) -> bool:
    return state.steps[step].status in ("completed", "failed")


def _edited(event: e.Event, value: Payload | None) -> e.Event:
    if isinstance(event, e.StepCompleted):
        # What it streamed stays with the run that it was copied from.
        return replace(event, result=event.result if value is None else value, output=0)
    if isinstance(event, e.HookReceived) and value is not None:
        return replace(event, payload=value)
    return event
