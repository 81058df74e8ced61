"""Ports: all that the engine asks of the world. Adapters implement them; the engine sees no other.

Each write states its condition. A conditional write that loses is an answer, not an error; errors
are for a port that could not do its work, and then the message is given back. `TransientError` is
raised for these (throttling, a locked file, a lost reply): the turn gives its message back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from stepwell.core.events import Commit
from stepwell.core.map_rows import ShardKey
from stepwell.core.messages import MapItem, Message, StepMessage
from stepwell.core.records import (
    AttentionKind,
    Checkpoint,
    Chunk,
    Decision,
    HookRow,
    InboxRow,
    Millis,
    PublishedWorkflow,
    RunHeader,
    RunStatus,
    StepRow,
)
from stepwell.engine.map_ports import Maps
from stepwell.engine.stream_ports import SignalQueue, SignalTimers, Streams
from stepwell.errors import StepwellError

T = TypeVar("T")


class TransientError(StepwellError):
    """A port could not do its work now. The message is given back and tried again."""


class ItemTooLarge(StepwellError):
    """One item is above what a row or a message may hold. Permanent: trying again cannot help."""

    def __init__(self, item: str, size: int, limit: int) -> None:
        super().__init__(f"{item}: {size:,} bytes, the limit is {limit:,}")
        self.item = item
        self.size = size
        self.limit = limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """What one consistent read of a run brings, all pages of it."""

    header: RunHeader | None
    commits: tuple[Commit, ...]
    hooks: tuple[HookRow, ...]
    steps: tuple[StepRow, ...]
    inbox: tuple[InboxRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Part of a list. `cursor` is opaque; None at the end, and only there.

    While there is one, more items may follow, also after a page with few items or none.
    """

    items: tuple[T, ...]
    cursor: str | None = None


class Store(Protocol):
    """The table. Reads are strongly consistent, but for those that may lag."""

    async def load(self, run_id: str) -> RunRows:
        """Header, log in order, hooks, dispatched steps and inbox of one run; every page of it.

        Of a subscription (`core.signals.is_subscription`) the log from its header's `snapshot` on,
        if it has one.
        """

    async def get_header(self, run_id: str) -> RunHeader | None:
        """The header alone."""

    async def put_header(self, header: RunHeader) -> RunHeader:
        """Put if absent. Returns the header that stands: this one, or the one already there."""

    async def update_header(
        self, header: RunHeader, *, over: RunHeader | None = None, reopens: bool = False
    ) -> bool:
        """Replace, only if one is there whose `last_event` is not higher. Whether it was done.

        With `over`, the header as it was read, also only if the note that stands is still the one
        on it: nobody clears a note that he has not seen. A `cancel_requested` flag that stands is
        kept, unless this `reopens` a run that has ended: it was about the life before.
        """

    async def bury(self, tombstone: RunHeader) -> bool:
        """Replace a header by what is left of a deleted run, and take it from all lists.

        Only if one is there whose `last_event` is not higher. Whether it stands. It is gone some
        time after its `kept_until`; without one it stays.
        """

    async def erase(self, run_id: str, until: Millis, shards: Sequence[ShardKey] = ()) -> None:
        """Delete all rows of a run but its header, and those of the shards of its maps; done once
        the header was replaced.

        In the place of each commit stands an empty one until that time or later, so that nobody
        who is late can append: `load` does not give these.
        """

    async def expired_runs(self, before: Millis, limit: int) -> tuple[RunHeader, ...]:
        """Runs whose `kept_until` was before a time, those that were deleted apart. May lag.

        At most `limit`, the longest expired first. A row that cannot be read is left out.
        """

    async def request_cancel(self, run_id: str) -> bool:
        """Set `cancel_requested` on an existing header. Whether there is one."""

    async def append(self, run_id: str, commit: Commit) -> bool:
        """Put the commit, only if no item has its first number. Whether it stands.

        True also when the item there has the same `turn` and `number`: an own write whose reply
        was lost.
        """

    async def trim(
        self, run_id: str, before: int, hooks: Sequence[str] = (), steps: Sequence[str] = ()
    ) -> None:
        """Delete the commits of a run whose first number is below one, and rows of hooks and of
        dispatched steps by id. Nothing happens to what is not there.
        """

    async def get_hook(self, run_id: str, hook_id: str) -> HookRow | None:
        """One hook row."""

    async def put_hook(self, row: HookRow) -> HookRow:
        """Put if absent. Returns the row that stands: this one, or the one already there."""

    async def decide_hook(self, run_id: str, hook_id: str, decision: Decision) -> HookRow | None:
        """Decide a PENDING row. Returns the row that stands, None if there is none.

        Whoever loses reads what the winner wrote.
        """

    async def get_step(self, run_id: str, step: str) -> StepRow | None:
        """The row of a dispatched step."""

    async def put_step(self, row: StepRow) -> StepRow:
        """Put revision n, only if revision n - 1 stands (nothing for 1). Returns what stands.

        That is an equal row also when an own write lost its reply.
        """

    async def put_inbox(self, row: InboxRow) -> InboxRow:
        """Put if absent. Returns the entry that stands: this one, or the one already there."""

    async def get_checkpoint(self, run_id: str, step: str) -> Checkpoint | None:
        """The checkpoint of a step."""

    async def put_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Put, unless one with a higher `last_event` stands. Whether it was put."""

    async def expire_checkpoint(self, run_id: str, step: str, at: Millis) -> None:
        """Let the checkpoint of a step, if there is one, be gone from `at` on, now or much later.

        A checkpoint that is put after this stays.
        """

    async def put_chunk(self, chunk: Chunk) -> bool:
        """Put if no row has its position. Whether it stands.

        True also when the row there is equal: an own write whose reply was lost.
        """

    async def get_chunks(
        self, run_id: str, step: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[Chunk, ...]:
        """Output rows with a position above `after`, in order; all of them without `limit`."""

    async def publish(self, definition: PublishedWorkflow) -> None:
        """Put a definition, once per digest, and make it the current one.

        Not if the current one is of a newer version, by `core.definitions.version_order`, or of
        the same one and published later.
        """

    async def get_definition(self, workflow: str) -> PublishedWorkflow | None:
        """The current definition of a workflow. May lag."""

    async def list_definitions(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> Page[PublishedWorkflow]:
        """Current definitions by name. May lag. Raises `ValueError` on a bad cursor."""

    async def list_runs(
        self,
        *,
        workflow: str | None = None,
        status: RunStatus | None = None,
        attention: AttentionKind | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunHeader]:
        """Runs, newest first; ties by run id. May lag. Raises `ValueError` on a bad cursor.

        `attention` is the kind of note that their headers carry. A page may hold fewer than `limit`
        runs, even none, while there is a cursor: where few of many are wanted, a store looks at so
        many at a time.
        """

    async def list_hooks(
        self, *, run_id: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[HookRow]:
        """PENDING hooks, oldest first; ties by run and hook id. May lag."""

    async def overdue_runs(self, before: Millis, limit: int) -> tuple[RunHeader, ...]:
        """Runs whose `RunHeader.due` was before a time, the most overdue first. May lag.

        At most `limit`. Ties by run id. Deadlines of hooks do not count here, see `overdue_hooks`;
        nor do runs that want attention. A row that cannot be read is left out.
        """

    async def overdue_hooks(self, before: Millis, limit: int) -> tuple[HookRow, ...]:
        """PENDING hooks whose deadline was before a time, the most overdue first. May lag.

        At most `limit`. A row that cannot be read is left out.
        """


class Blobs(Protocol):
    """Large values by content hash, behind whose they are. Writing one twice is harmless."""

    async def put(self, sha256: str, data: bytes) -> None:
        """Store bytes under the hash of the value they carry."""

    async def delete_all(self, owner: str) -> None:
        """Delete all whose keys begin with `owner/`. Those of others stay."""

    async def get(self, sha256: str) -> bytes:
        """The bytes. Raises `BlobMissing` if they are not there."""


class BlobMissing(StepwellError):
    """A value's blob is gone: it was removed by hand or by a lifecycle rule."""

    def __init__(self, sha256: str) -> None:
        super().__init__(f"the blob {sha256} of a recorded value is missing")
        self.sha256 = sha256


