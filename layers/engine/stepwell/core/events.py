"""Events: what happened to a run, in the past tense. Frozen, and the only truth about it.

A run's events are numbered 1, 2, 3 … without gaps. The number is the event's place in the log and
is not repeated inside it. `at` is milliseconds since the epoch; it never goes backwards in a log.

Adding an event: a class here, a branch in `core.state`, and it is part of `Event`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from stepwell.core.child_events import ChildCancelRequested, ChildEnded, ChildStarted
from stepwell.core.fan_out import OnError
from stepwell.core.records import Guards, Millis, Payload
from stepwell.core.stream_events import (
    ChildWaits,
    InboxPolled,
    SignalDiscarded,
    SignalEmitted,
    SignalHandled,
    SignalParked,
    SignalRedriven,
    SignalRetryScheduled,
    SignalsHeld,
    SignalTaken,
    StreamEvent,
    SubscriptionSnapshot,
)
from stepwell.errors import Failure

__all__ = [
    "ChildCancelRequested",
    "ChildEnded",
    "ChildStarted",
    "ChildWaits",
    "InboxPolled",
    "SignalDiscarded",
    "SignalEmitted",
    "SignalHandled",
    "SignalParked",
    "SignalRedriven",
    "SignalRetryScheduled",
    "SignalTaken",
    "SignalsHeld",
    "SubscriptionSnapshot",
]

#: What ended a step's last attempt: an error of its body, its timeout, the death of its process, or
#: a guard that did not let it pass.
FailureReason = Literal["error", "timeout", "interrupted", "guard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The first event of every run; derived from the header.

    `stream_run` is the stream run that it is about, for a stream workflow and its subscriptions.
    """

    at: Millis
    workflow: str
    version: str
    input: Payload
    seed: str
    context: Payload | None = None
    guards: Guards | None = None
    stream_run: str | None = None
    type: Literal["RunStarted"] = "RunStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """An attempt began. Written only where attempts must be counted before they end.

    With `input` it is dispatched: made elsewhere, from this event alone, and reported back. Then
    `options` is what its call changed of the step's declaration (`core.overrides`).
    `context` is the run's context as of the step's call, None where the run has none.
    """

    at: Millis
    step: str
    name: str
    digest: str
    attempt: int
    input: Payload | None = None
    options: str | None = None
    context: Payload | None = None
    type: Literal["StepStarted"] = "StepStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCompleted:
    """A step has its result. `output` counts the chunks it streamed.

    `guard` names the guard that gave the result in place of the body, or of what the body gave.
    """

    at: Millis
    step: str
    name: str
    digest: str
    attempt: int
    result: Payload
    output: int = 0
    guard: str | None = None
    type: Literal["StepCompleted"] = "StepCompleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed:
    """A step failed for good."""

    at: Millis
    step: str
    name: str
    digest: str
    attempt: int
    error: Failure
    reason: FailureReason = "error"
    type: Literal["StepFailed"] = "StepFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetryScheduled:
    """An attempt failed; the next one is due at `due`."""

    at: Millis
    step: str
    name: str
    digest: str
    attempt: int
    error: Failure
    due: Millis
    type: Literal["StepRetryScheduled"] = "StepRetryScheduled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSuspended:
    """A step waits in its middle: for a hook, or for what `reason` says if it has one.

    `attempt` is the attempt that waits, `entry` counts the step's entries, `output` the chunks put
    out so far, `save_id` names the checkpoint that this entry saved last, None if it saved none.
    """

    at: Millis
    step: str
    name: str
    digest: str
    attempt: int
    entry: int
    output: int = 0
    save_id: str | None = None
    reason: str | None = None
    type: Literal["StepSuspended"] = "StepSuspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCancelled:
    """Nobody waits for the step any more; it will not be tried or entered again."""

    at: Millis
    step: str
    name: str
    digest: str
    type: Literal["StepCancelled"] = "StepCancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStarted:
    """A step goes over `total` items. Each of them is a step `<map>#<index or key>`.

    With `inputs` it is dispatched: its items are in blocks, one for each shard, and made elsewhere;
    the log knows of one only if it has been handed over, as one that waits is. `digest` is of all
    their inputs, `options` what the call changed of the step's declaration.
    """

    at: Millis
    map: str
    name: str
    total: int
    digest: str | None = None
    inputs: tuple[Payload, ...] | None = None
    concurrency: int | None = None
    on_error: OnError | None = None
    min_successful: int | None = None
    tolerated_failures: int | None = None
    options: str | None = None
    context: Payload | None = None
    type: Literal["MapStarted"] = "MapStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapEnded:
    """Nobody waits for the map any more: it has its outcomes, or is not needed.

    Written when a turn ends after that; a map that ends in the run's last turn has none. The end of
    a dispatched map has `outcomes`, in blocks (`core.map_outcomes`), unless nobody waits for them;
    `left` says that some of its items may still be made.
    """

    at: Millis
    map: str
    name: str
    outcomes: tuple[Payload, ...] | None = None
    left: bool | None = None
    type: Literal["MapEnded"] = "MapEnded"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOpened:
    """A hook row exists and `on_created` has been called with its token.

    `step` is the step that holds the hook, None at workflow level; `question` what it asks.
    """

    at: Millis
    hook: str
    name: str
    step: str | None = None
    expires_at: Millis | None = None
    due_at: Millis | None = None
    question: str | None = None
    type: Literal["HookOpened"] = "HookOpened"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookNotifyFailed:
    """An attempt to call `on_created` of a workflow's hook failed; the next one is due at `due`."""

    at: Millis
    hook: str
    name: str
    attempt: int
    error: Failure
    due: Millis
    type: Literal["HookNotifyFailed"] = "HookNotifyFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReceived:
    """The hook was answered."""

    at: Millis
    hook: str
    name: str
    decision_id: str
    payload: Payload
    step: str | None = None
    actor: str | None = None
    type: Literal["HookReceived"] = "HookReceived"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookExpired:
    """The hook's deadline passed first."""

    at: Millis
    hook: str
    name: str
    step: str | None = None
    type: Literal["HookExpired"] = "HookExpired"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailed:
    """`on_created` failed for good, so the hook ended with that error."""

    at: Millis
    hook: str
    name: str
    error: Failure
    type: Literal["HookFailed"] = "HookFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookClosed:
    """Nobody waits for the hook any more: its step, its branch or its run ended."""

    at: Millis
    hook: str
    name: str
    step: str | None = None
    type: Literal["HookClosed"] = "HookClosed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerStarted:
    """The run waits for a time. Written when a turn ends with the timer still to come."""

    at: Millis
    timer: str
    name: str
    due: Millis
    type: Literal["TimerStarted"] = "TimerStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The time came; never before `due`."""

    at: Millis
    timer: str
    name: str
    due: Millis
    type: Literal["TimerFired"] = "TimerFired"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCancelled:
    """A started timer is not waited for any more."""

    at: Millis
    timer: str
    name: str
    type: Literal["TimerCancelled"] = "TimerCancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMarked:
    """The code passed a patch with nothing recorded ahead of it: this run takes the new way."""

    at: Millis
    patch: str
    type: Literal["PatchMarked"] = "PatchMarked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributesSet:
    """The code set attributes of the run: a JSON object by name; null takes one away."""

    at: Millis
    attributes: Payload
    type: Literal["AttributesSet"] = "AttributesSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxReceived:
    """An entry of the inbox, which the run sees from here on.

    One that is `first` was there before the workflow began, which begins with it.
    """

    at: Millis
    entry: str
    key: str
    payload: Payload
    actor: str | None = None
    first: bool | None = None
    type: Literal["InboxReceived"] = "InboxReceived"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSuspended:
    """The workflow raised `Suspend`. It begins again from its top once there is input."""

    at: Millis
    reason: str
    type: Literal["RunSuspended"] = "RunSuspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequested:
    """Somebody had what waits for input look again, whether there is any or not."""

    at: Millis
    request_id: str
    actor: str | None = None
    type: Literal["LookRequested"] = "LookRequested"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardsReplaced:
    """The steps of the run have other guards from here on; None: they have none."""

    at: Millis
    request_id: str
    guards: Guards | None = None
    actor: str | None = None
    type: Literal["GuardsReplaced"] = "GuardsReplaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody asked for the run to be cancelled; the workflow is told once."""

    at: Millis
    request_id: str
    reason: str | None = None
    actor: str | None = None
    type: Literal["CancelRequested"] = "CancelRequested"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompleted:
    """The workflow returned."""

    at: Millis
    result: Payload
    type: Literal["RunCompleted"] = "RunCompleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed:
    """The workflow raised. `redo` names what a retry does again, None for nothing in particular."""

    at: Millis
    error: Failure
    redo: tuple[str, ...] | None = None
    type: Literal["RunFailed"] = "RunFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled:
    """The workflow ended by its cancellation; `redo` as with `RunFailed`.

    `forced` says that it ended without its code, None that it did not.
    """

    at: Millis
    reason: str | None = None
    redo: tuple[str, ...] | None = None
    forced: bool | None = None
    type: Literal["RunCancelled"] = "RunCancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRetried:
    """A run that had failed or was cancelled goes on; what it has to do again is forgotten."""

    at: Millis
    request_id: str
    actor: str | None = None
    type: Literal["RunRetried"] = "RunRetried"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeleted:
    """A run that had ended is deleted: whoever finds this goes on until nothing is left of it."""

    at: Millis
    request_id: str
    actor: str | None = None
    type: Literal["RunDeleted"] = "RunDeleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSuperseded:
    """What a step came to before a retry is not used: the code gives it another input now."""

    at: Millis
    step: str
    name: str
    type: Literal["StepSuperseded"] = "StepSuperseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunForked:
    """All events before this one are copies of another run's, of those up to its number `event`."""

    at: Millis
    source: str
    event: int
    actor: str | None = None
    type: Literal["RunForked"] = "RunForked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContinued:
    """The workflow goes on as a new run, `next`, which begins from this event and the header."""

    at: Millis
    next: str
    version: str
    input: Payload
    digest: str
    context: Payload | None = None
    type: Literal["RunContinued"] = "RunContinued"


