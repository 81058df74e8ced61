"""What requests and responses look like: the source of the OpenAPI document.

Responses are made by `stepwell.shapes` and checked against these; a response that does not fit is
a mistake here, so it ends as an error of ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stepwell.core.records import HookStatus, RunStatus

Tag = Annotated[str, Field(max_length=1_000)]
#: Text as the shapes write it: parsing it would write it otherwise.
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StartRequest(_Model):
    """What a run is started with."""

    input: dict[str, Any] = Field(
        default={}, description="The workflow's arguments by name; fits its `input_schema`."
    )
    tags: list[Tag] = Field(default=[], max_length=50, description="Remarks kept with the run.")
    context: Any = Field(
        default=None, description="What the run's context is at first, where its workflow has one."
    )


class CancelRequest(_Model):
    """Why a run is cancelled."""

    reason: str | None = Field(default=None, max_length=1_000, description="For the record.")


class InboxRequest(_Model):
    """An entry for a run's inbox."""

    key: str = Field(min_length=1, max_length=256, description="What the run looks it up by.")
    value: Any = Field(default=None, description="Any JSON.")
    entry_id: str | None = Field(
        default=None, min_length=1, max_length=256, description="The same id is the same entry."
    )


class SignalRequest(_Model):
    """A signal for a stream run."""

    type: str = Field(min_length=1, max_length=128, description="What kind of signal it is.")
    payload: Any = Field(
        default={}, description="Any JSON; fits what the stream's steps take of this type."
    )
    metadata: dict[str, Any] | None = Field(default=None, description="Carried along.")
    idempotency_key: str | None = Field(
        default=None, min_length=1, max_length=256, description="The same key is the same signal."
    )


class SignalsRequest(_Model):
    """Signals for a stream run, in their order."""

    signals: list[SignalRequest] = Field(min_length=1, max_length=100)


class MendRequest(_Model):
    """What becomes of a parked signal."""

    action: Literal["redrive", "discard"]


class Flaw(_Model):
    """One thing that is wrong: with the body at a place, or with a parameter."""

    message: str
    pointer: str | None = Field(default=None, description="JSON pointer into what was sent.")
    parameter: str | None = Field(default=None, description="Name of the parameter.")


class Problem(BaseModel):
    """Why a request was not carried out, by RFC 9457. `code` tells programs what to do."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = Field(description="Where the code is explained.", examples=["docs#run_not_found"])
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = Field(
        default=None, description="What was asked for; left out where it would hold a token."
    )
    request_id: str | None = None
    run_id: str | None = Field(default=None, description="The run that stands in the way.")
    run_status: RunStatus | None = None
    errors: list[Flaw] = []
    size: int | None = Field(default=None, description="Bytes that there were.")
    limit: int | None = Field(default=None, description="Bytes that there may be.")


class Failure(_Model):
    """An exception as it was recorded."""

    type: str
    message: str
    traceback: str | None
    cause: Failure | None


class Wait(_Model):
    """One thing that a run waits for. Of a map, `done` of `total` items have an outcome."""

    kind: str
    id: str
    name: str
    since: Time
    until: Time | None
    done: int | None
    total: int | None
    reason: str | None


class Attention(_Model):
    """Why an operator should look at a run."""

    kind: str
    reason: str
    since: Time


class Origin(_Model):
    """What a run was forked from: events up to this number of that run."""

    run_id: str
    event: int


class Parent(_Model):
    """Whose child a run is: the run, the child's id there, and how many runs stand above it."""

    run_id: str
    child: str
    depth: int


class RunSummary(_Model):
    """A run, all but its values."""

    run_id: str
    workflow: str
    version: str
    status: RunStatus
    created_at: Time
    updated_at: Time
    last_event: int
    waiting: list[Wait]
    attention: Attention | None
    cancel_requested: bool
    idempotency_key: str | None
    tags: list[str]
    attributes: dict[str, str | int | float | bool]
    forked_from: Origin | None
    parent: Parent | None
    continued_from: str | None
    continued_to: str | None
    error: Failure | None
    kept_until: Time | None


class Run(RunSummary):
    """A run with its input, context and result; these are null with `values=false`."""

    input: Any
    context: Any
    result: Any


class RunPage(_Model):
    """Runs, newest first. `cursor` asks for the next page; null on the last, and only there.

    A page with a cursor may hold few runs, or none.
    """

    runs: list[RunSummary]
    cursor: str | None


