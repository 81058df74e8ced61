"""Timeouts of steps: async bodies are cancelled, sync ones abandoned, what is late is dropped."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import (
    Result,
    RetryPolicy,
    StepTimeout,
    current,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.errors import DefinitionError, Suspended
from stepwell.testing import Environment
from tests.integration.histories import kinds

ONCE = RetryPolicy(max_attempts=1)


def test_an_async_body_is_cancelled_and_cleans_up(env: Environment) -> None:
    cleaned: list[str] = []

    @step(timeout="20ms", retry=ONCE)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("cleaned")

    @workflow
    async def flow() -> list[Any]:
        try:
            await slow()
        except StepTimeout as timeout:
            return [timeout.name, timeout.type, timeout.attempts]
        return []

    assert env.run(flow) == ["slow", "TimeoutError", 1]
    assert cleaned == ["cleaned"]


def test_a_timeout_is_told_alike_on_every_pass(env: Environment) -> None:
    seen: list[str] = []

    @step(timeout="20ms", retry=ONCE)
    async def slow() -> None:
        await asyncio.Event().wait()

    @workflow
    async def flow() -> None:
        try:
            await slow()
        except StepTimeout as timeout:
            seen.append(f"{type(timeout).__name__} {timeout} {timeout.cause}")
        await sleep("1h")

    env.run_to_end(env.start(flow))
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_a_body_that_swallows_its_cancellation_has_timed_out_all_the_same(
    env: Environment,
) -> None:
    @step(timeout="20ms", retry=ONCE)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    @workflow
    async def flow() -> str:
        try:
            return await stubborn()
        except StepTimeout:
            return "timed out"

    assert env.run(flow) == "timed out"


def test_a_body_that_never_ends_is_left_behind(env: Environment) -> None:
    gate = asyncio.Event()

    @step(timeout="20ms", retry=ONCE)
    async def endless() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    @workflow
    async def flow() -> str:
        try:
            await endless()
        except StepTimeout:
            return "timed out"
        return "never"

    assert env.run(flow) == "timed out"
    env.wait_for(_open(gate))


async def _open(gate: asyncio.Event) -> None:
    gate.set()
    await asyncio.sleep(0)


def test_what_an_abandoned_thread_does_late_has_no_effect(env: Environment) -> None:
    gate, ended = threading.Event(), threading.Event()
    late: list[BaseException] = []
    early: list[Any] = []
    kept: list[Any] = []

    @step(timeout="20ms", retry=RetryPolicy(max_attempts=2, initial=0, max_delay=0))
    def stuck() -> str:
        if current.attempt == 2:
            kept.append(load_step_checkpoint())
            return "second try"
        try:
            save_step_checkpoint({"at": "early"})
            early.append({"at": "early"})
        except BaseException:
            early.append(None)  # this thread began too late even for that
        gate.wait()
        assert current.cancelled
        for act in (
            lambda: save_step_checkpoint({"at": "late"}),
            load_step_checkpoint,
            lambda: step_hook("late"),
        ):
            try:
                act()
            except BaseException as error:
                late.append(error)
        ended.set()
        return "late"

    @workflow
    async def flow() -> str:
        return await stuck.aio()

    run = env.start(flow)
    assert env.run_to_end(run) == "second try"
    before = kinds(env, run)
    gate.set()
    env.wait_for(asyncio.to_thread(ended.wait))
    assert [type(error) for error in late] == [Suspended] * 3
    assert kept == early
    assert kinds(env, run) == before
    assert env.hooks() == ()
    checkpoint = env.wait_for(env._ports.store.get_checkpoint(run.id, "stuck:1"))
    assert (checkpoint and checkpoint.value) == (early[0] and '{"at":"early"}')


def test_an_abandoned_thread_finds_even_a_closed_loop_out_of_reach() -> None:
    gate, ended = threading.Event(), threading.Event()
    late: list[BaseException] = []

    @step(timeout="20ms", retry=ONCE)
    def stuck() -> None:
        gate.wait()
        try:
            save_step_checkpoint({"at": "late"})
        except BaseException as error:
            late.append(error)
        ended.set()

    @workflow
    async def flow() -> str:
        try:
            await stuck.aio()
        except StepTimeout:
            return "timed out"
        return "never"

    with Environment() as env:
        assert env.run(flow) == "timed out"
    gate.set()
    ended.wait()
    assert [type(error) for error in late] == [Suspended]


def test_late_output_is_not_stored(env: Environment) -> None:
    @step(stream=True, timeout="20ms", retry=ONCE)
    async def talk() -> AsyncIterator[str | Result[str]]:
        yield "early"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield "late"
        yield Result("late")

    @workflow
    async def flow() -> str:
        try:
            return str(await talk())
        except StepTimeout:
            return "timed out"

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == "timed out"
    assert [chunk.value for chunk in env.output(run, "talk:1")] == ["early"]


@pytest.mark.parametrize("timeout", [0, -1, "0s", "nonsense", 0.0])
def test_a_timeout_that_is_not_above_zero_is_refused(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match="timeout"):

        @step(timeout=timeout)
        async def never() -> None: ...


def test_waiting_for_an_answer_is_not_part_of_a_try(env: Environment) -> None:
    @step(timeout="1h")
    async def ask() -> str:
        answer: str = await step_hook("question")
        return answer

    @workflow
    async def flow() -> str:
        return await ask()

    run = env.start(flow)
    env.advance("30d")
    [question] = env.hooks()
    env.resume_hook(question.token, "at last")
    assert env.result(run) == "at last"


def test_a_body_sees_when_it_will_be_cut_off(env: Environment) -> None:
    @step(timeout="1h")
    async def look() -> float:
        assert current.deadline is not None
        return current.deadline - time.monotonic()

    @workflow
    async def flow() -> float:
        return await look()

    assert 3_000 < env.run(flow) <= 3_600
