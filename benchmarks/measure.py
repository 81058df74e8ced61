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
from stepwell.adapters.local.wiring import open_ports
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
def engine(store: str) -> Iterator[tuple[LocalEngine, CountingStore]]:
    """A local engine whose store calls are counted."""
    with tempfile.TemporaryDirectory() as folder:
        path = ":memory:" if store == "memory" else str(Path(folder) / "bench.db")
        local = open_ports(path, synchronous="FULL" if store == "sqlite-full" else "NORMAL")
        counting, as_store = counted(local.store)
        ports = replace(local.ports, store=as_store)
        settings = Settings(keyring=keyring_of(local.database))
        with LocalEngine(
            replace(local, ports=ports), registry=registry, settings=settings
        ) as opened:
            yield opened, counting


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
    with engine(store) as (local, counting):
        for _ in range(repeats + 1):
            counting.calls.clear()
            await local.client.start(flow, size)
            with watch.measuring(size):
                await local.run_until_idle()
        # The header is put by the client; the turn's own writes are what grows.
        writes = counting.writes - counting.calls["put_header"]
    watch.wall.pop(0)
    watch.cpu.pop(0)
    return watch.figure(workload, store, size, "step", writes)


async def replays(size: int, repeats: int) -> list[Figure]:
    """Loading and folding a history of `size` steps, and replaying it."""
    loading, replaying = Stopwatch(), Stopwatch()
    with engine("memory") as (local, _):
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
    writes = 0
    with engine(store) as (local, counting):
        for _ in range(repeats):
            handle = await local.client.start(steps_then_answer, size)
            await local.run_until_idle()
            [hook] = (await local.client.list_hooks(run_id=handle.id)).items
            counting.calls.clear()
            with watch.measuring(1):
                await local.client.resume_hook(hook.token, 1)
                await local.run_until_idle()
            await handle.result(timeout=0)
            writes = counting.writes
    return watch.figure("answer to end", store, size, "answer", writes)


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
