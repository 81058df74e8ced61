"""`python -m benchmarks.memory FLOW N`: how much more memory a run takes than a run of one item.

A process of its own makes both on a SQLite file, turns, steps and queue together. Its peak is what
the system counts as resident, in MB; what a turn has let go of may still be in it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import workflows
from benchmarks.measure import engine
from benchmarks.streams import TOLD, begin, check, stream_of

#: Where Linux tells of a process since it began. What `getrusage` says there has the peak in it of
#: who started the process.
_STATUS = Path("/proc/self/status")
_SIZES = (("map_inline", 1_000), ("map_elsewhere", 1_000), ("signals", 10_000))


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of a process in MB: after a run of one item, and after one of `items`."""

    run: str
    items: int
    before: float
    after: float


def peak_of(flow: str, items: int) -> Peak:
    """The peak of a new process that makes a run over so many items."""
    asked = [sys.executable, "-m", "benchmarks.memory", flow, str(items)]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    return Peak(**json.loads(done.stdout))


def all_peaks(items: list[int]) -> list[Peak]:
    """The peaks of maps of a thousand items, of ten thousand signals, and of dispatched maps of so
    many."""
    return [peak_of(*each) for each in (*_SIZES, *(("map_elsewhere", n) for n in items))]


async def _handled(items: int) -> Peak:
    """Signals to one subscription, all of which wait before the first is handled."""
    stream = stream_of(1)
    with engine("sqlite") as local:
        await begin(local, stream)
        peaks = []
        for size in (1, items):
            for _ in range(size):
                await local.client.emit(stream, "told", TOLD)
            await local.run_until_idle()
            peaks.append(_peak())
        await check(local, stream, 1 + items)
    return Peak("signals", items, *peaks)


async def _measured(name: str, items: int) -> Peak:
    if name == "signals":
        return await _handled(items)
    flow: Any = getattr(workflows, name)
    with engine("sqlite") as local:
        peaks = []
        for size in (1, items):
            handle = await local.client.start(flow, size)
            await local.run_until_idle()
            assert (await handle.get()).status == "COMPLETED"
            peaks.append(_peak())
    return Peak(name, items, *peaks)


def _peak() -> float:
    if not _STATUS.exists():  # macOS, which counts bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    told = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(told["VmHWM"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_measured(sys.argv[1], int(sys.argv[2]))))))
