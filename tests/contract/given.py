"""What the contract suites are given: one deployment to test, and rows, events and messages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from stepwell.adapters.local.clock import SkippingClock
from stepwell.adapters.local.step_queue import SqliteStepQueue
from stepwell.core.events import Commit, StepCompleted
from stepwell.core.messages import SignalSent, StepAttempt, Wake, load_message
from stepwell.core.records import (
    Checkpoint,
    Chunk,
    HookRow,
    InboxRow,
    PublishedWorkflow,
    RunHeader,
    RunStatus,
    StepRow,
    Wait,
)
from stepwell.core.signals import SentSignal, SignalBatch, StreamKey, SubscriptionRow
from stepwell.engine.map_ports import Maps
from stepwell.engine.ports import Blobs, Consumer, Delivery, Queue, Store, Timers
from stepwell.engine.stream_ports import Streams

T = TypeVar("T")

START = 1_700_000_000_000
VISIBILITY = 30_000
MAX_RECEIVES = 3
MINUTE = 60_000

#: Ids that a careless key would let cross into another's range, or mix up.
NASTY_IDS = (
    "a",
    "A",
    "a#",
    "a#b",
    "a#b#c",
    "a/b",
    "a/../b",
    "..",
    "%23",
    "a%23b",
    "a\x00b",
    "a:1",
    "E#000000000001",
    "*",
    "_",
    "é",
    "e\u0301",
    "\U0001f600",
    "\uffff",
    "x" * 1024,
    "x" * 1023 + "y",
)


class Letter(Protocol):
    """What every adapter can tell about a dead letter."""

    @property
    def body(self) -> str: ...

    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One adapter's ports, and what a test needs to move the world around them."""

    maps: Maps
    streams: Streams
    store: Store
    blobs: Blobs
    queue: Queue
    consumer: Consumer
    step_queue: SqliteStepQueue
    timers: Timers
    clock: SkippingClock
    fire_due: Callable[[], Coroutine[Any, Any, int]]
    dead_letters: Callable[[], Coroutine[Any, Any, Sequence[Letter]]]
    close: Callable[[], None]


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, on a loop of its own."""
    return asyncio.run(work)


def header(run_id: str = "run", **fields: Any) -> RunHeader:
    """A header, PENDING unless told otherwise."""
    defaults: dict[str, Any] = {
        "workflow": "orders",
        "version": "1",
        "status": RunStatus.PENDING,
        "input": '{"order":1}',
        "input_digest": "d1",
        "seed": "s1",
        "created_at": START,
        "updated_at": START,
    }
    return RunHeader(run_id=run_id, **(defaults | fields))


def hook(run_id: str = "run", hook_id: str = "hook", **fields: Any) -> HookRow:
    """A PENDING hook row."""
    defaults: dict[str, Any] = {
        "name": "approve",
        "step": None,
        "key_id": "k1",
        "created_at": START,
    }
    return HookRow(run_id=run_id, hook_id=hook_id, **(defaults | fields))


def waiting(*waits: tuple[str, int | None], **fields: Any) -> dict[str, Any]:
    """What makes a header suspended: the kind of each wait, and when it is due."""
    shown = tuple(
        Wait(kind=kind, id=f"w{n}", name="w", since=START, until=until)
        for n, (kind, until) in enumerate(waits)
    )
    return {"status": RunStatus.SUSPENDED, "waiting": shown} | fields


def commit(
    first: int, *, events: int = 1, turn: str = "t1", number: int = 1, fill: int = 0
) -> Commit:
    """A commit of `events` events whose results take `fill` bytes each."""
    return Commit(
        first=first,
        turn=turn,
        number=number,
        events=tuple(
            StepCompleted(
                at=START + n,
                step=f"charge:{n}",
                name="charge",
                digest="d",
                attempt=1,
                result='"' + "x" * fill + '"',
            )
            for n in range(first, first + events)
        ),
    )


def step_row(revision: int = 1, run_id: str = "run", step: str = "step", **fields: Any) -> StepRow:
    """A row of a dispatched step that nobody works on."""
    defaults: dict[str, Any] = {"order": 1}
    return StepRow(run_id=run_id, step=step, revision=revision, **(defaults | fields))


def entry(run_id: str = "run", entry_id: str = "entry", **fields: Any) -> InboxRow:
    """An entry of a run's inbox."""
    defaults: dict[str, Any] = {"key": "approved", "payload": "true", "sent_at": START}
    return InboxRow(run_id=run_id, entry_id=entry_id, **(defaults | fields))


