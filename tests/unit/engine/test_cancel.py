"""A cancel reaches the workflow where it waits; its cleanup is recorded and replays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RetryPolicy, hook, sleep, step, step_hook, workflow
from stepwell.authoring.registry import Registry, registry
from stepwell.core import events as e
from stepwell.core.records import RunStatus
from stepwell.engine.turn import Engine
from stepwell.errors import RunCancelled
from stepwell.testing import Environment
from stepwell.testing.laws import check_replay, check_run

EFFECTS: list[str] = []

with registry.isolated():

    @step
    async def note(text: str) -> str:
        EFFECTS.append(text)
        return text

    @step(retry=RetryPolicy(max_attempts=3, initial="1m", jitter="none"))
    async def flaky() -> None:
        raise OSError("down")

    @step
    async def asks() -> Any:
        return await step_hook("inner")


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    EFFECTS.clear()


async def waits_on_hook() -> None:
    await hook("go")


async def waits_on_timer() -> None:
    await sleep("1d")


async def waits_on_asyncio() -> None:
    async with asyncio.timeout(86_400):
        await asyncio.Event().wait()


async def waits_on_retry() -> None:
    await flaky()


async def waits_on_step_hook() -> None:
    await asks()


async def waits_on_branches() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(waits_on_hook())
        group.create_task(waits_on_timer())
        group.create_task(waits_on_retry())


async def waits_in_wait_for() -> None:
    await asyncio.wait_for(hook("go"), 86_400)


WAITS = [
    waits_on_hook, waits_on_timer, waits_on_asyncio, waits_on_retry, waits_on_step_hook,
    waits_on_branches, waits_in_wait_for,
]  # fmt: skip


@pytest.mark.parametrize("wait", WAITS)
def test_cleanup_runs_is_recorded_and_the_run_ends_cancelled(
    wait: Any, stepwell_env: Environment
) -> None:
    @workflow
    async def flow() -> None:
        try:
            await wait()
        except asyncio.CancelledError:
            await note("undo")
            raise
        finally:
            await note("close")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    stepwell_env.cancel(run, "changed my mind")
    assert EFFECTS == ["undo", "close"]
    with pytest.raises(RunCancelled) as caught:
        stepwell_env.result(run)
    assert caught.value.reason == "changed my mind"
    assert stepwell_env.hooks(run) == ()
    check_run(stepwell_env, run)
    events = [each.event for each in stepwell_env.history(run)]
    assert check_replay(events, flow.definition, run.id)[-2:] == ["note:1", "note:2"]
    before = stepwell_env.history(run)
    stepwell_env.advance("3d")
    assert stepwell_env.history(run) == before


@pytest.mark.parametrize("wait", WAITS)
def test_code_that_handles_the_cancellation_completes(wait: Any, stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        try:
            await wait()
        except asyncio.CancelledError:
            await note("handled")
        await sleep("1h")
        return "done"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    check_run(stepwell_env, run)
    stepwell_env.advance("1h")
    assert stepwell_env.result(run) == "done"
    assert EFFECTS == ["handled"]
    check_run(stepwell_env, run)


def test_cleanup_may_wait_for_days(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> None:
        try:
            await hook("go")
        finally:
            await sleep("2d")
            await note("closed")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run, "stop")
    assert EFFECTS == []
    check_run(stepwell_env, run)
    stepwell_env.advance("2d")
    assert EFFECTS == ["closed"]
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    check_run(stepwell_env, run)


def test_a_cancel_before_the_first_turn_reaches_the_first_wait(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> None:
        await note("began")
        await hook("go")

    run = stepwell_env.start(flow)
    stepwell_env.cancel(run, "at once")
    with pytest.raises(RunCancelled):
        stepwell_env.result(run)
    check_run(stepwell_env, run)


def test_a_second_cancel_changes_nothing(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        try:
            await hook("go")
        except asyncio.CancelledError:
            await sleep("1h")
        return "done"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run, "one")
    stepwell_env.cancel(run, "two")
    stepwell_env.advance("1h")
    assert stepwell_env.result(run) == "done"
    requests = [
        each.event
        for each in stepwell_env.history(run)
        if isinstance(each.event, e.CancelRequested)
    ]
    assert [request.reason for request in requests] == ["one"]
    check_run(stepwell_env, run)


def test_a_shielded_step_goes_on_and_cleanup_can_wait_for_it(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> Any:
        asked = asyncio.create_task(asks())
        try:
            await asyncio.shield(asked)
        except asyncio.CancelledError:
            return await asked

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run)
    [inner] = stepwell_env.hooks(run)
    check_run(stepwell_env, run)
    stepwell_env.resume_hook(inner.token, "still here")
    assert stepwell_env.result(run) == "still here"
    check_run(stepwell_env, run)


def test_a_cancel_that_comes_while_a_run_is_blocked_is_not_lost(stepwell_env: Environment) -> None:
    old_code = True

    @step
    async def before() -> None: ...

    @step
    async def instead() -> None: ...

    @workflow
    async def changing() -> None:
        await (before() if old_code else instead())
        await sleep("1h")

    run = stepwell_env.start(changing)
    stepwell_env.run_until_idle()
    old_code = False
    stepwell_env.cancel(run, "no more need")
    assert stepwell_env.get(run).attention is not None
    old_code = True
    stepwell_env.wait_for(stepwell_env.client.wake(run.id))
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    check_run(stepwell_env, run)


def test_a_cancel_is_not_lost_where_the_workflow_is_not_registered(
    stepwell_env: Environment,
) -> None:
    @workflow
    async def elsewhere() -> None:
        await sleep("1h")

    run = stepwell_env.start(elsewhere)
    stepwell_env.run_until_idle()
    blind = Engine(stepwell_env._ports, stepwell_env._settings, Registry(), lambda: 0.5)
    stepwell_env._engine, knowing = blind, stepwell_env._engine
    stepwell_env.cancel(run)
    stepwell_env._engine = knowing
    stepwell_env.wait_for(stepwell_env.client.wake(run.id))
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
