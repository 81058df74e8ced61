"""Messages: what wakes a run. One queue group per run; rows and log decide what really happened.

Every message tells its cause from all others: the queue drops equal bodies sent within minutes, and
that must never swallow a message that matters. A message may arrive late,
twice, out of order or never.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from stepwell.core.records import Fork, GuardChange, Guards, Millis, Parent, Payload
from stepwell.core.signals import SentSignal, StreamKey


class _Message(BaseModel):
    # Bodies are outside data, and errors are logged.
    # Built on first use: a process sends and takes a few of these kinds.
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    run_id: str


class StartRun(_Message):
    """Begin a run. Sufficient by itself: the header is made from it if it is not there."""

    type: Literal["start"] = "start"
    workflow: str
    version: str
    input: Payload
    input_digest: str
    seed: str
    created_at: Millis
    idempotency_key: str | None = None
    tags: tuple[str, ...] = ()
    context: Payload | None = None
    forked_from: Fork | None = None
    guards: Guards | None = None
    parent: Parent | None = None
    continued_from: str | None = None
    stream_run: str | None = None


class HookDecided(_Message):
    """A hook was answered. Sufficient by itself: the turn decides the row if nobody has."""

    type: Literal["hook_decided"] = "hook_decided"
    hook_id: str
    decision_id: str
    payload: Payload
    decided_at: Millis
    actor: str | None = None


class TimerDue(_Message):
    """A wait's time came. Due by `due`, whatever the receiver's clock says."""

    type: Literal["timer_due"] = "timer_due"
    wait_id: str
    arm: int
    due: Millis


class StepReported(_Message):
    """A dispatched step's row has its outcome. `order` and `claim` say which attempt wrote it."""

    type: Literal["step_reported"] = "step_reported"
    step: str
    order: int
    claim: str


class InboxPut(_Message):
    """An entry for the run's inbox. Sufficient by itself: the turn puts the row if nobody has."""

    type: Literal["inbox"] = "inbox"
    entry_id: str
    key: str
    payload: Payload
    sent_at: Millis
    actor: str | None = None


class LookAgain(_Message):
    """Have code that waits for input look again; with a change, under other guards from now on."""

    type: Literal["look_again"] = "look_again"
    request_id: str
    change: GuardChange | None = None
    actor: str | None = None


class ChildReported(_Message):
    """A child has ended. `child_run` is the run, `last_event` the number of its last event."""

    type: Literal["child_reported"] = "child_reported"
    child: str
    child_run: str
    last_event: int


class ChildNoted(_Message):
    """A child says what it waits for, as of its event `order`; None: nothing in particular."""

    type: Literal["child_noted"] = "child_noted"
    child: str
    child_run: str
    order: int
    reason: str | None = None


class SignalsArrived(_Message):
    """Signals of its stream run up to number `until` are there for a subscription to look at."""

    type: Literal["signals"] = "signals"
    until: int


class MendSignal(_Message):
    """A parked signal of a subscription is to be handled again, or given up."""

    type: Literal["mend_signal"] = "mend_signal"
    request_id: str
    sequence: int
    action: Literal["redrive", "discard"]
    actor: str | None = None


class MapReported(_Message):
    """The rows of a dispatched map say something that its run waits for: `cause` says what."""

    type: Literal["map_reported"] = "map_reported"
    map: str
    order: int
    cause: str


class CancelRun(_Message):
    """Somebody wants the run cancelled; with `force`, without its code having a say."""

    type: Literal["cancel"] = "cancel"
    request_id: str
    reason: str | None = None
    actor: str | None = None
    force: bool = Field(default=False, exclude_if=lambda force: not force)


class ResumeRun(_Message):
    """A pause, by its request, is over. Sufficient by itself: the turn lifts it if nobody has."""

    type: Literal["resume"] = "resume"
    request_id: str
    pause: str


class RetryRun(_Message):
    """A run that ended with event `after` is to go on. Another end is none of its business."""

    type: Literal["retry"] = "retry"
    request_id: str
    after: int
    actor: str | None = None
    change: GuardChange | None = None


class DeleteRun(_Message):
    """A run that ended with event `after` is to be deleted. Another end is none of its business."""

    type: Literal["delete"] = "delete"
    request_id: str
    after: int
    actor: str | None = None


class Continue(_Message):
    """A turn stopped with work left. `cause` derives from the message that caused it.

    `idle` counts the turns in a row that stopped so and recorded nothing. It is left out while
    there are none, and so read also by code that does not know of it.
    """

    type: Literal["continue"] = "continue"
    cause: str
    idle: int = Field(default=0, ge=0, exclude_if=lambda idle: not idle)


