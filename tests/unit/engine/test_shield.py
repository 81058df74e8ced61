"""A shield: cancelling the branch that is in it takes effect when the block ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RetryPolicy, hook, shield, sleep, step, workflow
from stepwell.authoring.registry import registry
from stepwell.core.records import RunStatus
from stepwell.errors import RunCancelled, RunFailed
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

EFFECTS: list[str] = []

with registry.isolated():

    @step
    async def did(text: str) -> str:
        EFFECTS.append(text)
        return text

    @step(retry=RetryPolicy(max_attempts=1))
    async def breaks() -> None:
        raise OSError("down")


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    EFFECTS.clear()


def ends_cancelled(env: Environment, run: Any) -> None:
    with pytest.raises(RunCancelled):
        env.result(run)
    check_run(env, run)


def test_a_cancel_of_the_run_waits_for_the_end_of_the_block(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> None:
        async with shield():
            await did("reserve")
            await hook("paid")
            await did("book")
        await did("never")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run, "stop")
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    check_run(stepwell_env, run)
    [paid] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(paid.token, True)
    assert EFFECTS == ["reserve", "book"]
    ends_cancelled(stepwell_env, run)


def test_the_cancel_is_told_at_the_end_of_the_block_itself(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        try:
            async with shield():
                await hook("go")
            return "too far"
        except asyncio.CancelledError:
            return "told at the end"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    [go] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(go.token, 1)
    assert stepwell_env.result(run) == "told at the end"


def test_a_def_workflow_has_the_same_shield(stepwell_env: Environment) -> None:
    @workflow
    def flow() -> str:
        try:
            with shield():
                hook("go")
                did("inside")
            return "too far"
        except asyncio.CancelledError:
            did("after")
            raise

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    [go] = stepwell_env.hooks(run)
    assert EFFECTS == []
    stepwell_env.resume_hook(go.token, 1)
    assert EFFECTS == ["inside", "after"]
    ends_cancelled(stepwell_env, run)


def test_shields_are_nested(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> None:
        async with shield():
            async with shield():
                await hook("go")
            await did("between")
        await did("never")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    [go] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(go.token, 1)
    assert EFFECTS == ["between"]
    ends_cancelled(stepwell_env, run)


def test_other_branches_are_not_shielded(stepwell_env: Environment) -> None:
    async def guarded() -> None:
        async with shield():
            await sleep("1h")
            await did("guarded")

    async def bare() -> None:
        try:
            await hook("unanswered")
        finally:
            await did("bare ends")

    @workflow
    async def flow() -> None:
        await asyncio.gather(guarded(), bare())

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    assert EFFECTS == ["bare ends"]
    check_run(stepwell_env, run)
    stepwell_env.advance("1h")
    assert EFFECTS == ["bare ends", "guarded"]
    ends_cancelled(stepwell_env, run)


def test_a_task_group_that_fails_waits_for_a_shielded_branch(stepwell_env: Environment) -> None:
    async def guarded() -> None:
        async with shield():
            await sleep("1h")
            await did("guarded")
        await did("never")

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(guarded())
                group.create_task(breaks())
        except* Exception:
            await did("handled")
        return "done"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    assert EFFECTS == []
    check_run(stepwell_env, run)
    stepwell_env.advance("1h")
    assert stepwell_env.result(run) == "done"
    assert EFFECTS == ["guarded", "handled"]
    check_run(stepwell_env, run)


def test_a_timeout_around_a_shield_waits_for_its_end(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(60):
                async with shield():
                    await sleep("1h")
                    await did("guarded")
                await did("never")
        except TimeoutError:
            return "late"
        return "in time"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.advance("2m")
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    stepwell_env.advance("1h")
    assert stepwell_env.result(run) == "late"
    assert EFFECTS == ["guarded"]
    check_run(stepwell_env, run)


async def _by_timeout() -> None:
    async with asyncio.timeout(60):
        await hook("slow")


async def _by_wait_for() -> None:
    await asyncio.wait_for(hook("slow"), 60)


@pytest.mark.parametrize("bounded", [_by_timeout, _by_wait_for])
def test_a_timeout_inside_of_a_shield_works(bounded: Any, stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        async with shield():
            try:
                await bounded()
            except TimeoutError:
                return await did("late")
        return "in time"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.advance("2m")
    assert stepwell_env.result(run) == "late"
    check_run(stepwell_env, run)


def test_a_timeout_inside_of_a_shield_ends_cleanup_that_hangs(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> None:
        try:
            await hook("go")
        finally:
            async with shield():
                try:
                    async with asyncio.timeout(60):
                        await hook("unanswered")
                except TimeoutError:
                    await did("gave up")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    stepwell_env.advance("2m")
    assert EFFECTS == ["gave up"]
    ends_cancelled(stepwell_env, run)


def test_a_task_group_inside_of_a_shield_ends_its_own_block(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        async with shield():
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(breaks())
                    await hook("unanswered")
            except* Exception:
                await did("handled")
            await did("goes on")
        return "done"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == "done"
    assert EFFECTS == ["handled", "goes on"]
    check_run(stepwell_env, run)


def test_a_task_group_around_a_shield_does_not_cut_it_off(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        ended = "done"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(breaks())
                async with shield():
                    await sleep("1h")
                    await did("guarded")
                await did("never")
        except* Exception:
            ended = "failed"
        return ended

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.advance("1h")
    assert stepwell_env.result(run) == "failed"
    assert EFFECTS == ["guarded"]


def test_an_error_that_leaves_the_block_goes_first(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> None:
        async with shield():
            await hook("go")
            await breaks()

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    [go] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(go.token, 1)
    with pytest.raises(RunFailed):
        stepwell_env.result(run)
    check_run(stepwell_env, run)


def test_a_second_cancel_while_shielded_cleanup_runs_changes_nothing(
    stepwell_env: Environment,
) -> None:
    @workflow
    async def flow() -> None:
        try:
            await hook("go")
        finally:
            async with shield():
                await sleep("1d")
                await did("closed")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run, "one")
    stepwell_env.cancel(run, "two")
    stepwell_env.advance("1d")
    assert EFFECTS == ["closed"]
    ends_cancelled(stepwell_env, run)


def test_outside_of_a_run_it_does_nothing() -> None:
    async def plain() -> int:
        async with shield():
            return 1

    assert asyncio.run(plain()) == 1
    with shield():
        pass


def test_it_says_how_it_is_used(stepwell_env: Environment) -> None:
    @step
    async def inside() -> None:
        async with shield():
            pass

    @workflow
    async def in_a_step() -> None:
        await inside()

    @workflow
    async def with_the_wrong_word() -> None:
        with shield():
            pass

    for flow, words in ((in_a_step, "in the workflow"), (with_the_wrong_word, "async with")):
        run = stepwell_env.start(flow)
        stepwell_env.run_until_idle()
        with pytest.raises(RunFailed, match=words):
            stepwell_env.result(run)
