"""Every method of the AWS adapters' ports, as a call that can be made twice over and compared.

A call has a run of its own, named by a text that stands for it in what it leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from stepwell.adapters.aws.queue import give_back
from stepwell.core.messages import SignalSent
from stepwell.core.records import Attention, Decision, HookStatus, tombstone
from stepwell.core.signals import StreamHead, StreamKey
from tests.contract.given import (
    MINUTE,
    START,
    attempt,
    checkpoint,
    chunk,
    commit,
    definition,
    header,
    hook,
    sent_signal,
    signal_batch,
    step_row,
    subscription,
    wake,
)
from tests.wire.wire import Wire

Make = Callable[[Wire, str], Coroutine[Any, Any, Any]]
HOUR = 60 * MINUTE
NOTE = Attention(kind="STUCK", reason="no", since=START)
DECIDED = Decision(
    status=HookStatus.RECEIVED, decision_id="d1", decided_at=START, payload="1", actor="ann"
)


async def _nothing(_wire: Wire, _run: str) -> None:
    """What most calls need beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call, what it needs beforehand, and where its effects are to be seen."""

    name: str
    service: str
    make: Make
    given: Make = _nothing
    #: Whether it may be seen more than once that it was made: on a queue that may deliver twice.
    doubled: bool = False

    def __str__(self) -> str:
        return self.name

    def effects(self, wire: Wire, run: str) -> Any:
        """All that stands outside because of it, whatever the name of its run."""
        inbox, steps = wire.bodies("inbox", run), wire.bodies("step", run)
        found = (
            [_unsharded(item) for item in wire.items(run)],
            wire.objects(run),
            wire.bodies("run.fifo", run),
            wire.bodies("signal.fifo", run),
            sorted(set(inbox)) if self.doubled else inbox,
            sorted(set(steps)) if self.doubled else steps,
            wire.schedules(run),
        )
        return plain(found, run)


def _unsharded(item: dict[str, Any]) -> dict[str, Any]:
    """An item without the shards of its index entries, which go by the name of the run."""
    shards = {name: "somewhere" for name in ("listed_in", "wanted_in") if name in item}
    return item | shards


def plain(value: Any, run: str) -> str:
    """A value as text in which no run is named."""
    return repr(value).replace(run, "RUN")


def _answer(name: str, make: Make, given: Make = _nothing) -> Call:
    return Call(name=name, service="dynamodb", make=make, given=given)


async def _header(wire: Wire, run: str) -> None:
    await wire.store.put_header(header(run))


async def _noted(wire: Wire, run: str) -> None:
    await wire.store.put_header(header(run, attention=NOTE))


async def _hook(wire: Wire, run: str) -> None:
    await wire.store.put_hook(hook(run))


async def _whole(wire: Wire, run: str) -> None:
    """A run with something of everything that a turn loads."""
    await _header(wire, run)
    await _hook(wire, run)
    await wire.store.append(run, commit(1, events=2))
    await wire.store.append(run, commit(3, number=2))
    await wire.store.put_step(step_row(1, run))


async def _saved(wire: Wire, run: str) -> None:
    await wire.store.put_checkpoint(checkpoint(run))


async def _published(wire: Wire, run: str) -> None:
    await wire.store.publish(definition(f"workflow of {run}"))


async def _streamed(wire: Wire, run: str) -> None:
    for position in (1, 2, 3):
        await wire.store.put_chunk(chunk(position, run))


async def _own_definitions(wire: Wire, run: str) -> Any:
    page = await wire.store.list_definitions(limit=1000)
    return [each for each in page.items if run in each.name]


async def _listed(wire: Wire, run: str) -> None:
    await wire.store.put_header(header(run, workflow=f"workflow of {run}"))


async def _buried(wire: Wire, run: str) -> bool:
    return await wire.store.bury(tombstone(header(run), START))


WRITES = [
    _answer("put_header", lambda w, r: w.store.put_header(header(r, workflow=f"workflow of {r}"))),
    _answer("update_header", lambda w, r: w.store.update_header(header(r, last_event=3)), _header),
    _answer(
        "update_header with a note",
        lambda w, r: w.store.update_header(header(r, attention=NOTE), over=header(r)),
        _header,
    ),
    _answer(
        "update_header without its note",
        lambda w, r: w.store.update_header(header(r), over=header(r, attention=NOTE)),
        _noted,
    ),
    _answer("bury", _buried, _header),
    _answer("erase", lambda w, r: w.store.erase(r, START + HOUR), _hook),
    _answer("request_cancel", lambda w, r: w.store.request_cancel(r), _header),
    _answer("append", lambda w, r: w.store.append(r, commit(1, events=2))),
    _answer("put_hook", lambda w, r: w.store.put_hook(hook(r))),
    _answer("decide_hook", lambda w, r: w.store.decide_hook(r, "hook", DECIDED), _hook),
    _answer("put_step", lambda w, r: w.store.put_step(step_row(1, r, claim="m#1"))),
    _answer(
        "put_step again",
        lambda w, r: w.store.put_step(step_row(2, r, claim="m#1", outcome="[]")),
        lambda w, r: w.store.put_step(step_row(1, r, claim="m#1")),
    ),
    _answer("put_checkpoint", lambda w, r: w.store.put_checkpoint(checkpoint(r))),
    _answer("put_checkpoint again", lambda w, r: w.store.put_checkpoint(checkpoint(r)), _saved),
    _answer("expire_checkpoint", lambda w, r: w.store.expire_checkpoint(r, "step", START), _saved),
    _answer("put_chunk", lambda w, r: w.store.put_chunk(chunk(1, r))),
    _answer("publish", _published),
    _answer(
        "publish again",
        lambda w, r: w.store.publish(definition(f"workflow of {r}", "2")),
        _published,
    ),
]

READS = [
    _answer("load", lambda w, r: w.store.load(r), _whole),
    _answer("get_header", lambda w, r: w.store.get_header(r), _header),
    _answer("get_hook", lambda w, r: w.store.get_hook(r, "hook"), _hook),
    _answer("get_step", lambda w, r: w.store.get_step(r, "step"), _whole),
    _answer("get_checkpoint", lambda w, r: w.store.get_checkpoint(r, "step"), _saved),
    _answer("get_chunks", lambda w, r: w.store.get_chunks(r, "step", after=1), _streamed),
    _answer("get_definition", lambda w, r: w.store.get_definition(f"workflow of {r}"), _published),
    _answer("list_definitions", _own_definitions, _published),
    _answer("list_runs", lambda w, r: w.store.list_runs(workflow=f"workflow of {r}"), _listed),
    _answer("list_hooks", lambda w, r: w.store.list_hooks(run_id=r), _hook),
]


async def _received(wire: Wire, run: str) -> None:
    """A message of the run is in somebody's hands."""
    await wire.queue.send(wake(run))
    while found := wire.clients.sqs.receive_message(QueueUrl=wire.url("run.fifo")).get("Messages"):
        for message in found:
            wire.receipts[_run_of(message["Body"])] = message["ReceiptHandle"]


