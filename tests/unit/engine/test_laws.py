"""The checks of `stepwell.testing.laws` let good histories pass and find each broken law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell import hook, sleep, step, workflow
from stepwell.client import Recorded
from stepwell.core import events as e
from stepwell.core.lifecycle import CorruptHistory
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from stepwell.testing.laws import (
    check_header,
    check_history,
    check_numbers,
    check_order,
    check_outcomes,
    check_replay,
    check_run,
    check_times,
)

STARTED = e.RunStarted(at=10, workflow="w", version="1", input="{}", seed="s")
DONE = e.StepCompleted(at=20, step="a:1", name="a", digest="d", attempt=1, result="1")
OPENED = e.HookOpened(at=20, hook="h:1", name="h", expires_at=90)
ANSWER = e.HookReceived(at=30, hook="h:1", name="h", decision_id="x", payload="1")
EXPIRED = e.HookExpired(at=90, hook="h:1", name="h")
FIRED = e.TimerFired(at=50, timer="sleep:1", name="sleep", due=50)
ENDED = e.RunCompleted(at=99, result="null")


def test_a_good_history_passes() -> None:
    check_history([STARTED, DONE, OPENED, FIRED, EXPIRED, ENDED])


@pytest.mark.parametrize(
    "events",
    [[], [DONE], [STARTED, STARTED], [STARTED, ENDED, DONE], [STARTED, ENDED, ENDED]],
)
def test_a_log_without_its_beginning_or_with_more_after_its_end(events: Any) -> None:
    with pytest.raises((AssertionError, CorruptHistory)):
        check_history(events)
    if STARTED not in events[1:]:
        with pytest.raises(AssertionError):
            check_order(events)


@pytest.mark.parametrize("twice", [DONE, ANSWER, FIRED])
def test_an_outcome_comes_once(twice: e.Event) -> None:
    with pytest.raises(AssertionError, match="more than one"):
        check_outcomes([STARTED, twice, twice])


@pytest.mark.parametrize(
    "early",
    [
        [STARTED, replace(FIRED, at=49)],
        [STARTED, OPENED, replace(EXPIRED, at=89)],
        [STARTED, FIRED, DONE],
    ],
)
def test_nothing_is_early_and_time_does_not_run_backwards(early: list[e.Event]) -> None:
    with pytest.raises(AssertionError):
        check_times(early)


def test_a_try_before_its_retry_is_due_is_early(stepwell_env: Environment) -> None:
    failure: Any = {"type": "X", "message": "m"}
    retry = e.StepRetryScheduled(
        at=20, step="a:1", name="a", digest="d", attempt=1, error=failure, due=40
    )
    check_times([STARTED, retry, replace(DONE, at=40)])
    with pytest.raises(AssertionError):
        check_times([STARTED, retry, replace(DONE, at=39)])


def test_a_gap_in_the_numbers() -> None:
    with pytest.raises(AssertionError):
        check_numbers([Recorded(1, STARTED), Recorded(3, DONE)])


def test_a_header_that_lags_and_a_wait_without_anything_to_wait_for(
    stepwell_env: Environment,
) -> None:
    @workflow
    async def flow() -> None:
        await hook("go")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    check_run(stepwell_env, run)
    header = stepwell_env.get(run)
    events = [each.event for each in stepwell_env.history(run)]
    wrong = [
        replace(header, last_event=header.last_event - 1),
        replace(header, waiting=()),
        replace(header, status=RunStatus.COMPLETED),
        replace(header, result="1"),
    ]
    for each in wrong:
        with pytest.raises(AssertionError):
            check_header(events, each)
    with pytest.raises(AssertionError, match="nothing can wake it"):
        check_header([STARTED], replace(header, last_event=1, waiting=()))


def test_a_replay_that_asks_otherwise(stepwell_env: Environment) -> None:
    @step
    async def one() -> int:
        return 1

    @step
    async def two() -> int:
        return 2

    @workflow
    async def flow() -> int:
        await one()
        await sleep("1s")
        return await two()

    @workflow
    async def changed() -> int:
        await one()
        return await two()

    @workflow
    async def another_result() -> int:
        await one()
        await sleep("1s")
        return await two() + 1

    flips: list[int] = []

    @workflow
    async def moody() -> int:
        flips.append(1)
        if len(flips) % 2:
            await one()
        await sleep("1s")
        return await two()

    run = stepwell_env.start(flow)
    stepwell_env.advance("1s")
    events = [each.event for each in stepwell_env.history(run)]
    assert check_replay(events, flow.definition) == ["one:1", "sleep:1", "two:1"]
    for unfit in (changed, another_result, moody):
        with pytest.raises(AssertionError):
            check_replay(events, unfit.definition)