class Queue(Protocol):
    """The run queue: groups by run id, one message of a group in flight, order within a group."""

    async def send(self, message: Message) -> None:
        """Send to the group of the message's run. Equal bodies within five minutes are one."""

    async def send_all(self, messages: Sequence[Message]) -> None:
        """Send messages to runs, each run named once at most.

        All were sent when it returns; some may have been when it raises.
        """


class StepQueue(Protocol):
    """The step queue: attempts of dispatched steps, in no order, now and then one of them twice."""

    async def send(self, attempt: StepMessage) -> None:
        """Have an attempt made."""

    async def send_items(self, items: Sequence[MapItem], *, delay: Millis = 0) -> None:
        """Have attempts of items made, `delay` ms from now on, which is at most 15 minutes.

        All were sent when it returns; some may have been when it raises.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A received message. `receipt` deletes or gives back just this receive of it."""

    body: str
    receipt: str
    receive_count: int
    message_id: str


class Consumer(Protocol):
    """The receiving end of the run queue, where the engine itself pulls (not on Lambda)."""

    async def receive(self) -> Delivery | None:
        """The next message whose group is free, now; None if there is none."""

    async def delete(self, delivery: Delivery) -> bool:
        """Acknowledge. False when the receipt is stale: the message was delivered again."""

    async def give_back(self, delivery: Delivery, *, delay: Millis = 0) -> bool:
        """Make the message visible again after `delay` ms. False when the receipt is stale."""

    async def reject(self, delivery: Delivery, reason: str) -> None:
        """Move the message to the dead letters at once, with the reason."""


class Timers(Protocol):
    """Durable timers: at `due`, or later, a `TimerDue` message is sent. May be late, twice."""

    async def start(self, run_id: str, wait_id: str, arm: int, due: Millis) -> None:
        """Make sure of a timer. Starting it again with another `due` moves it there.

        It may still fire at the old time as well.
        """

    async def cancel(self, run_id: str, wait_id: str, arm: int) -> None:
        """Forget a timer; it may still fire."""


class Clock(Protocol):
    """The one source of time."""

    def now(self) -> Millis:
        """Milliseconds since the epoch, UTC."""

    async def sleep_until(self, due: Millis) -> None:
        """Return when `now()` has reached a time."""


class Ids(Protocol):
    """The one source of randomness for ids and seeds."""

    def new_id(self) -> str:
        """A new unguessable id: 128 random bits as 32 hex digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """All ports of one deployment, made once by an adapter."""

    store: Store
    blobs: Blobs
    queue: Queue
    steps: StepQueue
    maps: Maps
    timers: Timers
    streams: Streams
    signals: SignalQueue
    signal_timers: SignalTimers
    clock: Clock
    ids: Ids
