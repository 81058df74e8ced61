"""`python -m benchmarks.signals [N ...]`: what signals cost on AWS, and how that grows.

Counted as maps are: through the real adapters and handlers on emulated services, nothing timed.
Signals go to one subscription, in a burst or one by one; or one goes to many subscriptions. What
it costs to start the stream run is left out. Ten thousand signals take some ten minutes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Stopwatch, engine
from benchmarks.tally import Tallied, Tally, table
from stepwell import get_checkpoint, get_current_signal, save_checkpoint, stream_step
from stepwell import stream_workflow as declare
from stepwell.adapters.aws.handlers.telemetry import logger
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.authoring.registry import registry
from stepwell.client import NewSignal
from stepwell.streams.declare import StreamWorkflow
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed, open_deployment

SIZES = (10, 100, 1_000)
#: Subscriptions of one signal on AWS; more take time to emulate.
CROWDS = (1, 10, 100)
_TOLD = {"text": "a message of some words"}
#: Signals that one call sends at most.
_AT_ONCE = 500


async def _body() -> None:
    """Nothing: everything happens in the steps."""


async def _count() -> None:
    signal = await get_current_signal()
    if signal is not None:
        state = (await get_checkpoint()) or {"count": 0}
        await save_checkpoint({"count": state["count"] + 1})


def stream_of(subscriptions: int) -> StreamWorkflow[[], Any]:
    """A stream with so many steps, each of which counts its signals."""
    name = f"counted-by-{subscriptions}"
    known = registry.workflow(name)
    if known is not None:
        return StreamWorkflow(known, _body)
    stream = declare(name=name)(_body)
    for number in range(subscriptions):
        stream_step(stream=name, signals=["told"], name=f"counter-{number}")(_count)
    return stream


def _news(signals: int) -> list[NewSignal]:
    return [NewSignal(signal_type="told", payload=_TOLD) for _ in range(signals)]


# On this machine


async def handled(store: str, signals: int, repeats: int) -> list[Figure]:
    """Signals to one subscription: sent, then numbered and handled."""
    stream, sending, handling = stream_of(1), Stopwatch(), Stopwatch()
    for _ in range(repeats):
        with engine(store) as local:
            await _begin(local, stream)
            with sending.measuring(signals):
                for _ in range(signals):
                    await local.client.emit(stream, "told", _TOLD)
            with handling.measuring(signals):
                await local.run_until_idle()
            await _check(local, stream, signals)
    return [
        sending.figure("signal sent", store, signals, "signal", 0),
        handling.figure("handled", store, signals, "signal", 0),
    ]


async def crowded(store: str, subscriptions: int, repeats: int) -> Figure:
    """One signal to many subscriptions, from when it is sent."""
    stream, watch = stream_of(subscriptions), Stopwatch()
    with engine(store) as local:
        await _begin(local, stream)
        for number in range(1, repeats + 1):
            with watch.measuring(subscriptions):
                await local.client.emit(stream, "told", _TOLD)
                await local.run_until_idle()
            await _check(local, stream, number)
    return watch.figure("signal to n", store, subscriptions, "each", 0)


async def _begin(local: LocalEngine, stream: StreamWorkflow[[], Any]) -> None:
    await local.client.start(stream)
    await local.run_until_idle()


async def _check(local: LocalEngine, stream: StreamWorkflow[[], Any], signals: int) -> None:
    standing = await local.client.stream(stream)
    assert {each.handled for each in standing.subscriptions} == {signals}


async def all_handled(repeats: int) -> list[Figure]:
    """What signals take on this machine, where their state is kept in a file."""
    figures: list[Figure] = []
    for size, times in ((100, repeats), (1_000, repeats), (10_000, 1)):
        figures += await handled("sqlite", size, times)
    for size, times in ((1, repeats), (100, repeats), (1_000, 1)):
        figures.append(await crowded("sqlite", size, times))
    return figures


# On AWS


def bill_of(signals: int, subscriptions: int = 1, *, burst: bool = True) -> Tallied:
    """The bill of signals to one stream run, sent at once or each when the one before is through.

    Behind one that has made the process and the stream run known.
    """
    bill, stream = Tallied(signals), stream_of(subscriptions)
    with open_deployment(unchecked="it is counted; that it is right is seen in tests") as deployed:
        run(deployed.client.start(stream))
        _work(deployed, Tallied(0))
        _send(deployed, stream, 1, Tallied(0))
        tally = Tally(bill)
        tally.attach(deployed)
        for size in [signals] if burst else [1] * signals:
            _send(deployed, stream, size, bill)
        tally.counting = False
        standing = run(deployed.client.stream(stream))
        assert {each.handled for each in standing.subscriptions} == {1 + signals}
        assert len(standing.subscriptions) == subscriptions
    return bill


def _send(deployed: Deployed, stream: StreamWorkflow[[], Any], signals: int, bill: Tallied) -> None:
    for first in range(0, signals, _AT_ONCE):
        run(deployed.client.emit_all(stream, _news(min(_AT_ONCE, signals - first))))
    _work(deployed, bill)


def _work(deployed: Deployed, bill: Tallied) -> None:
    """Deliver until there is nothing to receive, the next batch of signals to each turn."""
    idle = False
    while not idle:
        before = deployed.delivered
        if deployed.held("signal.fifo"):
            deployed.deliver("signal.fifo")
        turns = deployed.delivered
        deployed.deliver("run.fifo", 1)
        bill.turns += deployed.delivered - turns
        bill.invocations += deployed.delivered - before
        idle = deployed.delivered == before


def bills_of(sizes: Sequence[int], crowds: Sequence[int] = CROWDS) -> dict[str, list[Tallied]]:
    """The bills of signals, so many to one subscription, and of one to so many, by what it is."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        # The functions tell of what they count.
        alone = [bill_of(1, size) for size in crowds]
        for bill, size in zip(alone, crowds, strict=True):
            bill.items = size
        return {
            "signals in a burst": [bill_of(size) for size in sizes],
            "signals one by one": [bill_of(size, burst=False) for size in sizes if size <= 100],
            "one signal to each": alone,
        }


def tables(bills: dict[str, list[Tallied]]) -> str:
    """All bills as text."""
    return "\n".join(f"\n{name}, on AWS\n{table(found, 'n')}" for name, found in bills.items())


def main() -> None:
    """Print the bills."""
    logger.setLevel("ERROR")
    print(tables(bills_of([int(each) for each in sys.argv[1:]] or SIZES)))


if __name__ == "__main__":
    main()
