"""Sleep: durable, exact, never early, whoever wakes the run."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from stepwell import hook, now, sleep, step, workflow
from stepwell.errors import RunFailed
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, essence, found, kinds

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("duration", "millis"),
    [
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("1.5s", 1_500),
        (2, 2_000),
        (0.25, 250),
        (dt.timedelta(minutes=3), 180_000),
        ("1d", 86_400_000),
    ],
)
def test_a_sleep_lasts_exactly_as_long_as_asked(
    env: Environment, duration: Any, millis: int
) -> None:
    @workflow
    async def flow() -> None:
        await sleep(duration)

    run = env.start(flow)
    began = env.clock.now()
    env.advance(dt.timedelta(milliseconds=millis - 1))
    assert kinds(env, run)[-1] == "TimerStarted"
    env.advance("1ms")
    [fired] = found(env, run, "TimerFired")
    assert fired.due == began + millis
    assert env.result(run) is None


def test_a_sleep_until_a_time_survives_any_number_of_replays(env: Environment) -> None:
    when = START + dt.timedelta(hours=2)

    @workflow
    async def flow() -> str:
        await sleep(when)
        await sleep("1h")
        await sleep(when)
        await sleep("1h")
        return now().isoformat()

    run = env.start(flow)
    assert env.run_to_end(run) == "2030-01-01T04:00:00+00:00"


def test_a_time_that_has_passed_returns_at_once(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        await sleep(START - dt.timedelta(days=1))
        await sleep(0)
        return "done"

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == "done"


@pytest.mark.parametrize("bad", ["30", "1x", "", -1, dt.datetime(2031, 1, 1)])  # noqa: DTZ001
def test_a_bad_duration_is_refused_with_what_is_accepted(env: Environment, bad: Any) -> None:
    @workflow
    async def flow() -> None:
        await sleep(bad)

    run = env.start(flow)
    env.run_until_idle()
    with pytest.raises(RunFailed, match="ValueError"):
        env.result(run)


def test_another_wake_up_does_not_cut_a_sleep_short(env: Environment) -> None:
    @workflow
    async def flow() -> list[str]:
        order: list[str] = []

        async def rest() -> None:
            await sleep("1h")
            order.append("slept")

        async def ask() -> None:
            order.append(await hook("question"))

        await asyncio.gather(rest(), ask())
        return order

    run = env.start(flow)
    env.run_until_idle()
    [question] = env.hooks()
    env.advance("59m")
    env.resume_hook(question.token, "answered")
    assert kinds(env, run)[-1] == "HookReceived"
    env.advance("59s")
    assert not env.get(run).status.terminal
    env.advance("1s")
    assert env.result(run) == ["answered", "slept"]


def test_two_sleeps_end_each_in_its_time(env: Environment) -> None:
    @workflow
    async def flow() -> list[str]:
        order: list[str] = []

        async def rest(duration: str) -> None:
            await sleep(duration)
            order.append(duration)

        await asyncio.gather(rest("3h"), rest("1h"), rest("2h"))
        return order

    run = env.start(flow)
    assert env.run_to_end(run) == ["1h", "2h", "3h"]


def test_a_sleep_outlives_its_process(
    process: Callable[..., AbstractContextManager[Environment]],
) -> None:
    @workflow
    async def flow() -> str:
        await sleep("10d")
        return "awake"

    with process() as env:
        run = env.start(flow)
        env.run_until_idle()
    with process() as env:
        env.advance("9d")
        header = env.wait_for(env.client.get(run.id))
        assert not header.status.terminal
        env.advance("1d")
        assert env.wait_for(env.client.result(run.id, timeout=0)) == "awake"


def test_a_crash_anywhere_in_a_sleep_neither_loses_nor_shortens_it() -> None:
    @workflow
    async def flow() -> str:
        await sleep("1h")
        await sleep("1h")
        return now().isoformat()

    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        runs.append(env.start(flow))
        env.advance("119m")
        assert not env.get(runs[-1]).status.terminal
        env.advance("2m")

    histories = []
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "2030-01-01T02:00:00+00:00"
        histories.append(essence(env, runs[-1]))
    assert all(history == histories[0] for history in histories)


def test_a_step_is_told_to_wait_in_the_workflow(env: Environment) -> None:
    @step
    async def doze() -> None:
        await sleep("1s")

    @workflow
    async def flow() -> None:
        await doze()

    run = env.start(flow)
    env.run_until_idle()
    with pytest.raises(RunFailed, match="a step cannot wait durably"):
        env.result(run)


def test_a_def_workflow_sleeps_by_the_same_clock(env: Environment) -> None:
    @workflow
    def flow() -> str:
        sleep("1h")
        return now().isoformat()

    run = env.start(flow)
    assert env.run_to_end(run) == "2030-01-01T01:00:00+00:00"


def test_outside_a_run_a_sleep_is_a_plain_one() -> None:
    @workflow
    async def flow() -> str:
        await sleep(0)
        return "done"

    @workflow
    def blocking() -> str:
        sleep(0)
        return "done"

    assert asyncio.run(flow()) == "done"
    assert blocking() == "done"
