"""Turns, answers, timers and cancels of one run in every order, up to a depth.

A story is stepped through all orders that can make a difference, of all port calls of all who take
part. Beyond the depth things go on in the usual order. In every one of them all laws hold and what
callers were told is true.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pytest

from examples.outside import connect
from stepwell import STEP_HOOK_TIMEOUT, hook, step, step_hook, workflow
from stepwell.core.records import RunStatus
from stepwell.testing.simulation import Explorer, Faults, Pruned, Simulation
from tests.simulation import scenarios
from tests.simulation.stories import Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A story whose orders are gone through: all of them (`depth` None), or up to a depth."""

    story: Story
    faults: Faults | None = None
    depth: int | None = None
    #: What the run may come to. Each must come about in some order.
    ends: frozenset[tuple[RunStatus, str | None]]
    workers: int = 2

    def __str__(self) -> str:
        kinds = self.faults.budget() if self.faults else {}
        told = " ".join(f"{kind}={count}" for kind, count in kinds.items() if count)
        return f"{self.story.name} {told}".strip()


_EVER = 10_000


@workflow(name="interleaved.timed")
async def timed() -> Any:
    answer = await hook("question", timeout="1h", on_timeout="return")
    return "too late" if answer is STEP_HOOK_TIMEOUT else answer


@step(name="interleaved.away", dispatch="worker")
async def away() -> str:
    return f"done {await step_hook('far')}"


@workflow(name="interleaved.elsewhere")
async def elsewhere() -> str:
    return await away()


_WORKFLOWS = {
    "asked": scenarios.asked,
    "raced": scenarios.raced,
    "timed": timed,
    "elsewhere": elsewhere,
}


def explore(search: Search) -> tuple[Explorer, set[tuple[RunStatus, str | None]]]:
    """Go through all orders; each must obey all laws. How the runs ended."""
    explorer = Explorer(search.depth or _EVER)
    ends: set[tuple[RunStatus, str | None]] = set()
    checked: set[Hashable] = set()
    for _ in explorer.runs():
        connect(":memory:")
        with Simulation(faults=search.faults, workers=search.workers) as sim:
            search.story.begin(sim)
            try:
                sim.run(explorer)
            except Pruned:
                continue
            ends |= {(header.status, header.result) for header in sim.headers()}
            state = sim.cluster.state()
            if state not in checked:
                checked.add(state)
                try:
                    sim.check()
                except AssertionError as error:
                    raise AssertionError("\n".join([str(error), *sim.trace])) from error
    return explorer, ends


def _story(name: str, *answers: tuple[str, int], **more: bool) -> Story:
    workflow = _WORKFLOWS[name]
    told = "".join(f", {hook} {payload}" for hook, payload in answers)
    return Story(name=f"{name}{told}{''.join(more)}", workflow=workflow, answers=answers, **more)


def _ends(*results: str | None) -> frozenset[tuple[RunStatus, str | None]]:
    return frozenset(
        (RunStatus.CANCELLED if result is None else RunStatus.COMPLETED, result)
        for result in results
    )


_ONE, _TWO = ("question", 1), ("question", 2)
WHOLE = (
    Search(story=_story("asked", _ONE), ends=_ends("1")),
    Search(story=_story("asked", _ONE, cancelled=True), ends=_ends("1", None)),
)
_ALONE = _story("asked", _ONE)
PARTS = (
    Search(story=_ALONE, faults=Faults(crashes=1), ends=_ends("1"), depth=10),
    Search(story=_ALONE, faults=Faults(freezes=1), ends=_ends("1"), depth=9),
    Search(story=_ALONE, faults=Faults(lost_replies=1), ends=_ends("1"), depth=11),
    Search(story=_story("asked", _ONE, _TWO), ends=_ends("1", "2"), depth=13),
    Search(story=_ALONE, faults=Faults(redriven=1), ends=_ends("1"), depth=11),
    Search(story=_story("asked", _ONE, _ONE), ends=_ends("1"), depth=12),
    Search(story=_story("asked", _ONE, _TWO, cancelled=True), ends=_ends("1", "2", None), depth=9),
    Search(story=_story("raced", ("left", 1), ("right", 2)), ends=_ends("1", "2"), depth=10),
    Search(
        story=_story("timed", _ONE),
        faults=Faults(delays=1, doubled=1),
        ends=_ends("1", '"too late"'),
        depth=12,
    ),
    Search(
        story=_story("elsewhere", ("far", 1), ("far", 2)),
        ends=_ends('"done 1"', '"done 2"'),
        depth=9,
    ),
)


@pytest.mark.parametrize("search", WHOLE, ids=str)
def test_every_order_keeps_every_promise(search: Search) -> None:
    explorer, ends = explore(search)
    assert explorer.exhausted
    assert ends == search.ends


@pytest.mark.parametrize("search", PARTS, ids=str)
def test_orders_up_to_a_depth_keep_every_promise(search: Search) -> None:
    explorer, ends = explore(search)
    assert explorer.exhausted
    assert explorer.cut
    assert ends == search.ends
