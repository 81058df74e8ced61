"""The journal: group commits, and flushes that are cut off."""

from __future__ import annotations

import asyncio

import pytest

from stepwell.adapters.local.clock import SkippingClock
from stepwell.core import events as e
from stepwell.core.events import Commit
from stepwell.core.state import RunState
from stepwell.engine.journal import AttemptJournal, Fenced, Journal, last_commit


class SlowLog:
    """A log whose writes land at once and whose replies take a round of the loop."""

    def __init__(self) -> None:
        self.commits: dict[int, Commit] = {}
        self.puts = 0

    async def append(self, run_id: str, commit: Commit) -> bool:
        self.puts += 1
        standing = self.commits.setdefault(commit.first, commit)
        await asyncio.sleep(0)
        return (standing.turn, standing.number) == (commit.turn, commit.number)


def journal(log: SlowLog, turn: str = "t", *, clock: int = 1, ends: int | None = None) -> Journal:
    store: object = log
    begun = Journal(store, SkippingClock(clock), "r", turn, RunState(), ends=ends)  # type: ignore[arg-type]
    begun.record(e.RunStarted(at=1, workflow="w", version="1", input="{}", seed="s"))
    return begun


def completed(number: int) -> e.StepCompleted:
    return e.StepCompleted(at=1, step=f"s:{number}", name="s", digest="d", attempt=1, result="1")


def test_what_is_recorded_during_a_commit_leaves_with_the_next_one() -> None:
    async def play() -> None:
        log = SlowLog()
        begun = journal(log)
        first = asyncio.create_task(begun.flush())
        await asyncio.sleep(0)
        for number in range(100):
            begun.record(completed(number))
        await asyncio.gather(first, *(begun.flush() for _ in range(10)))
        assert [(c.first, c.last) for c in log.commits.values()] == [(1, 1), (2, 101)]
        assert begun.durable == 101

    asyncio.run(play())


def test_a_flush_that_is_cancelled_does_not_fence_its_own_turn() -> None:
    async def play() -> None:
        log = SlowLog()
        begun = journal(log)
        cut_off = asyncio.create_task(begun.flush())
        await asyncio.sleep(0)
        begun.record(completed(1))
        cut_off.cancel()
        await asyncio.wait([cut_off])
        await begun.flush()
        assert [(c.first, c.last) for c in log.commits.values()] == [(1, 1), (2, 2)]

    asyncio.run(play())


def test_the_loser_of_an_event_number_is_fenced_for_good() -> None:
    async def play() -> None:
        log = SlowLog()
        await journal(log, "other").flush()
        begun = journal(log)
        for _ in range(2):
            with pytest.raises(Fenced):
                await begun.flush()
        assert begun.durable == 0

    asyncio.run(play())


def test_what_an_attempt_learns_leaves_with_its_outcome_and_not_as_a_commit() -> None:
    async def play() -> None:
        log = SlowLog()
        store: object = log
        state = RunState()
        state.apply(e.RunStarted(at=1, workflow="w", version="1", input="{}", seed="s"))
        learned = AttemptJournal(store, SkippingClock(1), "r", "m#1#n", state)  # type: ignore[arg-type]
        opened = e.HookOpened(at=2, hook="s:1>h:1", name="h", step="s:1")
        learned.record(opened)
        assert not learned.needs_flush
        await learned.flush()
        assert log.puts == 0
        assert learned.events == (opened,)
        # What it saves is judged by what was durable when it began.
        assert learned.durable == 1
        assert state.hooks["s:1>h:1"].open

    asyncio.run(play())


def test_a_turn_that_goes_on_for_too_long_commits_no_more() -> None:
    async def play() -> None:
        log = SlowLog()
        await journal(log, clock=99, ends=100).flush()
        assert len(log.commits) == 1
        with pytest.raises(Fenced, match="longer than any"):
            await journal(log, clock=100, ends=100).flush()
        assert log.puts == 1

    asyncio.run(play())


def test_only_turns_of_subscriptions_have_an_end() -> None:
    assert last_commit("sub-1", 1_000) == 1_000 + 12 * 3_600_000
    assert last_commit("other", 1_000) is None
