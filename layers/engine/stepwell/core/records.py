"""Rows, as values: what a store keeps and hands back of a run, apart from its events, and what is
published of a workflow.

Times are integer milliseconds since the epoch, UTC. Values (`Payload`) are carried as text: JSON,
or a reference `@<sha256>:<size>` to a blob. JSON never starts with `@`, so the two cannot be
mixed up and data needs no tags.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from stepwell.errors import Failure

#: Milliseconds since the epoch, UTC.
Millis = int
#: JSON text, or `@<sha256>:<size>` for a value kept as a blob.
Payload = str
#: Why somebody should look at a run: no code fits it, its message could not be handled, or somebody
#: has paused it.
AttentionKind = Literal["BLOCKED", "STUCK", "PAUSED"]
#: What the end of a run does to its open children.
OnParentClose = Literal["cancel", "abandon"]
#: How a child ended, as its parent sees it. Missing: it was deleted; refused: it never began.
ChildEnding = Literal["completed", "failed", "cancelled", "missing", "refused"]
#: After how long without news of an attempt, or of its next turn, a run is looked after: longer
#: than AWS lets an attempt go on, with its time in the queue and the tries before the last.
UNHEARD: Millis = 3_600_000
#: For how long it is known that a run was deleted: longer than any message of it can be in a queue
#: and then with the dead letters, twice 14 days at most.
REMEMBERED: Millis = 30 * 86_400_000


class RunStatus(StrEnum):
    """What the header says. PENDING: not yet begun. SUSPENDED: begun, waiting.

    CONTINUED: ended, and gone on as a new run.
    """

    PENDING = "PENDING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    CONTINUED = "CONTINUED"

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self in _TERMINAL


_TERMINAL = frozenset(RunStatus) - {RunStatus.PENDING, RunStatus.SUSPENDED}


class HookStatus(StrEnum):
    """A hook is PENDING until exactly one decision; every other status is final."""

    PENDING = "PENDING"
    RECEIVED = "RECEIVED"
    EXPIRED = "EXPIRED"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One thing a run waits for, as a reader sees it.

    `kind` is hook, timer, step (a dispatched one), map, child (an open one, also if the code does
    not ask for it now), input (what code raised `Suspend` for), or retry: of a step, or of telling
    the outside of a hook. Others will come: readers show one that they do not know as it is. Of a
    map, `done` of `total` items have an outcome; how many is not known of one whose items are made
    `away` from the run's turns. `reason` is what an input is waited for, or what
    a hook asks.
    """

    kind: str
    id: str
    name: str
    since: Millis
    until: Millis | None = None
    done: int | None = None
    total: int | None = None
    away: bool = False
    reason: str | None = None

    @property
    def due(self) -> Millis | None:
        """When this has to have woken its run, unless something got lost.

        None for a hook: its row has its own deadline, or it waits for as long as it takes. None for
        an input, which somebody has to bring, and for a child, which is looked after as a run of
        its own.
        """
        if self.kind in ("hook", "input"):
            return None
        away = self.away or self.kind == "step"
        return self.since + UNHEARD if away else self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A note on the header that an operator should see, and why.

    `message` is the body that could not be handled, if one is at fault. A pause has a `request_id`,
    and `before` is the note that stood when it came, or came while it stood.
    """

    kind: AttentionKind
    reason: str
    since: Millis
    message: str | None = None
    request_id: str | None = None
    actor: str | None = None
    before: Attention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The guards of a run's steps by name, in their order: those asked before a step, and after."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardChange:
    """Other guards for the steps of a run from here on; None: it has none any more.

    `keep` is the chain that nothing is said of: it stays as the run has it.
    """

    guards: Guards | None = None
    keep: Literal["before", "after"] | None = None

    def over(self, known: Guards | None) -> Guards | None:
        """The guards of a run that had these."""
        given = self.guards or Guards()
        if self.keep == "before":
            given = Guards(before=() if known is None else known.before, after=given.after)
        elif self.keep == "after":
            given = Guards(before=given.before, after=() if known is None else known.after)
        return given if given.before or given.after else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRequest:
    """Somebody wants the run, which ended with event `after`, to go on; with a change, so."""

    request_id: str
    after: int
    actor: str | None = None
    change: GuardChange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What a run was forked from: another's events up to number `event`.

    `started_at` is when that one began. `edits` is a JSON object: numbers of events, and the
    recorded form of the values that stand in them instead.
    """

    run_id: str
    event: int
    started_at: Millis
    edits: Payload | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Who started a child: run and child id there. `depth` is how many runs stand above it."""

    run_id: str
    child: str
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """How a subscription stands, for those who read its header; see `core.subscription`.

    `types` are those that its row names: what wakes it. `taken` counts the signals that it has
    done with, of those parked and discarded as well.
    """

    step: str
    status: str
    cursor: int
    handled: int = 0
    parked: int = 0
    discarded: int = 0
    blocked_by: int | None = None
    reason: str | None = None
    types: tuple[str, ...] = ()
    taken: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The run at a glance. `last_event` guards it: it is never written back to a lower number.

    `waiting` shows the oldest waits, `waits_not_shown` counts the others. `seed` feeds `uuid4()`
    and `random()`; with `created_at` it makes the first event a function of the header, so it needs
    no write of its own. `cancel_requested` is a flag that long steps see; the cancellation itself
    is a message. `attributes` is a JSON object of what the workflow has set, `context` the run's
    context as it was started with. `retry` is a retry that the log does not know of yet. `guards`
    are those that the run was started with; the log tells of others. `continued_to` is the run that
    goes on in place of this one, `continued_from` the one that this one goes on for. `stream_run`
    is the stream run that it owns or, where `subscription` says how that stands, subscribes to;
    `snapshot` is the number of the event from which its log is read. An ended run
    is kept until `kept_until`, for ever where that is None. Of a deleted run, `deleted_at` says so,
    and nothing is left but who it was, for as long.
    """

    run_id: str
    workflow: str
    version: str
    status: RunStatus
    input: Payload
    input_digest: str
    seed: str
    created_at: Millis
    updated_at: Millis
    last_event: int = 0
    result: Payload | None = None
    error: Failure | None = None
    waiting: tuple[Wait, ...] = ()
    waits_not_shown: int = 0
    attention: Attention | None = None
    cancel_requested: bool = False
    idempotency_key: str | None = None
    tags: tuple[str, ...] = ()
    attributes: Payload | None = None
    context: Payload | None = None
    kept_until: Millis | None = None
    deleted_at: Millis | None = None
    retry: RetryRequest | None = None
    forked_from: Fork | None = None
    parent: Parent | None = None
    continued_from: str | None = None
    continued_to: str | None = None
    stream_run: str | None = None
    snapshot: int = 0
    subscription: Glance | None = None
    guards: Guards | None = None

    @property
    def paused(self) -> bool:
        """Whether somebody has paused the run, and nobody has resumed it."""
        return self.attention is not None and self.attention.kind == "PAUSED"

    @property
    def note(self) -> Attention | None:
        """The note that stands, a pause apart."""
        return self.attention.before if self.paused and self.attention else self.attention

    def noted(self, note: Attention | None) -> RunHeader:
        """With this note; under the pause, if there is one."""
        if self.paused and self.attention is not None:
            note = replace(self.attention, before=note)
        return replace(self, attention=note)

    @property
    def due(self) -> Millis | None:
        """When a suspended run has to have been woken at the latest, hooks apart.

        None when nothing but hooks can wake it, or it wants attention. With nothing that it waits
        for, its next turn has been sent for.
        """
        if self.status is not RunStatus.SUSPENDED or self.attention is not None:
            return None
        if not self.waiting:
            return self.updated_at + UNHEARD
        return min((wait.due for wait in self.waiting if wait.due is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRow:
    """One hook. Put once while PENDING, decided once; the row is where decisions meet.

    `step` is the id of the step that holds it, None at workflow level. `expires_at` ends the hook
    by itself; `due_at` is a deadline that only informs (`on_timeout="wait"`). `schema` is JSON
    schema as text. `key_id` names the key that signed its token. `question` is what `ask` asks.
    """

    run_id: str
    hook_id: str
    name: str
    step: str | None
    key_id: str
    created_at: Millis
    expires_at: Millis | None = None
    due_at: Millis | None = None
    schema: str | None = None
    status: HookStatus = HookStatus.PENDING
    decision_id: str | None = None
    payload: Payload | None = None
    decided_at: Millis | None = None
    actor: str | None = None
    question: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What turns a hook from PENDING into its final status."""

    status: HookStatus
    decision_id: str
    decided_at: Millis
    payload: Payload | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """One entry of a run's inbox, put once and never changed.

    The latest entry of a key, by time and then by id, is what the run sees under it.
    """

    run_id: str
    entry_id: str
    key: str
    payload: Payload
    sent_at: Millis
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One dispatched step: which attempt of it is being worked on, and what came of it.

    It is changed by whole replacements: revision n stands only on revision n - 1. `order` is the
    number of the `StepStarted` of the attempt. `claim` names the one receive of a message that
    works on it, no later than `until`. `cancelled` tells the worker that nobody waits any more.
    `outcome` holds the events to record, as JSON, once the attempt has ended.
    """

    run_id: str
    step: str
    revision: int
    order: int
    claim: str | None = None
    until: Millis = 0
    cancelled: bool = False
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedWorkflow:
    """What a deployment says of a workflow, for those who start it without its code.

    Schemas are JSON schema as text; `input_schema` is of the object of arguments. `digest` is of
    all that is published but the time. `signals` is of a stream: a JSON object of its signal
    types, in each the schema of the payload by step, null for any.
    """

    name: str
    version: str
    digest: str
    published_at: Millis
    input_schema: str
    result_schema: str | None = None
    description: str = ""
    signals: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of one step: the last one saved stands.

    `last_event` is the number of the last event its writer knew; a row is never replaced by one
    with a lower number. `save_id` is unique per save. `output` is how many chunks the step had
    put out when it was saved; `answers` the hook ids whose answers had been taken by then.
    """

    run_id: str
    step: str
    last_event: int
    save_id: str
    saved_at: Millis
    output: int
    answers: tuple[str, ...]
    value: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One row of a step's streamed output.

    `position` counts rows (1, 2, 3 …), `number` counts chunks. A row with `value` None is a reset
    mark: chunks above `number` are superseded, numbering goes on after it. `last_event` is the
    number of the last durable event that its writer knew: who finds a higher one is overtaken.
    """

    run_id: str
    step: str
    position: int
    number: int
    at: Millis
    value: Payload | None
    last_event: int = 0


def tombstone(header: RunHeader, at: Millis) -> RunHeader:
    """What is left of a run that is deleted at a time: who it was, and nothing that it held.

    It is gone some time later. A link of a child's chain is not: the parent knows the first link
    alone, and finds the one that goes on by following them.
    """
    followed = header.continued_to is not None and header.parent is not None
    return RunHeader(
        run_id=header.run_id,
        workflow=header.workflow,
        version=header.version,
        status=header.status,
        input="null",
        input_digest="",
        seed="",
        created_at=header.created_at,
        updated_at=at,
        last_event=header.last_event,
        parent=header.parent,
        continued_to=header.continued_to,
        continued_from=header.continued_from,
        stream_run=header.stream_run,
        deleted_at=at,
        kept_until=None if followed else at + REMEMBERED,
    )


def blob_reference(key: str, size: int) -> Payload:
    """The text that stands for a value kept as a blob; `size` in bytes of its JSON.

    `key` is the hash of its content, behind the id of the run that it belongs to and a slash.
    """
    return f"@{key}:{size}"


def is_reference(payload: Payload) -> bool:
    """Whether a payload stands for a blob rather than being JSON itself."""
    return payload.startswith("@")


def reference_key(payload: Payload) -> str:
    """The blob's key that a reference names: its hash, and whose it is."""
    return payload[1:].rpartition(":")[0]


def reference_size(payload: Payload) -> int:
    """Bytes of the JSON that a reference stands for."""
    return int(payload.rpartition(":")[2])
