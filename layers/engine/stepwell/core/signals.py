"""Signals and the streams that they are on, as values: what a store keeps of a stream run.

A stream run is one conversation on a stream, by the name that its users give it. Its signals are
numbered 1, 2, 3 … without gaps, in batches: a batch is one row, put once, that claims its numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from pydantic import TypeAdapter

from stepwell.core.ids import check_key, check_name, child_run_id, run_id_for
from stepwell.core.payload import digest
from stepwell.core.records import Millis, Payload

#: The stream run of signals, and of starts, that name none.
DEFAULT_RUN = "default"
#: Signals of one batch, as many as the queue hands out at a time.
BATCH = 10
#: Types of signals that are counted in one stream run: a head is one row, written for each batch.
TYPES_COUNTED = 64
#: What the run ids of subscriptions begin with.
_SUBSCRIPTION = "sub-"


class StreamKey(NamedTuple):
    """One stream run: a stream, and the name of the run on it."""

    stream: str
    run: str

    @property
    def owner(self) -> str:
        """The id of the run that owns it: the one that is started with the stream run's name."""
        return run_id_for(self.stream, self.run)

    def __str__(self) -> str:
        return f"{self.stream}/{self.run}"


def stream_key(stream: str, run: str | None) -> StreamKey:
    """The stream run of these names; None is the shared default run.

    Raises `DefinitionError` on names that cannot be.
    """
    run = DEFAULT_RUN if run is None else run
    return StreamKey(check_name("stream", stream), check_key("stream run", run))


def run_id_of_child(
    parent: str, child: str, generation: int, name: str, stream_run: str | None
) -> str:
    """The run id of a child; that of one which owns a stream run follows from the stream run."""
    if stream_run is None:
        return child_run_id(parent, child, generation)
    stream, _, step = name.partition("/")
    key = StreamKey(stream, stream_run)
    return subscription_run_id(key, step, generation) if step else key.owner


def subscription_run_id(key: StreamKey, step: str, generation: int = 1) -> str:
    """The run id of a subscription; each generation is another run."""
    text = f"{key.owner}:{generation}:{step}"
    return _SUBSCRIPTION + hashlib.sha256(text.encode()).hexdigest()[:32]


def is_subscription(run_id: str) -> bool:
    """Whether a run is a subscription, whose log is read from its last snapshot on.

    One that is none and is called so is read in the same way, and has no snapshot.
    """
    return run_id.startswith(_SUBSCRIPTION)


def keyed_signal_id(key: StreamKey, idempotency_key: str) -> str:
    """The id of the signal that a sender's key stands for."""
    return _signal_id(f"{len(key.stream)}:{key.stream}:{len(key.run)}:{key.run}:{idempotency_key}")


def emitted_signal_id(run_id: str, emit: str) -> str:
    """The id of a signal that a run emits, by where and what: the same on every pass."""
    return _signal_id(f"emit:{run_id}:{emit}")


def _signal_id(text: str) -> str:
    return "sig_" + hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSignal:
    """A signal as it was sent. `metadata` is a JSON object.

    `source_run_id` is the run whose code emitted it.
    """

    signal_id: str
    type: str
    payload: Payload
    published_at: Millis
    metadata: Payload | None = None
    source_run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalBatch:
    """Consecutive signals of a stream run; the first one is number `first`.

    `batch_id` tells who wrote it, so that a repeated write recognises itself.
    """

    first: int
    batch_id: str
    signals: tuple[SentSignal, ...]

    @property
    def last(self) -> int:
        """The number of its last signal."""
        return self.first + len(self.signals) - 1

    def numbered(self) -> tuple[NumberedSignal, ...]:
        """Its signals with their numbers."""
        return tuple(
            NumberedSignal(number, signal) for number, signal in enumerate(self.signals, self.first)
        )


class NumberedSignal(NamedTuple):
    """A signal with its number in its stream run."""

    sequence: int
    signal: SentSignal


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHead:
    """How far a stream run has come: `last` is a number that its signals reach at least.

    It may lag behind the batches, which decide; it never goes back. `counts` is a JSON object: how
    many of the signals up to `last` are of each type, for the first `TYPES_COUNTED` types.
    """

    key: StreamKey
    last: int
    created_at: Millis
    updated_at: Millis
    counts: str | None = None

    def count(self, types: Iterable[str]) -> int:
        """How many signals of these types there are."""
        counts = json.loads(self.counts or "{}")
        return sum(counts.get(kind, 0) for kind in {*types})


def with_counted(counts: str | None, types: Iterable[str]) -> str:
    """The `counts` of a head, with more signals of these types."""
    found: dict[str, int] = json.loads(counts or "{}")
    for kind in types:
        if kind in found or len(found) < TYPES_COUNTED:
            found[kind] = found.get(kind, 0) + 1
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRow:
    """Who is woken by the signals of a stream run: a subscription, and the types that it takes.

    Put by the subscription itself before it looks for signals the first time, and again when it has
    `ended`: then nobody wakes it any more.
    """

    key: StreamKey
    step: str
    run_id: str
    types: tuple[str, ...]
    created_at: Millis
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalDraft:
    """A signal as code asks for it; payload and metadata as JSON.

    `given_id` is the id that its sender wants it to have.
    """

    key: StreamKey
    type: str
    payload: str
    metadata: str | None = None
    idempotency_key: str | None = None
    given_id: str | None = None

    @property
    def digest(self) -> str:
        """What tells it apart from another signal; not the time."""
        return digest(json.dumps([*self.key, self.type, self.payload, self.metadata]))

    def signal_id(self, otherwise: str) -> str:
        """Its id: that which its sender gave or whose key he gave, or this one."""
        if self.given_id is not None:
            return self.given_id
        key = self.idempotency_key
        return otherwise if key is None else keyed_signal_id(self.key, key)


@cache
def _numbered() -> TypeAdapter[tuple[NumberedSignal, ...]]:
    return TypeAdapter(tuple[NumberedSignal, ...])


def dump_numbered(signals: Iterable[NumberedSignal]) -> str:
    """Signals with their numbers, as JSON."""
    return _numbered().dump_json(tuple(signals), exclude_none=True).decode()


def load_numbered(text: str) -> tuple[NumberedSignal, ...]:
    """The signals that `dump_numbered` was given."""
    return _numbered().validate_json(text)