class Wake(_Message):
    """A bare wake-up: look at the run. `cause` says why, uniquely."""

    type: Literal["wake"] = "wake"
    cause: str


Message = (
    StartRun
    | HookDecided
    | TimerDue
    | StepReported
    | MapReported
    | InboxPut
    | LookAgain
    | ChildReported
    | ChildNoted
    | SignalsArrived
    | MendSignal
    | CancelRun
    | ResumeRun
    | RetryRun
    | DeleteRun
    | Continue
    | Wake
)

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


class StepAttempt(_Message):
    """An attempt of a dispatched step, for the step queue. No message of a run.

    `order` is the number of the `StepStarted` that it is about, which holds name and input. It may
    arrive twice, late, or when nobody waits for it any more: the step's row tells.
    """

    type: Literal["step_attempt"] = "step_attempt"
    step: str
    name: str
    order: int


class MapItem(_Message):
    """An attempt of one item of a dispatched map, for the step queue. No message of a run.

    Sufficient by itself: `order` is the number of the `MapStarted` that it is about, and what that
    says is repeated here. `input` is the item's, and `item` its index or key; both are looked up in
    the shard's row where a lane takes one item after the other. It is not to be made before `due`.
    `fail_at` and `enough_at` are how many failures or results of the whole map its run waits for.
    `inbox` says that the run has one, which its steps may read, `retried` that it was. `stream_run`
    is the run's.
    """

    type: Literal["map_item"] = "map_item"
    map: str
    order: int
    name: str
    total: int
    index: int
    attempt: int = 1
    concurrency: int | None = None
    lane: int | None = None
    item: str | None = None
    input: Payload | None = None
    due: Millis | None = None
    fail_at: int | None = None
    enough_at: int | None = None
    options: str | None = None
    context: Payload | None = None
    workflow: str = ""
    guards: Guards | None = None
    inbox: bool = Field(default=False, exclude_if=lambda inbox: not inbox)
    retried: bool = Field(default=False, exclude_if=lambda retried: not retried)
    stream_run: str | None = None


#: What the step queue holds.
StepMessage = StepAttempt | MapItem


@cache
def _step_message() -> TypeAdapter[StepMessage]:
    return TypeAdapter(Annotated[StepMessage, Field(discriminator="type")])


class SignalSent(BaseModel):
    """A signal on its way to its stream run, for the signal queue. No message of a run.

    The group is the stream run; its consumer numbers signals in the order in which they come out.
    One that comes twice under one `signal_id` is one signal. `metadata` is a JSON object.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    type: Literal["signal"] = "signal"
    stream: str
    stream_run: str
    signal_id: str
    signal_type: str
    payload: Payload
    published_at: Millis
    metadata: Payload | None = None
    source_run_id: str | None = None
    due: Millis | None = None

    @classmethod
    def of(cls, key: StreamKey, signal: SentSignal, due: Millis | None = None) -> SignalSent:
        """The message that carries a signal to a stream run."""
        return cls(
            stream=key.stream,
            stream_run=key.run,
            signal_id=signal.signal_id,
            signal_type=signal.type,
            payload=signal.payload,
            published_at=signal.published_at,
            metadata=signal.metadata,
            source_run_id=signal.source_run_id,
            due=due,
        )

    @property
    def key(self) -> StreamKey:
        """The stream run that it is for."""
        return StreamKey(self.stream, self.stream_run)

    @property
    def signal(self) -> SentSignal:
        """The signal that it carries."""
        return SentSignal(
            signal_id=self.signal_id,
            type=self.signal_type,
            payload=self.payload,
            published_at=self.published_at,
            metadata=self.metadata,
            source_run_id=self.source_run_id,
        )


def dump_signal(signal: SignalSent) -> str:
    """A signal as the body of a queue message."""
    return signal.model_dump_json(exclude_none=True)


def load_signal(body: str | bytes) -> SignalSent:
    """The signal in a body of the signal queue. Raises `pydantic.ValidationError`."""
    return SignalSent.model_validate_json(body)


def load_attempt(body: str | bytes) -> StepMessage:
    """The attempt in a body of the step queue. Raises `pydantic.ValidationError`."""
    return _step_message().validate_json(body)


def dump_message(message: Message | StepMessage) -> str:
    """A message as the body of a queue message."""
    return message.model_dump_json(exclude_none=True)


def load_message(body: str | bytes) -> Message:
    """The message in a queue body. Raises `pydantic.ValidationError` on anything else."""
    return _MESSAGE.validate_json(body)
