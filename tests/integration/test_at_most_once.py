"""Steps that are never made twice: `at_most_once=True`."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    RetryPolicy,
    StepInterrupted,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.engine.ports import TransientError
from stepwell.errors import RunFailed
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, found, kinds


def test_a_start_is_durable_before_the_body(env: Environment) -> None:
    seen: list[list[str]] = []

    @step(at_most_once=True)
    async def wire() -> None:
        seen.append(env.port_calls.copy())

    @workflow
    async def flow() -> None:
        await wire()

    env.crash_at(10**9)
    run = env.start(flow)
    env.run_until_idle()
    assert seen == [["store.load", "store.append"]]
    assert kinds(env, run) == ["RunStarted", "StepStarted", "StepCompleted", "RunCompleted"]


def test_only_such_steps_cost_one_more_write(env: Environment) -> None:
    @step(at_most_once=True)
    async def once() -> None: ...

    @step
    async def plain() -> None: ...

    @workflow
    async def flow() -> None:
        await plain()
        await once()
        await plain()

    env.crash_at(10**9)
    env.start(flow)
    env.run_until_idle()
    # The start leaves with the outcome of the step before; one commit for each of the others.
    assert env.port_calls.count("store.append") == 3


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_wherever_the_process_dies_the_body_runs_at_most_once(dispatch: Any) -> None:
    ran: list[str] = []
    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        ran.clear()

        @step(at_most_once=True, dispatch=dispatch)
        async def wire() -> str:
            ran.append("wired")
            return "wired"

        @step
        async def after(what: str) -> str:
            return what

        @workflow
        async def flow() -> str:
            try:
                return await after(await wire())
            except StepInterrupted as error:
                return f"{error.name} was interrupted"

        runs.append(env.start(flow))
        env.run_until_idle()
        env.advance("20h")

    ends = set()
    for env in crashes_of(scenario):
        ends.add(env.result(runs[-1]))
        assert len(ran) <= 1
        assert ran or env.result(runs[-1]) == "wire was interrupted"
    assert ends == {"wired", "wire was interrupted"}


def test_an_interrupted_attempt_is_the_last_one(env: Environment) -> None:
    tries: list[int] = []

    @step(at_most_once=True, retry=RetryPolicy(max_attempts=5))
    async def wire() -> None:
        tries.append(1)
        env.crash_at(1)

    @workflow
    async def flow() -> None:
        await wire()

    with pytest.raises(RunFailed, match="the process died in attempt 1, and it was the last one"):
        env.run(flow)
    assert tries == [1]


def test_a_policy_that_names_the_interruption_tries_again(env: Environment) -> None:
    tries: list[int] = []

    @step(
        at_most_once=True,
        retry=RetryPolicy(initial="1m", jitter="none", retry_on=(OSError, StepInterrupted)),
    )
    async def wire() -> int:
        tries.append(1)
        if len(tries) == 1:
            env.crash_at(1)
        if len(tries) == 2:
            raise OSError("down")
        return len(tries)

    @workflow
    async def flow() -> int:
        return await wire()

    run = env.start(flow)
    env.run_until_idle()
    env.advance("10m")
    assert env.result(run) == 3
    assert [each.attempt for each in found(env, run, "StepStarted")] == [1, 2, 3]
    assert [each.attempt for each in found(env, run, "StepRetryScheduled")] == [1, 2]


def test_an_entry_after_a_hook_is_begun_once_too() -> None:
    entries: list[int] = []
    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        entries.clear()

        @step(at_most_once=True)
        async def ask() -> str:
            entries.append(1)
            answer: str = await step_hook("question")
            entries.append(2)
            return answer

        @workflow
        async def flow() -> str:
            try:
                return await ask()
            except StepInterrupted:
                return "interrupted"

        runs.append(env.start(flow))
        env.run_until_idle()
        for each in env.hooks(runs[-1]):
            env.resume_hook(each.token, "yes")
        env.run_until_idle()

    ends = set()
    for env in crashes_of(scenario):
        ends.add(env.result(runs[-1]))
        assert entries.count(2) <= 1
        assert entries.count(1) <= 2
    assert ends == {"yes", "interrupted"}


def test_a_wait_before_it_changes_nothing(env: Environment) -> None:
    ran: list[int] = []

    @step(at_most_once=True)
    def wire() -> int:
        ran.append(1)
        return len(ran)

    @workflow
    def flow() -> list[int]:
        first = wire()
        sleep("1h")
        return [first, wire()]

    run = env.start(flow)
    env.run_until_idle()
    env.advance("2h")
    assert env.result(run) == [1, 2]


def test_a_dispatched_attempt_whose_port_failed_is_not_made_again(env: Environment) -> None:
    ran: list[int] = []

    @step(at_most_once=True, dispatch="worker")
    async def wire() -> None:
        ran.append(1)
        await save_step_checkpoint("kept")

    @workflow
    async def flow() -> str:
        try:
            await wire()
        except StepInterrupted:
            return "interrupted"
        return "wired"

    async def throttled(*_: Any) -> Any:
        raise TransientError("throttled")

    env._local.store.put_checkpoint = throttled  # type: ignore[method-assign]
    run = env.start(flow)
    env.run_until_idle()
    env.advance("20h")
    assert env.result(run) == "interrupted"
    assert ran == [1]
