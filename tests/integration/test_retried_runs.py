"""A run that failed or was cancelled goes on as the same run; what had succeeded stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import (
    NotRetryable,
    RetryPolicy,
    RunFailed,
    RunNotEnded,
    RunNotFound,
    StepFailed,
    hook,
    now,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.authoring.decorators import AsyncStep
from stepwell.core import events as e
from stepwell.core.messages import RetryRun
from stepwell.core.records import RunStatus
from stepwell.errors import HookTimeout, RunCancelled
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

ONCE = RetryPolicy(max_attempts=1)
Call = AsyncStep[[str], str]


class World:
    """What is outside: who was called, and what is down."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.down: set[str] = set()

    def call(self, name: str) -> str:
        """Do something, unless it is down."""
        self.calls.append(name)
        if name in self.down:
            raise OSError(f"{name} is down")
        return name

    def taken(self) -> list[str]:
        """The calls since this was asked last."""
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def env() -> Iterator[Environment]:
    with Environment(chance=0.5) as environment:
        yield environment


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def call(world: World) -> Call:
    """A step that calls the outside, and is not tried again."""

    @step(retry=ONCE)
    async def call(name: str) -> str:
        return world.call(name)

    return call


def types(env: Environment, run: Any) -> list[str]:
    return [each.event.type for each in env.history(run)]