async def _give_back(wire: Wire, run: str) -> bool:
    return await give_back(wire.clients, wire.url("run.fifo"), wire.receipts[run], 60_000)


def _run_of(body: str) -> str:
    return body.partition('"run_id":"')[2].partition('"')[0]


async def _scheduled(wire: Wire, run: str) -> None:
    await wire.timers.start(run, "wait", 1, START + HOUR)


async def _stored(wire: Wire, run: str) -> None:
    await wire.blobs.put(run, b"bytes" * 100)


QUEUES = [
    Call(name="queue.send", service="sqs", make=lambda w, r: w.queue.send(wake(r))),
    Call(
        name="steps.send",
        service="sqs",
        make=lambda w, r: w.steps.send(attempt(r)),
        doubled=True,
    ),
    Call(
        name="inbox.send_later",
        service="sqs",
        make=lambda w, r: w.inbox.send_later(wake(r), 5),
        doubled=True,
    ),
    Call(name="give_back", service="sqs", make=_give_back, given=_received),
]
TIMERS = [
    Call(
        name="timers.start, due",
        service="sqs",
        make=lambda w, r: w.timers.start(r, "wait", 1, START - 1),
    ),
    Call(
        name="timers.start, soon",
        service="sqs",
        make=lambda w, r: w.timers.start(r, "wait", 1, START + MINUTE),
        doubled=True,
    ),
    Call(name="timers.start, late", service="scheduler", make=_scheduled),
    Call(name="timers.start, again", service="scheduler", make=_scheduled, given=_scheduled),
    Call(
        name="timers.start, moved",
        service="scheduler",
        make=lambda w, r: w.timers.start(r, "wait", 1, START + 2 * HOUR),
        given=_scheduled,
    ),
    Call(
        name="timers.cancel",
        service="scheduler",
        make=lambda w, r: w.timers.cancel(r, "wait", 1),
        given=_scheduled,
    ),
]
BLOBS = [
    Call(name="blobs.put", service="s3", make=_stored),
    Call(name="blobs.put again", service="s3", make=_stored, given=_stored),
    Call(
        name="blobs.delete_all",
        service="s3",
        make=lambda w, r: w.blobs.delete_all(r),
        given=lambda w, r: w.blobs.put(f"{r}/hash", b"bytes"),
    ),
    Call(name="blobs.get", service="s3", make=lambda w, r: w.blobs.get(r), given=_stored),
]


