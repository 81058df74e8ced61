"""Streams that count their signals, and what these take on this machine."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import Figure, Stopwatch, engine
from stepwell import get_checkpoint, get_current_signal, save_checkpoint, stream_step
from stepwell import stream_workflow as declare
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.authoring.registry import registry
from stepwell.streams.declare import StreamWorkflow

TOLD = {"text": "a message of some words"}


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


async def handled(store: str, signals: int, repeats: int) -> list[Figure]:
    """Signals to one subscription: sent, then numbered and handled."""
    stream, sending, handling = stream_of(1), Stopwatch(), Stopwatch()
    for _ in range(repeats):
        with engine(store) as local:
            await begin(local, stream)
            with sending.measuring(signals):
                for _ in range(signals):
                    await local.client.emit(stream, "told", TOLD)
            with handling.measuring(signals):
                await local.run_until_idle()
            await check(local, stream, signals)
    return [
        sending.figure("signal sent", store, signals, "signal", 0),
        handling.figure("handled", store, signals, "signal", 0),
    ]


async def crowded(store: str, subscriptions: int, repeats: int) -> Figure:
    """One signal to many subscriptions, from when it is sent."""
    stream, watch = stream_of(subscriptions), Stopwatch()
    with engine(store) as local:
        await begin(local, stream)
        for number in range(1, repeats + 1):
            with watch.measuring(subscriptions):
                await local.client.emit(stream, "told", TOLD)
                await local.run_until_idle()
            await check(local, stream, number)
    return watch.figure("signal to n", store, subscriptions, "each", 0)


async def begin(local: LocalEngine, stream: StreamWorkflow[[], Any]) -> None:
    """Start the default stream run, and let its steps subscribe."""
    await local.client.start(stream)
    await local.run_until_idle()


async def check(local: LocalEngine, stream: StreamWorkflow[[], Any], signals: int) -> None:
    """That each of its steps has handled so many signals."""
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