class Event(BaseModel):
    """One event of a run's history, with the fields that its type has."""

    model_config = ConfigDict(frozen=True, extra="allow")

    number: int
    type: str
    at: Time


class EventPage(_Model):
    """Events of a run. `next` is what `after` takes to go on; null when there were no more."""

    run_id: str
    events: list[Event]
    next: int | None


class CancelAccepted(_Model):
    """A cancellation that will be carried out, unless the run is ending already."""

    run_id: str
    requested: Literal[True]
    status: RunStatus


class DeleteAccepted(_Model):
    """A deletion that will be carried out."""

    run_id: str
    requested: Literal[True]


class InboxEntry(_Model):
    """An entry of a run's inbox. `event` is the number of the event that recorded it."""

    run_id: str
    entry_id: str
    key: str
    value: Any
    sent_at: Time
    actor: str | None
    event: int | None


class Inbox(_Model):
    """All entries of a run's inbox, oldest first."""

    entries: list[InboxEntry]


class ResumeAccepted(_Model):
    """A run that will look again."""

    run_id: str
    requested: Literal[True]


class PendingHook(_Model):
    """A hook that waits for an answer. Its token is not shown."""

    run_id: str
    hook_id: str
    name: str
    step: str | None
    created_at: Time
    expires_at: Time | None
    due_at: Time | None
    question: str | None
    schema_: Any = Field(alias="schema")


class HookPage(_Model):
    """Hooks that wait for an answer, oldest first."""

    hooks: list[PendingHook]
    cursor: str | None


class HookView(_Model):
    """A hook, as its link shows it."""

    name: str
    status: HookStatus
    created_at: Time
    expires_at: Time | None
    due_at: Time | None
    decided_at: Time | None
    question: str | None
    schema_: Any = Field(alias="schema")


class Answered(_Model):
    """An answer that was taken; the same for the same answer again."""

    run_id: str
    hook_id: str
    decision_id: str


class Signal(_Model):
    """A signal of a stream run. `sequence` is null for one that was just sent."""

    signal_id: str
    stream: str
    stream_run_id: str
    type: str
    payload: Any
    published_at: Time
    sequence: int | None
    source_run_id: str | None
    metadata: dict[str, Any]


class SignalsAccepted(_Model):
    """Signals that will be delivered, in this order."""

    signals: list[Signal]


class SignalPage(_Model):
    """Signals of a stream run, in order. `next` is what `after` takes to go on; null at the end."""

    signals: list[Signal]
    next: int | None


class Subscription(_Model):
    """A step of a stream run: its state, and how far it has come."""

    step: str
    run_id: str
    types: list[str]
    status: Literal["waiting", "running", "suspended", "terminated", "cancelled", "failed"]
    cursor: int
    lag: int
    ignored: int
    handled: int
    parked: int
    discarded: int
    blocked_by: int | None
    reason: str | None
    attention: str | None


class StreamRun(_Model):
    """A stream run. Its `status` is null while nobody has started it."""

    stream: str
    stream_run_id: str
    run_id: str
    last: int
    last_signal_at: Time | None
    status: Literal["running", "suspended", "completed", "failed", "cancelled"] | None
    reason: str | None
    subscriptions: list[Subscription]


class ParkedSignal(_Model):
    """A signal that a step could not handle; number 0 is its start."""

    sequence: int
    type: str | None
    parked_at: Time
    attempts: int
    error: Failure
    blocks: bool


class ParkedSignals(_Model):
    """The parked signals of a step, oldest first."""

    signals: list[ParkedSignal]


class MendAccepted(_Model):
    """A parked signal that will be handled again, or given up."""

    sequence: int
    action: Literal["redrive", "discard"]
    requested: Literal[True]


class WorkflowSummary(_Model):
    """A workflow that is published."""

    name: str
    version: str
    digest: str
    published_at: Time
    description: str


class WorkflowDetail(WorkflowSummary):
    """A published workflow with the JSON schemas of its arguments and its result."""

    input_schema: Any
    result_schema: Any


class WorkflowPage(_Model):
    """Published workflows, by name."""

    workflows: list[WorkflowSummary]
    cursor: str | None


class Health(_Model):
    """The function answers. Nothing behind it was asked."""

    status: Literal["ok"]
