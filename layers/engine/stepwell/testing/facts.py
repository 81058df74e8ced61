"""Facts: all that can be seen of a run from outside, at one moment.

`gather_run` and `gather_lists` look, through ports alone, so that any deployment can be judged.
What ports do not tell (whether a message of the run is in a queue, when its timer fires, which
attempts are under way) whoever drives the deployment knows, and passes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stepwell.core.events import Event, MapEnded, SignalEmitted
from stepwell.core.map_outcomes import references_in, with_results
from stepwell.core.payload import unpack
from stepwell.core.records import (
    AttentionKind,
    Chunk,
    HookRow,
    Millis,
    Payload,
    RunHeader,
    RunStatus,
    is_reference,
    reference_key,
)
from stepwell.core.signals import NumberedSignal, StreamHead, StreamKey, SubscriptionRow
from stepwell.engine.ports import BlobMissing, Blobs, RunRows, Store
from stepwell.engine.stream_ports import Streams

#: Fields of events that hold values.
VALUES = ("input", "result", "payload")
_PAGE = 200
_NOTES: tuple[AttentionKind, ...] = ("BLOCKED", "STUCK", "PAUSED")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run.

    `rows` are as the store holds them, `texts` the JSON of values that are kept as blobs. `output`
    holds the chunk rows of each step; `open_hooks` what the list of pending hooks says, None where
    nobody looked. `timer` is when the run's next timer fires, `attempts` are the dispatched
    attempts that are sent or being made, by the number of their event. `in_queue` says that the run
    queue holds a message of the run, to be received or in flight or dead, or that a turn goes on.
    """

    run_id: str
    rows: RunRows
    texts: Mapping[Payload, str] = field(default_factory=dict)
    output: Mapping[str, tuple[Chunk, ...]] = field(default_factory=dict)
    open_hooks: tuple[HookRow, ...] | None = None
    timer: Millis | None = None
    attempts: frozenset[int] = frozenset()
    in_queue: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        """The log, as it is recorded."""
        return tuple(event for commit in self.rows.commits for event in commit.events)

    @property
    def before(self) -> int:
        """Events before the first of them: a subscription's log is read from a snapshot on."""
        return self.rows.commits[0].first - 1 if self.rows.commits else 0

    @property
    def history(self) -> tuple[Event, ...]:
        """The log, with values in place of their references, where they were found."""
        return tuple(self._with_values(event) for event in self.events)

    @property
    def at_rest(self) -> bool:
        """Whether nothing happens to the run before time passes or somebody outside acts."""
        return self.rows.header is not None and not self.in_queue and not self.attempts

    def _with_values(self, event: Event) -> Event:
        if isinstance(event, MapEnded) and event.outcomes is not None:
            blocks = [self.texts.get(block, block) for block in event.outcomes]
            whole = tuple(with_results(block, self.texts) for block in blocks)
            return replace(event, outcomes=whole)
        for name in VALUES:
            value = getattr(event, name, None)
            if value is not None and value in self.texts:
                changes: dict[str, Any] = {name: self.texts[value]}
                return replace(event, **changes)
        return event


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """What the lists of runs say: all of them, and the ids in those that are narrowed."""

    runs: tuple[RunHeader, ...]
    by_workflow: Mapping[str, tuple[str, ...]]
    by_status: Mapping[RunStatus, tuple[str, ...]]
    by_attention: Mapping[AttentionKind, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """One stream run.

    `numbers` are those of the ids that are remembered. `quiet` says that no signal of it is on its
    way, in the signal queue or as a schedule, and that nobody numbers any. `withdrawn` are the ids
    of scheduled signals that were taken back.
    """

    key: StreamKey
    head: StreamHead | None
    signals: tuple[NumberedSignal, ...]
    numbers: Mapping[str, int]
    subscriptions: tuple[SubscriptionRow, ...]
    quiet: bool
    withdrawn: frozenset[str] = frozenset()

    @property
    def ids(self) -> frozenset[str]:
        """The ids of its signals."""
        return frozenset(signal.signal_id for _, signal in self.signals)


def streams_of(runs: Iterable[RunFacts]) -> frozenset[StreamKey]:
    """The stream runs that runs own, subscribe to, or have emitted to."""
    found: set[StreamKey] = set()
    for run in runs:
        header = run.rows.header
        if header is not None and header.stream_run is not None:
            found.add(StreamKey(header.workflow.partition("/")[0], header.stream_run))
        for event in run.events:
            if isinstance(event, SignalEmitted):
                found.add(StreamKey(event.stream, event.stream_run))
    return frozenset(found)


async def gather_stream(
    streams: Streams, key: StreamKey, *, quiet: bool, withdrawn: frozenset[str] = frozenset()
) -> StreamFacts:
    """Look at one stream run."""
    signals: list[NumberedSignal] = []
    while page := await streams.read(key, after=len(signals), limit=_PAGE):
        signals += page
    return StreamFacts(
        key=key,
        head=await streams.head(key),
        signals=tuple(signals),
        numbers=await streams.find(key, [signal.signal_id for _, signal in signals]),
        subscriptions=await streams.subscriptions(key),
        quiet=quiet,
        withdrawn=withdrawn,
    )


async def gather_run(
    store: Store,
    run_id: str,
    *,
    blobs: Blobs | None = None,
    timer: Millis | None = None,
    attempts: frozenset[int] = frozenset(),
    in_queue: bool = False,
) -> RunFacts:
    """Look at one run. Without `blobs` large values stay references."""
    rows = await store.load(run_id)
    events = [event for commit in rows.commits for event in commit.events]
    steps = sorted({step for event in events if (step := getattr(event, "step", None))})
    output = {step: await store.get_chunks(run_id, step) for step in steps}
    return RunFacts(
        run_id=run_id,
        rows=rows,
        texts={} if blobs is None else await _texts(blobs, events),
        output={step: chunks for step, chunks in output.items() if chunks},
        open_hooks=await _open_hooks(store, run_id),
        timer=timer,
        attempts=attempts,
        in_queue=in_queue,
    )


async def _texts(blobs: Blobs, events: Iterable[Event]) -> Mapping[Payload, str]:
    events = list(events)
    values = {getattr(event, name, None) for event in events for name in VALUES}
    values |= {block for event in _ended_maps(events) for block in event.outcomes or ()}
    texts = await _found(blobs, values)
    inside = [
        reference
        for event in _ended_maps(events)
        for block in event.outcomes or ()
        for reference in references_in(texts.get(block, block))
    ]
    return {**texts, **await _found(blobs, inside)}


def _ended_maps(events: Iterable[Event]) -> list[MapEnded]:
    return [event for event in events if isinstance(event, MapEnded)]


async def _found(blobs: Blobs, values: Iterable[Payload | None]) -> Mapping[Payload, str]:
    texts: dict[Payload, str] = {}
    for value in values:
        if value is not None and is_reference(value):
            try:
                texts[value] = unpack(await blobs.get(reference_key(value)))
            except BlobMissing:
                continue  # told by the run itself, which cannot go on
    return texts


async def _open_hooks(store: Store, run_id: str) -> tuple[HookRow, ...]:
    found: list[HookRow] = []
    cursor: str | None = None
    while True:
        page = await store.list_hooks(run_id=run_id, limit=_PAGE, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return tuple(found)


async def gather_lists(store: Store) -> Lists:
    """Look at the lists of runs, narrowed in every way there is."""
    runs = await _list(store)
    workflows = sorted({header.workflow for header in runs})
    return Lists(
        runs=runs,
        by_workflow={name: _ids(await _list(store, workflow=name)) for name in workflows},
        by_status={status: _ids(await _list(store, status=status)) for status in RunStatus},
        by_attention={kind: _ids(await _list(store, attention=kind)) for kind in _NOTES},
    )


async def _list(store: Store, **narrowed: Any) -> tuple[RunHeader, ...]:
    found: list[RunHeader] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(limit=_PAGE, cursor=cursor, **narrowed)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return tuple(found)


def _ids(headers: Iterable[RunHeader]) -> tuple[str, ...]:
    return tuple(header.run_id for header in headers)
