"""A cancel that is waited for, and one by force."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell import ResultTimeout, RetryPolicy, RunBlocked, hook, step, step_hook, workflow
from stepwell.authoring.registry import Registry
from stepwell.core import events as e
from stepwell.core.records import RunStatus
from stepwell.engine.turn import Engine
from stepwell.testing import Environment
from stepwell.testing.laws import check_run


@pytest.fixture
def env() -> Iterator[Environment]:
    with Environment(chance=0.5) as environment:
        yield environment


@workflow(name="cancelling_waits")
async def waits() -> int:
    return await hook("go")


@step(name="cancelling_far", dispatch="worker", retry=RetryPolicy(max_attempts=1))
async def far() -> None:
    await step_hook("never")


def test_a_cancel_tells_how_the_run_stands(env: Environment) -> None:
    run = env.start(waits)
    env.run_until_idle()
    assert env.wait_for(env.client.cancel(run.id)) is RunStatus.SUSPENDED
    env.run_until_idle()
    assert env.wait_for(env.client.cancel(run.id, wait=True)) is RunStatus.CANCELLED


def test_a_cancel_that_is_waited_for_gives_up_in_time_and_stands(env: Environment) -> None:
    run = env.start(waits)
    env.run_until_idle()
    with pytest.raises(ResultTimeout, match="the cancel stands"):
        env.wait_for(env.client.cancel(run.id, wait=0.01))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED


def test_of_a_cancel_and_another_end_one_wins_and_the_caller_sees_which(env: Environment) -> None:
    run = env.start(waits)
    env.run_until_idle()
    env.wait_for(env.client.resume_hook(env.hooks(run)[0].token, 7))
    env.wait_for(env.client.cancel(run.id))
    env.run_until_idle()
    assert env.wait_for(env.client.cancel(run.id, wait="1m")) is RunStatus.COMPLETED
    assert env.result(run) == 7


def without_code(env: Environment) -> None:
    env._engine = Engine(env._ports, env._settings, Registry(), lambda: 0.5)


def test_force_ends_a_run_whose_code_is_gone(env: Environment) -> None:
    run = env.start(waits)
    env.run_until_idle()
    without_code(env)
    env.cancel(run, "politely")
    with pytest.raises(RunBlocked):
        env.result(run)
    env.wait_for(env.client.cancel(run.id, "no code", force=True))
    env.run_until_idle()
    header = env.get(run)
    assert (header.status, header.attention) == (RunStatus.CANCELLED, None)
    assert env.hooks(run) == ()
    ended = env.history(run)[-1].event
    assert isinstance(ended, e.RunCancelled)
    assert ended.forced
    check_run(env, run)


def test_force_ends_a_run_whose_cleanup_will_not_end(env: Environment) -> None:
    @workflow
    async def stubborn() -> None:
        try:
            await hook("go")
        finally:
            await hook("unanswered")

    run = env.start(stubborn)
    env.run_until_idle()
    env.cancel(run, "please")
    assert env.get(run).status is RunStatus.SUSPENDED
    env.wait_for(env.client.cancel(run.id, "now", force=True))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    assert [each.event.type for each in env.history(run)].count("CancelRequested") == 1
    check_run(env, run)


def test_force_calls_dispatched_steps_off_and_ends_paused_runs(env: Environment) -> None:
    @workflow
    async def calls() -> None:
        await far()

    run = env.start(calls)
    env.run_until_idle()
    env.pause(run)
    env.wait_for(env.client.cancel(run.id, force=True))
    env.run_until_idle()
    header = env.get(run)
    assert (header.status, header.attention) == (RunStatus.CANCELLED, None)
    check_run(env, run)


def test_a_run_that_was_ended_by_force_is_retried(env: Environment) -> None:
    run = env.start(waits)
    env.run_until_idle()
    env.wait_for(env.client.cancel(run.id, force=True))
    env.run_until_idle()
    env.retry(run)
    [go] = env.hooks(run)
    env.resume_hook(go.token, 3)
    assert env.result(run) == 3
    check_run(env, run)


def test_force_on_a_run_that_has_not_begun(env: Environment) -> None:
    run = env.start(waits)
    env.wait_for(env.client.cancel(run.id, force=True))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    check_run(env, run)