def fails(env: Environment, run: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        env.result(run)
    check_run(env, run)
    return caught.value


def test_what_failed_is_done_again_and_what_succeeded_is_not(
    env: Environment, world: World, call: Call
) -> None:
    @workflow
    async def flow() -> list[str]:
        return [await call("a"), await call("b"), await call("c")]

    world.down = {"b"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    ended = env.history(run)[-1].event
    assert isinstance(ended, e.RunFailed)
    assert ended.redo == ("call:2",)
    assert world.taken() == ["a", "b"]
    world.down = set()
    env.retry(run)
    assert env.result(run) == ["a", "b", "c"]
    assert world.taken() == ["b", "c"]
    header = env.get(run)
    assert (header.status, header.error) == (RunStatus.COMPLETED, None)
    assert types(env, run).count("RunRetried") == 1
    assert [each.event.attempt for each in env.history(run) if each.event.type == "StepCompleted"]
    check_run(env, run)


def test_attempts_are_counted_from_one_again(env: Environment, world: World) -> None:
    @step(retry=RetryPolicy(max_attempts=2, initial="1m", jitter="none"))
    async def call(name: str) -> str:
        return world.call(name)

    @workflow
    async def flow() -> str:
        return await call("a")

    world.down = {"a"}
    run = env.start(flow)
    env.advance("5m")
    fails(env, run)
    env.retry(run)
    env.advance("5m")
    fails(env, run)
    assert world.taken() == ["a"] * 4
    world.down = set()
    env.retry(run)
    assert env.result(run) == "a"
    check_run(env, run)


def test_cleanup_runs_again_in_the_next_life(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> str:
        await call("reserve")
        try:
            return await call("book")
        finally:
            await call("tidy")

    world.down = {"book"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    assert world.taken() == ["reserve", "book", "tidy"]
    world.down = set()
    env.retry(run)
    assert env.result(run) == "book"
    assert world.taken() == ["book", "tidy"]
    check_run(env, run)


def test_a_sibling_that_went_on_keeps_its_successes(
    env: Environment, world: World, call: Call
) -> None:
    async def breaking() -> str:
        return await call("bad")

    async def going_on() -> list[str]:
        found = [await call("x")]
        await hook("later")
        return [*found, await call("y"), await call("z")]

    @workflow
    async def flow() -> Any:
        first, second = await asyncio.gather(breaking(), going_on(), return_exceptions=True)
        if isinstance(first, Exception):
            raise first
        return [first, second]

    world.down = {"bad"}
    run = env.start(flow)
    env.run_until_idle()
    [later] = env.hooks(run)
    env.resume_hook(later.token, 1)
    fails(env, run)
    ended = env.history(run)[-1].event
    assert isinstance(ended, e.RunFailed)
    assert ended.redo == ("1/call:1",)
    assert sorted(world.taken()) == ["bad", "x", "y", "z"]
    world.down = set()
    env.retry(run)
    assert env.result(run) == ["bad", ["x", "y", "z"]]
    assert world.taken() == ["bad"]
    check_run(env, run)


def test_a_sibling_that_was_cancelled_begins_anew_with_its_cleanup(
    env: Environment, world: World, call: Call
) -> None:
    async def breaking() -> str:
        await hook("go")
        return await call("bad")

    async def cut_off() -> str:
        try:
            await hook("never")
            return await call("work")
        finally:
            await call("release")

    @workflow
    async def flow() -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(breaking()), group.create_task(cut_off())]
        return [task.result() for task in tasks]

    world.down = {"bad"}
    run = env.start(flow)
    env.run_until_idle()
    go = next(each for each in env.hooks(run) if each.name == "go")
    env.resume_hook(go.token, 1)
    fails(env, run)
    assert world.taken() == ["bad", "release"]
    world.down = set()
    env.retry(run)
    [never] = env.hooks(run)
    assert never.hook_id == "2/never:1~2"
    check_run(env, run)
    env.resume_hook(never.token, 1)
    assert env.result(run) == ["bad", "work"]
    assert world.taken() == ["bad", "work", "release"]
    check_run(env, run)


def test_all_failures_of_a_group_are_done_again(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> Any:
        found = await asyncio.gather(*(call(n) for n in "abc"), return_exceptions=True)
        errors = [each for each in found if isinstance(each, Exception)]
        if errors:
            raise ExceptionGroup("some", errors)
        return found

    world.down = {"a", "c"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    world.taken()
    world.down = set()
    env.retry(run)
    assert env.result(run) == ["a", "b", "c"]
    assert sorted(world.taken()) == ["a", "c"]


def test_a_map_keeps_the_items_that_succeeded(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> Any:
        return await call.map(list("abcde"), max_concurrency=2)

    world.down = {"b"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    before = world.taken()
    world.down = set()
    env.retry(run)
    assert env.result(run) == list("abcde")
    assert sorted([*(n for n in before if n != "b"), *world.taken()]) == list("abcde")
    check_run(env, run)


def test_a_cause_in_the_chain_is_done_again(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> str:
        try:
            return await call("a")
        except StepFailed as error:
            raise ValueError("no way on") from error

    world.down = {"a"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    world.down = set()
    env.retry(run)
    assert env.result(run) == "a"


def test_a_failure_that_was_handled_stays(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> str:
        try:
            await call("a")
        except StepFailed:
            await call("instead")
        return await call("b")

    world.down = {"a", "b"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    world.taken()
    world.down = set()
    env.retry(run)
    assert env.result(run) == "b"
    assert world.taken() == ["b"]


def test_a_plain_bug_is_mended_and_the_records_stay(
    env: Environment, world: World, call: Call
) -> None:
    mended = False

    @workflow
    async def flow() -> str:
        found = await call("a")
        if not mended:
            raise KeyError("a bug")
        return found + await call("b")

    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    env.retry(run)
    fails(env, run)
    mended = True
    env.retry(run)
    assert env.result(run) == "ab"
    assert world.taken() == ["a", "b"]
    check_run(env, run)


def test_mended_code_may_leave_records_out_and_ask_in_another_order(
    env: Environment, world: World, call: Call
) -> None:
    mended = False

    @step(retry=ONCE)
    async def other(name: str) -> str:
        return world.call(name)

    @step(retry=ONCE)
    async def left_out() -> str:
        return world.call("left out")

    @workflow
    async def flow() -> Any:
        if mended:
            return [await other("new"), await call("a"), await call("b")]
        await call("a")
        await left_out()
        return [await call("b")]

    world.down = {"b"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    world.taken()
    world.down, mended = set(), True
    env.retry(run)
    assert env.result(run) == ["new", "a", "b"]
    assert world.taken() == ["new", "b"]
    check_run(env, run)


def test_mended_code_that_gives_another_input_has_the_step_run_with_it(
    env: Environment, world: World, call: Call
) -> None:
    spelt = "wrong"

    @workflow
    async def flow() -> Any:
        found = await call(spelt)
        await sleep("1m")
        return [found, await call("last")]

    world.down = {"last"}
    run = env.start(flow)
    env.advance("2m")
    fails(env, run)
    world.taken()
    world.down, spelt = set(), "right"
    env.retry(run)
    assert env.result(run) == ["right", "last"]
    assert world.taken() == ["right", "last"]
    assert "StepSuperseded" in types(env, run)
    check_run(env, run)


def test_an_expired_hook_is_asked_anew_and_an_answered_one_is_not(env: Environment) -> None:
    @workflow
    async def flow() -> Any:
        first = await hook("first")
        return [first, await hook("second", timeout="1h")]

    run = env.start(flow)
    env.run_until_idle()
    [first] = env.hooks(run)
    env.resume_hook(first.token, 1)
    [old] = env.hooks(run)
    env.advance("2h")
    fails(env, run)
    env.retry(run)
    [second] = env.hooks(run)
    assert second.hook_id == "second:1~2"
    assert second.token != old.token
    check_run(env, run)
    env.resume_hook(second.token, 2)
    assert env.result(run) == [1, 2]
    check_run(env, run)


def test_hooks_in_a_step_keep_answers_and_are_opened_anew(env: Environment) -> None:
    @step(retry=ONCE)
    async def asks() -> Any:
        first = await step_hook("first")
        try:
            return [first, await step_hook("second", timeout="1h")]
        except HookTimeout:
            raise OSError("nobody") from None

    @workflow
    async def flow() -> Any:
        return await asks()

    run = env.start(flow)
    env.run_until_idle()
    env.resume_hook(env.hooks(run)[0].token, "one")
    env.advance("2h")
    fails(env, run)
    env.retry(run)
    [second] = env.hooks(run)
    assert second.hook_id == "asks:1>second:1~2"
    check_run(env, run)
    env.resume_hook(second.token, "two")
    assert env.result(run) == ["one", "two"]
    check_run(env, run)


def test_dispatched_steps_are_dispatched_anew(env: Environment, world: World) -> None:
    @step(dispatch="worker", retry=ONCE)
    async def far(name: str) -> str:
        return world.call(name)

    @workflow
    async def flow() -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(far(n)) for n in "abc"]
        return [task.result() for task in tasks]

    world.down = {"b"}
    run = env.start(flow)
    env.run_until_idle()
    fails(env, run)
    world.down = set()
    env.retry(run)
    assert env.result(run) == ["a", "b", "c"]
    check_run(env, run)


def test_a_cancelled_run_goes_on_where_it_was(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> Any:
        await call("a")
        try:
            await hook("go")
        except asyncio.CancelledError:
            await call("undo")
            raise
        return await call("b")

    run = env.start(flow)
    env.run_until_idle()
    env.cancel(run, "by mistake")
    with pytest.raises(RunCancelled):
        env.result(run)
    assert world.taken() == ["a", "undo"]
    env.retry(run)
    header = env.get(run)
    assert not header.cancel_requested
    [go] = env.hooks(run)
    check_run(env, run)
    env.resume_hook(go.token, 1)
    assert env.result(run) == "b"
    assert world.taken() == ["b"]
    env_run = env.history(run)
    assert [each.event.type for each in env_run].count("CancelRequested") == 1


def test_a_retried_run_is_cancelled_as_any_other(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        await hook("go")

    run = env.start(flow)
    env.run_until_idle()
    for _ in range(3):
        env.cancel(run)
        assert env.get(run).status is RunStatus.CANCELLED
        check_run(env, run)
        env.retry(run)
        assert env.get(run).status is RunStatus.SUSPENDED
        check_run(env, run)


def test_a_timeout_that_ended_the_run_begins_anew(env: Environment) -> None:
    @workflow
    async def flow() -> Any:
        async with asyncio.timeout(3600):
            return await hook("slow")

    run = env.start(flow)
    env.advance("2h")
    fails(env, run)
    env.advance("1d")
    env.retry(run)
    [slow] = env.hooks(run)
    check_run(env, run)
    env.advance("30m")
    env.resume_hook(slow.token, "in time")
    assert env.result(run) == "in time"
    check_run(env, run)


def test_no_time_passes_for_a_timeout_between_two_lives(
    env: Environment, world: World, call: Call
) -> None:
    @workflow
    async def flow() -> Any:
        async with asyncio.timeout(3600):
            await sleep("10m")
            return await call("a")

    world.down = {"a"}
    run = env.start(flow)
    env.advance("10m")
    fails(env, run)
    world.down = set()
    env.advance("3d")
    env.retry(run)
    assert env.result(run) == "a"
    check_run(env, run)


def test_the_runs_time_is_that_of_the_retry(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> float:
        before = now()
        await call("a")
        return (now() - before).total_seconds()

    world.down = {"a"}
    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    world.down = set()
    env.retry(run)
    assert env.result(run) == 3600


def test_two_retries_at_once_are_one(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> str:
        return await call("a")

    world.down = {"a"}
    run = env.start(flow)
    env.run_until_idle()
    after = env.get(run).last_event
    for request in ("one", "two"):
        message = RetryRun(run_id=run.id, request_id=request, after=after)
        env.wait_for(env._ports.queue.send(message))
    env.run_until_idle()
    fails(env, run)
    assert types(env, run).count("RunRetried") == 1
    assert world.taken() == ["a", "a"]


def test_a_late_request_of_an_earlier_life_changes_nothing(
    env: Environment, world: World, call: Call
) -> None:
    @workflow
    async def flow() -> str:
        return await call("a")

    world.down = {"a"}
    run = env.start(flow)
    env.run_until_idle()
    old = env.get(run).last_event
    env.retry(run)
    late = RetryRun(run_id=run.id, request_id="late", after=old)
    env.wait_for(env._ports.queue.send(late))
    env.run_until_idle()
    assert types(env, run).count("RunRetried") == 1


def test_only_what_ended_badly_is_retried(env: Environment) -> None:
    @workflow
    async def flow() -> int:
        return await hook("go")

    run = env.start(flow)
    with pytest.raises(RunNotEnded, match=run.id):
        env.retry(run)
    env.run_until_idle()
    with pytest.raises(RunNotEnded, match="cancel it first"):
        env.retry(run)
    env.resume_hook(env.hooks(run)[0].token, 1)
    assert env.result(run) == 1
    with pytest.raises(NotRetryable, match="fork it"):
        env.retry(run)
    with pytest.raises(RunNotFound):
        env.wait_for(env.client.retry("nobody"))


def test_a_caller_waits_for_the_retried_run(env: Environment, world: World, call: Call) -> None:
    @workflow
    async def flow() -> str:
        return await call("a")

    world.down = {"a"}
    run = env.start(flow)
    env.run_until_idle()
    world.down = set()
    env.wait_for(env.client.retry(run.id))
    assert env.get(run).status is RunStatus.SUSPENDED
    with pytest.raises(Exception, match="has not ended"):
        env.result(run)
    env.run_until_idle()
    assert env.result(run) == "a"
