"""Measuring: fresh engine, warm-up, several repetitions, the median."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.counting import CountingStore, counted
from benchmarks.workflows import fan_out, increment, sequence, steps_then_answer
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.core.state import fold
from stepwell.engine.replay import Replay
from stepwell.engine.settings import Settings

SIZES = (1, 10, 100, 1000)
STORES = ("memory", "sqlite", "sqlite-full")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured cost. `cpu` and `wall` are medians in microseconds per unit."""

    workload: str
    store: str
    size: int
    unit: str
    wall: float
    cpu: float
    writes: int


@contextmanager
def engine(store: str) -> Iterator[LocalEngine]:
    """A local engine as it is used."""
    with ports(store) as local, opened(local) as engine:
        yield engine


@contextmanager
def counting_engine(store: str) -> Iterator[tuple[LocalEngine, CountingStore]]:
    """A local engine whose store calls are counted, which takes time: nothing is timed on it."""
    with ports(store) as local:
        counting, as_store = counted(local.store)
        with opened(replace(local, ports=replace(local.ports, store=as_store))) as engine:
            yield engine, counting


@contextmanager
def ports(store: str) -> Iterator[LocalPorts]:
    """The ports of one of `STORES`."""
    with tempfile.TemporaryDirectory() as folder:
        path = ":memory:" if store == "memory" else str(Path(folder) / "bench.db")
        yield open_ports(path, synchronous="FULL" if store == "sqlite-full" else "NORMAL")


def opened(local: LocalPorts) -> LocalEngine:
    """An engine on these ports; closing it closes them."""
    settings = Settings(keyring=keyring_of(local.database))
    return LocalEngine(local, registry=registry, settings=settings)


class Stopwatch:
    """Wall and processor time of a block, per unit."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    @contextmanager
    def measuring(self, units: int) -> Iterator[None]:
        """Add a measurement."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.cpu.append((time.process_time() - cpu) / units * 1e6)
        self.wall.append((time.perf_counter() - wall) / units * 1e6)

    def figure(self, workload: str, store: str, size: int, unit: str, writes: int) -> Figure:
        """The medians."""
        return Figure(
            workload,
            store,
            size,
            unit,
            statistics.median(self.wall),
            statistics.median(self.cpu),
            writes,
        )


async def steps(
    workload: str, flow: Workflow[[int], Any], store: str, size: int, repeats: int
) -> Figure:
    """A run of `size` steps from its start message to its end."""
    watch = Stopwatch()
    with engine(store) as local:
        await local.client.start(flow, size)
        await local.run_until_idle()
        for _ in range(repeats):
            await local.client.start(flow, size)
            with watch.measuring(size):
                await local.run_until_idle()
    with counting_engine(store) as (local, counting):
        await local.client.start(flow, size)
        await local.run_until_idle()
        # The header is put by the client; the turn's own writes are what grows.
        writes = counting.writes - counting.calls["put_header"]
    return watch.figure(workload, store, size, "step", writes)


async def replays(size: int, repeats: int) -> list[Figure]:
    """Loading and folding a history of `size` steps, and replaying it."""
    loading, replaying = Stopwatch(), Stopwatch()
    with engine("memory") as local:
        handle = await local.client.start(sequence, size)
        await local.run_until_idle()
        for _ in range(repeats):
            with loading.measuring(size):
                rows = await local.local.store.load(handle.id)
                events = [event for commit in rows.commits for event in commit.events][:-1]
                state = fold(events)
            replay = Replay(handle.id, sequence.definition, state, {})
            with replaying.measuring(size):
                replay.run(events)
    return [
        loading.figure("load and fold", "memory", size, "step", 0),
        replaying.figure("replay", "memory", size, "step", 0),
    ]


async def answers(store: str, size: int, repeats: int) -> Figure:
    """From an answer to the end of a run that has `size` steps behind it."""
    watch = Stopwatch()
    with engine(store) as local:
        for _ in range(repeats):
            token = await _asked(local, size)
            with watch.measuring(1):
                await local.client.resume_hook(token, 1)
                await local.run_until_idle()
    with counting_engine(store) as (local, counting):
        token = await _asked(local, size)
        counting.calls.clear()
        await local.client.resume_hook(token, 1)
        await local.run_until_idle()
    return watch.figure("answer to end", store, size, "answer", counting.writes)


async def _asked(local: LocalEngine, size: int) -> str:
    handle = await local.client.start(steps_then_answer, size)
    await local.run_until_idle()
    [hook] = (await local.client.list_hooks(run_id=handle.id)).items
    return hook.token


async def all_figures(repeats: int) -> list[Figure]:
    """Everything, one after another."""
    await increment(0)  # outside a run it is a plain function
    figures: list[Figure] = []
    for store in STORES:
        figures += [await steps("sequence", sequence, store, n, repeats) for n in SIZES]
        figures += [await steps("fan-out", fan_out, store, n, repeats) for n in (100, 1000)]
    for size in SIZES:
        figures += await replays(size, repeats)
    for store in STORES[:2]:
        for size in (1, 100, 500):
            figures.append(await answers(store, size, repeats))
    return figures