Event = (
    RunStarted
    | StepStarted
    | StepCompleted
    | StepFailed
    | StepRetryScheduled
    | StepSuspended
    | StepCancelled
    | MapStarted
    | MapEnded
    | HookOpened
    | HookNotifyFailed
    | HookReceived
    | HookExpired
    | HookFailed
    | HookClosed
    | TimerStarted
    | TimerFired
    | TimerCancelled
    | PatchMarked
    | AttributesSet
    | InboxReceived
    | RunSuspended
    | LookRequested
    | GuardsReplaced
    | ChildStarted
    | ChildCancelRequested
    | ChildEnded
    | CancelRequested
    | RunCompleted
    | RunFailed
    | RunCancelled
    | RunRetried
    | RunDeleted
    | StepSuperseded
    | RunForked
    | RunContinued
    | StreamEvent
)


@cache
def _events() -> TypeAdapter[list[Event]]:
    # On first use: compiling it takes longer than importing all the rest, and a client that only
    # starts runs and answers hooks never needs it.
    return TypeAdapter(list[Annotated[Event, Field(discriminator="type")]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One conditional write to a log: consecutive events, the first one numbered `first`.

    `turn` and `number` say who wrote it, so that a repeated write recognises itself.
    """

    first: int
    turn: str
    number: int
    events: tuple[Event, ...]

    @property
    def last(self) -> int:
        """The number of the commit's last event."""
        return self.first + len(self.events) - 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event of a history, with its number."""

    number: int
    event: Event


def dump_events(events: Sequence[Event]) -> bytes:
    """Events as JSON. Fields without a value are left out."""
    # By the serializer itself: what wraps it costs nearly as much as it does, for each commit.
    return _events().serializer.to_json(list(events), exclude_none=True)


def load_events(data: bytes | str) -> tuple[Event, ...]:
    """The events that `dump_events` wrote. Raises `pydantic.ValidationError` on anything else."""
    return tuple(_events().validate_json(data))