def definition(name: str = "orders", version: str = "1", **fields: Any) -> PublishedWorkflow:
    """A published definition whose digest tells its version."""
    defaults: dict[str, Any] = {
        "digest": f"digest of {version}",
        "published_at": START,
        "input_schema": '{"type":"object"}',
    }
    return PublishedWorkflow(name=name, version=version, **(defaults | fields))


def checkpoint(run_id: str = "run", step: str = "step", **fields: Any) -> Checkpoint:
    """A checkpoint that knows of event 1."""
    defaults: dict[str, Any] = {
        "last_event": 1,
        "save_id": "s1",
        "saved_at": START,
        "output": 0,
        "answers": (),
        "value": "1",
    }
    return Checkpoint(run_id=run_id, step=step, **(defaults | fields))


def chunk(position: int, run_id: str = "run", step: str = "step", **fields: Any) -> Chunk:
    """An output row that counts as many chunks as rows."""
    defaults: dict[str, Any] = {"number": position, "at": START, "value": f'"{position}"'}
    return Chunk(run_id=run_id, step=step, position=position, **(defaults | fields))


def attempt(run_id: str = "run", step: str = "charge:1", **fields: Any) -> StepAttempt:
    """An attempt of a step named `charge`."""
    defaults: dict[str, Any] = {"name": "charge", "order": 1}
    return StepAttempt(run_id=run_id, step=step, **(defaults | fields))


def wake(run_id: str = "run", cause: str = "c1") -> Wake:
    """The plainest message."""
    return Wake(run_id=run_id, cause=cause)


STREAM_RUN = StreamKey("chat", "c1")


def signal(signal_id: str = "s1", **fields: Any) -> SentSignal:
    """A signal of type `said`."""
    defaults: dict[str, Any] = {"type": "said", "payload": '{"n":1}', "published_at": START}
    return SentSignal(signal_id=signal_id, **(defaults | fields))


def signal_batch(first: int, signals: int = 1, **fields: Any) -> SignalBatch:
    """A batch of as many signals, whose ids tell their numbers."""
    numbers = range(first, first + signals)
    told = tuple(signal(f"s{n}") for n in numbers)
    return batch_of(first, *told, **fields)


def batch_of(first: int, *signals: SentSignal, **fields: Any) -> SignalBatch:
    """A batch of these signals."""
    return SignalBatch(first=first, signals=signals, **({"batch_id": f"batch {first}"} | fields))


def subscription(
    key: StreamKey = STREAM_RUN, step: str = "answer", **fields: Any
) -> SubscriptionRow:
    """A subscription to `said`."""
    defaults: dict[str, Any] = {"run_id": f"sub-{step}", "types": ("said",), "created_at": START}
    return SubscriptionRow(key=key, step=step, **(defaults | fields))


def sent_signal(signal_id: str = "s1", key: StreamKey = STREAM_RUN, **fields: Any) -> SignalSent:
    """A signal on its way."""
    due = fields.pop("due", None)
    return SignalSent.of(key, signal(signal_id, **fields), due)


async def take(consumer: Consumer) -> Delivery:
    """The delivery that has to be there."""
    delivery = await consumer.receive()
    assert delivery is not None
    return delivery


def cause(delivery: Delivery) -> str:
    """Which `wake` was delivered."""
    message = load_message(delivery.body)
    assert isinstance(message, Wake)
    return message.cause


def other_process(*arguments: str) -> subprocess.Popen[str]:
    """Start `other_process.py` with what this process can import."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("other_process.py")), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