def _stream(run: str) -> StreamKey:
    return StreamKey(run, "c1")


def _head(run: str, last: int = 3) -> StreamHead:
    return StreamHead(key=_stream(run), last=last, created_at=START, updated_at=START)


async def _subscribed(wire: Wire, run: str) -> None:
    await wire.store.put_header(header(f"sub-{run}", last_event=4, snapshot=3))
    await wire.store.append(f"sub-{run}", commit(1, events=2))
    await wire.store.append(f"sub-{run}", commit(3, events=2))


async def _signalled(wire: Wire, run: str) -> None:
    """A stream run with something of everything."""
    key = _stream(run)
    await wire.streams.append(key, signal_batch(1, 3))
    await wire.streams.remember(key, {"s1": 1, "s2": 2, "s3": 3}, START + HOUR)
    await wire.streams.move_head(_head(run))
    await wire.streams.subscribe(subscription(key))


def _later(run: str, after: int) -> SignalSent:
    # The name of its schedule holds no name of a stream, but a hash.
    return sent_signal(key=_stream(run), due=START + after)


STREAMS = [
    _answer("streams.append", lambda w, r: w.streams.append(_stream(r), signal_batch(1, 3))),
    _answer("streams.move_head", lambda w, r: w.streams.move_head(_head(r))),
    _answer("streams.move_head again", lambda w, r: w.streams.move_head(_head(r, 5)), _signalled),
    _answer(
        "streams.remember",
        lambda w, r: w.streams.remember(_stream(r), {"s1": 1, "s2": 2}, START + HOUR),
    ),
    _answer("streams.subscribe", lambda w, r: w.streams.subscribe(subscription(_stream(r)))),
    _answer("streams.erase", lambda w, r: w.streams.erase(_stream(r)), _signalled),
    _answer("trim", lambda w, r: w.store.trim(r, 3, hooks=["hook"], steps=["step"]), _whole),
]
STREAM_READS = [
    _answer("streams.head", lambda w, r: w.streams.head(_stream(r)), _signalled),
    _answer("streams.read", lambda w, r: w.streams.read(_stream(r), after=1, limit=9), _signalled),
    _answer("streams.find", lambda w, r: w.streams.find(_stream(r), ["s1", "s9"]), _signalled),
    _answer("streams.subscriptions", lambda w, r: w.streams.subscriptions(_stream(r)), _signalled),
    _answer("load of a subscription", lambda w, r: w.store.load(f"sub-{r}"), _subscribed),
]
SIGNALS = [
    Call(
        name="queue.send_all",
        service="sqs",
        make=lambda w, r: w.queue.send_all([wake(f"{r}-1"), wake(f"{r}-2")]),
    ),
    Call(
        name="signals.send",
        service="sqs",
        make=lambda w, r: w.signals.send([sent_signal(key=_stream(r))]),
    ),
    Call(
        name="signal_timers.schedule, soon",
        service="sqs",
        make=lambda w, r: w.signal_timers.schedule(_later(r, MINUTE)),
        doubled=True,
    ),
]
CALLS = [*WRITES, *READS, *QUEUES, *TIMERS, *BLOBS, *STREAMS, *STREAM_READS, *SIGNALS]
