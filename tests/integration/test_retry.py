"""Retries: which failures are tried again, when, and that no crash or wait loses the count."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

import pytest

from stepwell import (
    FatalError,
    RetryableError,
    RetryPolicy,
    StepFailed,
    StepTimeout,
    current,
    hook,
    step,
    workflow,
)
from stepwell.errors import RunFailed
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, essence, found, kinds

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class Flaky(Exception):
    pass


def test_delays_grow_to_their_limit_and_the_tries_are_counted(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=5, initial="10s", factor=3, max_delay="1m", jitter="none"))
    async def broken() -> None:
        raise Flaky(f"try {current.attempt}")

    @workflow
    async def flow() -> str:
        try:
            await broken()
        except StepFailed as failed:
            return f"{failed.attempts}: {failed.message}"
        return "never"

    run = env.start(flow)
    assert env.run_to_end(run) == "5: try 5"
    delays = [event.due - event.at for event in found(env, run, "StepRetryScheduled")]
    assert delays == [10_000, 30_000, 60_000, 60_000]


def test_the_default_is_four_tries(env: Environment) -> None:
    tries: list[int] = []

    @step
    async def broken() -> None:
        tries.append(current.attempt)
        raise Flaky

    @workflow
    async def flow() -> None:
        await broken()

    run = env.start(flow)
    with pytest.raises(RunFailed):
        env.run_to_end(run)
    assert tries == [1, 2, 3, 4]


def test_full_jitter_stays_within_the_delay(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=20, initial="10s", factor=1))
    async def broken() -> None:
        raise Flaky

    @workflow
    async def flow() -> None:
        await broken()

    run = env.start(flow)
    with pytest.raises(RunFailed):
        env.run_to_end(run)
    delays = [event.due - event.at for event in found(env, run, "StepRetryScheduled")]
    assert all(0 <= delay < 10_000 for delay in delays)
    assert len(set(delays)) > 10


def test_no_try_comes_before_its_time(env: Environment) -> None:
    tries: list[int] = []

    @step(retry=RetryPolicy(initial="1h", max_delay="1d", jitter="none"))
    async def broken() -> str:
        tries.append(current.attempt)
        if current.attempt < 3:
            raise Flaky
        return "mended"

    @workflow
    async def flow() -> str:
        return await broken()

    run = env.start(flow)
    env.advance("59m59s")
    assert tries == [1]
    env.advance("1s")
    assert tries == [1, 2]
    env.advance("1h59m59s")
    assert tries == [1, 2]
    env.advance("1s")
    assert tries == [1, 2, 3]
    assert env.result(run) == "mended"


def test_a_fatal_error_is_final_and_can_be_caught(env: Environment) -> None:
    tries: list[int] = []

    @step
    async def broken() -> None:
        tries.append(1)
        raise FatalError("give up")

    @workflow
    async def flow() -> str:
        try:
            await broken()
        except StepFailed as failed:
            return f"{failed.type}: {failed.message}"
        return "never"

    assert env.run(flow) == "stepwell.errors.FatalError: give up"
    assert tries == [1]


@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [
        ("1s", 1_000),
        ("1h30m", 5_400_000),
        (90, 90_000),
        (0.5, 500),
        (dt.timedelta(minutes=2), 120_000),
        (START + dt.timedelta(hours=3), 10_800_000),
        (dt.datetime(2030, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))), 3_600_000),
        (START - dt.timedelta(hours=3), 0),
    ],
)
def test_a_stated_delay_replaces_that_of_the_policy(
    env: Environment, retry_after: Any, delay: int
) -> None:
    @step(retry=RetryPolicy(initial="7s"))
    async def limited() -> int:
        if current.attempt == 1:
            raise RetryableError("rate limit", retry_after=retry_after)
        return env.clock.now()

    @workflow
    async def flow() -> int:
        return await limited()

    began = env.clock.now()
    run = env.start(flow)
    assert env.run_to_end(run) == began + max(delay, 0)


def test_a_stated_delay_does_not_add_tries(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=2))
    async def limited() -> None:
        raise RetryableError("rate limit", retry_after="1s")

    @workflow
    async def flow() -> int:
        try:
            await limited()
        except StepFailed as failed:
            return failed.attempts
        return 0

    run = env.start(flow)
    assert env.run_to_end(run) == 2


def test_only_the_named_errors_are_tried_again(env: Environment) -> None:
    policy = RetryPolicy(retry_on=(OSError,), give_up_on=(FileNotFoundError,), jitter="none")
    tries: list[str] = []

    @step(retry=policy)
    async def fails(kind: str) -> None:
        tries.append(kind)
        raise {"refused": ConnectionRefusedError, "missing": FileNotFoundError, "bad": ValueError}[
            kind
        ]

    @workflow
    async def flow(kind: str) -> int:
        try:
            await fails(kind)
        except StepFailed as failed:
            return failed.attempts
        return 0

    for kind, attempts in (("refused", 4), ("missing", 1), ("bad", 1)):
        run = env.start(flow, kind)
        assert env.run_to_end(run) == attempts
    assert tries.count("refused") == 4


def test_an_exit_is_a_failure_and_not_the_end_of_the_process(env: Environment) -> None:
    @step
    async def leaves() -> None:
        raise SystemExit(3)

    @step
    def leaves_too() -> None:
        raise SystemExit(3)

    @workflow
    async def flow() -> list[str]:
        kinds = []
        for leave in (leaves, leaves_too.aio):
            try:
                await leave()
            except StepFailed as failed:
                kinds.append(failed.type)
        return kinds

    assert env.run(flow) == ["SystemExit", "SystemExit"]


def test_a_timeout_is_a_failed_try(env: Environment) -> None:
    @step(timeout="20ms", retry=RetryPolicy(max_attempts=2, jitter="none"))
    async def slow() -> str:
        if current.attempt == 1:
            await asyncio.Event().wait()
        return "in time"

    @step(timeout="20ms", retry=RetryPolicy(give_up_on=(TimeoutError,)))
    async def given_up() -> str:
        await asyncio.Event().wait()
        return "never"

    @workflow
    async def flow() -> list[Any]:
        first = await slow()
        try:
            return [first, await given_up()]
        except StepTimeout as timeout:
            return [first, timeout.attempts]

    run = env.start(flow)
    assert env.run_to_end(run) == ["in time", 1]


def test_other_branches_go_on_while_one_waits_for_its_next_try(env: Environment) -> None:
    order: list[str] = []

    @step(retry=RetryPolicy(initial="1h", max_delay="1d", jitter="none"))
    async def flaky() -> None:
        order.append(f"flaky {current.attempt}")
        if current.attempt == 1:
            raise Flaky

    @step
    async def steady(answer: str) -> None:
        order.append(answer)

    @workflow
    async def flow() -> None:
        async def ask() -> None:
            await steady(await hook("question"))

        await asyncio.gather(flaky(), ask())

    run = env.start(flow)
    env.run_until_idle()
    [question] = env.hooks()
    env.resume_hook(question.token, "answered")
    assert order == ["flaky 1", "answered"]
    env.advance("1h")
    assert order == ["flaky 1", "answered", "flaky 2"]
    assert env.result(run) is None


def test_the_wait_and_the_count_outlive_their_process(
    process: Callable[..., AbstractContextManager[Environment]],
) -> None:
    tries: list[int] = []

    @step(retry=RetryPolicy(max_attempts=3, initial="1h", max_delay="1h", factor=1, jitter="none"))
    async def broken() -> None:
        tries.append(current.attempt)
        raise Flaky

    @workflow
    async def flow() -> None:
        await broken()

    with process() as env:
        run = env.start(flow)
        env.run_until_idle()
    with process() as env:
        env.advance("59m")
        assert tries == [1]
        env.advance("1m")
        assert tries == [1, 2]
    with process() as env:
        env.advance("1h")
        assert tries == [1, 2, 3]
        with pytest.raises(RunFailed):
            env.wait_for(env.client.result(run.id, timeout=0))


def test_a_crash_anywhere_never_adds_a_failed_try() -> None:
    @step(retry=RetryPolicy(max_attempts=3, initial="1h", max_delay="1h", factor=1, jitter="none"))
    async def flaky() -> int:
        if current.attempt < 3:
            raise Flaky
        return current.attempt

    @workflow
    async def flow() -> int:
        return await flaky()

    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        runs.append(env.start(flow))
        env.advance("3h")

    for env in crashes_of(scenario):
        run = runs[-1]
        assert env.result(run) == 3
        counted = [event.attempt for event in found(env, run, "StepRetryScheduled")]
        assert counted in ([1, 2], [1], [2])
        assert [event.attempt for event in found(env, run, "StepStarted")] in ([], [1], [2], [3])


def test_a_def_step_is_tried_again_like_any_other(env: Environment) -> None:
    @step(retry=RetryPolicy(initial="1h", max_delay="1d", jitter="none"))
    def flaky() -> int:
        if current.attempt == 1:
            raise Flaky
        return current.attempt

    @workflow
    def flow() -> int:
        return flaky()

    run = env.start(flow)
    env.run_until_idle()
    assert kinds(env, run) == ["RunStarted", "StepRetryScheduled"]
    assert [wait.kind for wait in env.get(run).waiting] == ["retry"]
    assert env.run_to_end(run) == 2
    assert essence(env, run)[-1][0] == "RunCompleted"


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_a_failed_attempt_is_logged_without_what_it_says(
    dispatch: Literal["inline", "worker"], caplog: pytest.LogCaptureFixture
) -> None:
    @step(dispatch=dispatch, retry=RetryPolicy(max_attempts=1))
    async def quotes() -> None:
        raise ValueError("card 4242")

    @workflow
    async def flow() -> None:
        await quotes()

    with caplog.at_level(logging.INFO, "stepwell.engine"), Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
    # Others may be of what earlier tests have left to the garbage collector.
    records = [record for record in caplog.records if record.name == "stepwell.engine"]
    assert [(record.getMessage(), record.__dict__["step_id"]) for record in records] == [
        (f"run {run.id}: attempt 1 of step quotes:1 failed with ValueError", "quotes:1")
    ]
