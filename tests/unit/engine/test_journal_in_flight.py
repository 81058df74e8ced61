"""The journal while a commit is in flight: nobody's events are lost, and none leaves twice."""

from __future__ import annotations

import asyncio

from stepwell.adapters.local.clock import SkippingClock
from stepwell.core import events as e
from stepwell.core.events import Commit
from stepwell.core.state import RunState
from stepwell.engine.journal import Journal


class GatedLog:
    """A log whose replies come when the test lets them."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.gate = asyncio.Event()

    async def append(self, run_id: str, commit: Commit) -> bool:
        self.commits.append(commit)
        await self.gate.wait()
        return True


def completed(number: int) -> e.StepCompleted:
    return e.StepCompleted(at=1, step=f"s:{number}", name="s", digest="d", attempt=1, result="1")


def test_who_flushes_during_a_commit_waits_for_it_and_leaves_with_the_next() -> None:
    async def play() -> None:
        log = GatedLog()
        store: object = log
        begun = Journal(store, SkippingClock(1), "r", "t", RunState())  # type: ignore[arg-type]
        begun.record(e.RunStarted(at=1, workflow="w", version="1", input="{}", seed="s"))
        first = asyncio.create_task(begun.flush())
        await asyncio.sleep(0)
        begun.record(completed(1))
        second = asyncio.create_task(begun.flush())
        await asyncio.sleep(0)
        assert len(log.commits) == 1
        log.gate.set()
        await asyncio.gather(first, second)
        assert [(c.first, c.last) for c in log.commits] == [(1, 1), (2, 2)]
        assert begun.durable == 2

    asyncio.run(play())
