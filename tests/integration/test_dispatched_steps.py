"""Steps with `dispatch="worker"`: their attempts are made outside of the turns of their run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import (
    FatalError,
    HookTimeout,
    Result,
    RetryableError,
    RetryPolicy,
    StepFailed,
    StepTimeout,
    current,
    hook,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.core.payload import Sizes
from stepwell.core.records import RunStatus, Wait
from stepwell.core.state import fold
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.integration.attempts import received, turns_only
from tests.integration.histories import found, kinds

ONCE = RetryPolicy(max_attempts=1)
AT_ONCE = RetryPolicy(initial=0)


def test_a_step_runs_outside_of_the_turns(env: Environment) -> None:
    seen: list[tuple[int, int, str]] = []

    @step(dispatch="worker")
    async def double(number: int) -> int:
        seen.append((current.attempt, current.entry, current.idempotency_key))
        return 2 * number

    @workflow
    async def flow() -> int:
        return await double(await double(1))

    run = env.start(flow)
    turns_only(env)
    assert seen == []
    env.run_until_idle()
    assert env.result(run) == 4
    assert seen == [(1, 1, f"{run.id}/double:1"), (1, 1, f"{run.id}/double:2")]
    assert kinds(env, run) == [
        *("RunStarted", "StepStarted", "StepCompleted", "StepStarted", "StepCompleted"),
        "RunCompleted",
    ]
    check_run(env, run)


def test_the_input_is_in_the_history(env: Environment) -> None:
    @step(dispatch="worker")
    async def add(left: int, right: int = 2) -> int:
        return left + right

    @workflow
    async def flow() -> int:
        return await add(1)

    run = env.start(flow)
    env.run_until_idle()
    [started] = found(env, run, "StepStarted")
    assert json.loads(started.input) == {"left": 1, "right": 2}
    assert (started.step, started.attempt) == ("add:1", 1)


def test_an_inline_step_records_no_input(env: Environment) -> None:
    @step
    async def plain() -> int:
        return 1

    @workflow
    async def flow() -> int:
        return await plain()

    run = env.start(flow)
    env.run_until_idle()
    assert "StepStarted" not in kinds(env, run)


def test_what_led_to_an_attempt_is_durable_before_its_message_leaves(env: Environment) -> None:
    """Whoever gets it may be quicker than the turn that sent it."""

    @step(dispatch="worker")
    async def away() -> None: ...

    @workflow
    async def flow() -> None:
        await away()

    env.start(flow)
    env.crash_at(1_000)
    turns_only(env)
    calls = env.port_calls
    assert calls.index("store.append") < calls.index("steps.send")


def test_a_large_input_and_a_large_result_are_kept_as_blobs(env: Environment) -> None:
    @step(dispatch="worker")
    async def echo(text: str) -> str:
        return text

    @workflow
    async def flow() -> int:
        return len(await echo("x" * 100_000))

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == 100_000
    commits = env.wait_for(env._local.store.load(run.id)).commits
    state = fold(event for commit in commits for event in commit.events)
    assert (state.steps["echo:1"].input or "").startswith("@")


def test_an_input_that_is_too_large_fails_the_step_at_once() -> None:
    @step(dispatch="worker")
    async def echo(text: str) -> None: ...

    @workflow
    async def flow() -> list[Any]:
        try:
            await echo("x" * 2_000)
        except StepFailed as error:
            return [error.type, error.attempts]
        return []

    with Environment(sizes=Sizes(inline_limit=100, hard_limit=1_000)) as env:
        run = env.start(flow)
        turns_only(env)
        assert env.result(run) == ["stepwell.errors.PayloadTooLarge", 1]
        assert received(env) is None
        check_run(env, run)


def test_nothing_is_sent_for_a_step_that_a_failure_beside_it_made_unwanted() -> None:
    @step(dispatch="worker")
    async def echo(text: str) -> None: ...

    @workflow
    async def flow() -> int:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(echo("x" * 2_000))
                group.create_task(echo("small"))
        except* StepFailed:
            pass
        await sleep("1h")
        return 1

    with Environment(sizes=Sizes(inline_limit=100, hard_limit=1_000)) as env:
        run = env.start(flow)
        turns_only(env)
        assert received(env) is None
        assert "StepStarted" not in kinds(env, run)
        env.advance("1h")
        assert env.result(run) == 1


def test_while_an_attempt_is_under_way_the_run_waits_for_the_step(env: Environment) -> None:
    @step(dispatch="worker")
    async def away() -> None: ...

    @workflow
    async def flow() -> None:
        await away()

    run = env.start(flow)
    turns_only(env)
    header = env.get(run)
    assert header.status is RunStatus.SUSPENDED
    since = env.clock.now()
    assert header.waiting == (Wait(kind="step", id="away:1", name="away", since=since),)
    check_run(env, run)
    env.run_until_idle()
    assert env.get(run).waiting == ()


def test_def_and_async_steps_in_an_async_workflow(env: Environment) -> None:
    threads: set[str] = set()

    @step(dispatch="worker")
    def plain(number: int) -> int:
        threads.add(threading.current_thread().name)
        return number + 1

    @step(dispatch="worker")
    async def awaited(number: int) -> int:
        return number * 10

    @workflow
    async def flow() -> int:
        return await awaited(await plain.aio(1))

    assert env.run(flow) == 20
    assert threading.current_thread().name not in threads


def test_def_and_async_steps_in_a_def_workflow(env: Environment) -> None:
    @step(dispatch="worker")
    def plain(number: int) -> int:
        return number + 1

    @step(dispatch="worker")
    async def awaited(number: int) -> int:
        return number * 10

    @workflow
    def flow() -> int:
        first = plain(1)
        sleep("1h")
        found: Any = awaited(first)
        return int(found)

    run = env.start(flow)
    env.advance("1h")
    assert env.result(run) == 20
    check_run(env, run)


def test_outside_a_run_a_dispatched_step_is_a_plain_function() -> None:
    @step(dispatch="worker")
    def plain(number: int) -> int:
        return number + 1

    assert plain(1) == 2


def test_a_failed_attempt_is_tried_again_as_the_policy_says(env: Environment) -> None:
    tries: list[tuple[int, int]] = []

    @step(dispatch="worker", retry=RetryPolicy(initial="10s", factor=2, jitter="none"))
    async def flaky() -> int:
        tries.append((current.attempt, env.clock.now()))
        if current.attempt < 3:
            raise ConnectionError("down")
        return current.attempt

    @workflow
    async def flow() -> int:
        return await flaky()

    start = env.clock.now()
    run = env.start(flow)
    env.run_until_idle()
    assert env.get(run).waiting[0].kind == "retry"
    env.advance("1m")
    assert env.result(run) == 3
    assert [(attempt, at - start) for attempt, at in tries] == [(1, 0), (2, 10_000), (3, 30_000)]
    assert [each.attempt for each in found(env, run, "StepStarted")] == [1, 2, 3]
    assert [each.attempt for each in found(env, run, "StepRetryScheduled")] == [1, 2]
    check_run(env, run)


def test_when_the_attempts_are_used_up_the_step_has_failed(env: Environment) -> None:
    @step(dispatch="worker", retry=RetryPolicy(max_attempts=2, initial=0))
    async def broken() -> None:
        raise ConnectionError("down")

    @step(dispatch="worker")
    async def fatal() -> None:
        raise FatalError("no")

    @workflow
    async def flow() -> list[Any]:
        said = []
        for each in (broken, fatal):
            try:
                await each()
            except StepFailed as error:
                said.append([error.type, error.message, error.attempts])
        return said

    assert env.run(flow) == [
        ["ConnectionError", "down", 2],
        ["stepwell.errors.FatalError", "no", 1],
    ]


def test_an_error_may_say_when_the_next_attempt_is_due(env: Environment) -> None:
    tries: list[int] = []

    @step(dispatch="worker")
    async def limited() -> None:
        tries.append(env.clock.now())
        if len(tries) == 1:
            raise RetryableError("later", retry_after="1h")

    @workflow
    async def flow() -> None:
        await limited()

    run = env.start(flow)
    env.run_to_end(run)
    assert tries[1] - tries[0] == 3_600_000


@pytest.mark.parametrize("colour", ["async", "def"])
def test_an_attempt_that_takes_too_long_times_out(env: Environment, colour: str) -> None:
    gate = threading.Event()

    @step(dispatch="worker", timeout="20ms", retry=ONCE)
    async def slow() -> None:
        await asyncio.Event().wait()

    @step(dispatch="worker", timeout="20ms", retry=ONCE)
    def stuck() -> None:
        gate.wait(30)

    @workflow
    async def flow() -> list[Any]:
        try:
            await (slow() if colour == "async" else stuck.aio())
        except StepTimeout as error:
            return [error.type, error.message, error.attempts]
        return []

    message = "the attempt took longer than 0.02 s"
    assert env.run(flow) == ["TimeoutError", message, 1]
    gate.set()


def test_a_result_that_does_not_fit_fails_the_step(env: Environment) -> None:
    @step(dispatch="worker")
    async def wrong() -> int:
        return "text"  # type: ignore[return-value]

    @workflow
    async def flow() -> str:
        try:
            await wrong()
        except StepFailed as error:
            return error.type
        return ""

    assert env.run(flow) == "stepwell.errors.PayloadError"


def test_a_hook_suspends_a_dispatched_step(env: Environment) -> None:
    entries: list[tuple[int, int]] = []

    @step(dispatch="worker")
    async def ask() -> Any:
        entries.append((current.entry, current.attempt))
        return await step_hook("question")

    @workflow
    async def flow() -> Any:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    assert [wait.kind for wait in env.get(run).waiting] == ["hook"]
    assert received(env) is None
    check_run(env, run)
    [open_hook] = env.hooks(run)
    env.resume_hook(open_hook.token, 42)
    assert env.result(run) == 42
    assert entries == [(1, 1), (2, 1)]
    assert kinds(env, run) == [
        *("RunStarted", "StepStarted", "HookOpened", "StepSuspended", "HookReceived"),
        *("StepStarted", "StepCompleted", "RunCompleted"),
    ]
    check_run(env, run)


def test_a_hook_of_a_dispatched_step_expires(env: Environment) -> None:
    @step(dispatch="worker")
    async def ask() -> str:
        try:
            await step_hook("question", timeout="1h")
        except HookTimeout:
            return "late"
        return "in time"

    @workflow
    async def flow() -> str:
        return await ask()

    run = env.start(flow)
    env.advance("2h")
    assert env.result(run) == "late"


def test_two_hooks_of_a_dispatched_step_are_open_at_once(env: Environment) -> None:
    @step(dispatch="worker")
    async def ask() -> list[Any]:
        return list(await asyncio.gather(step_hook("left"), step_hook("right")))

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    tokens = {each.name: each.token for each in env.hooks(run)}
    env.resume_hook(tokens["right"], "r")
    assert env.get(run).status is RunStatus.SUSPENDED
    env.resume_hook(tokens["left"], "l")
    assert env.result(run) == ["l", "r"]
    check_run(env, run)


def test_a_checkpoint_outlives_attempts_and_entries(env: Environment) -> None:
    entered: list[Any] = []

    @step(dispatch="worker", retry=AT_ONCE)
    async def work() -> list[str]:
        kept: list[str] = await load_step_checkpoint() or []
        entered.append(list(kept))
        if not kept:
            await save_step_checkpoint(["begun"])
            raise ConnectionError
        if len(kept) == 1:
            kept.append(await step_hook("more", key="first"))
            await save_step_checkpoint(kept)
        kept.append(await step_hook("more", key="second"))
        return kept

    @workflow
    async def flow() -> list[str]:
        return await work()

    run = env.start(flow)
    env.run_until_idle()
    for answer in ("one", "two"):
        [open_hook] = env.hooks(run)
        env.resume_hook(open_hook.token, answer)
    assert env.result(run) == ["begun", "one", "two"]
    assert entered == [[], ["begun"], ["begun"], ["begun", "one"]]


def test_output_is_streamed_while_the_attempt_runs(env: Environment) -> None:
    @step(dispatch="worker", stream=True, retry=AT_ONCE)
    async def speak() -> AsyncIterator[str | Result[int]]:
        yield "one"
        if current.attempt == 1:
            raise ConnectionError
        yield "two"
        await step_hook("listener")
        yield "three"
        yield Result(3)

    @workflow
    async def flow() -> int:
        return int(await speak())

    run = env.start(flow)
    env.run_until_idle()
    assert [chunk.value for chunk in env.output(run, "speak:1")] == ["one", "two"]
    [open_hook] = env.hooks(run)
    env.resume_hook(open_hook.token)
    assert env.result(run) == 3
    assert [chunk.value for chunk in env.output(run, "speak:1")] == ["one", "two", "three"]


def test_many_dispatched_steps_take_one_message_each_and_few_commits(env: Environment) -> None:
    @step(dispatch="worker")
    async def square(number: int) -> int:
        return number * number

    @workflow
    async def flow() -> int:
        return sum(await asyncio.gather(*(square(number) for number in range(200))))

    run = env.start(flow)
    env.crash_at(100_000)
    turns_only(env)
    calls = list(env.port_calls)
    assert calls.count("steps.send") == 200
    assert calls.count("store.append") == 1
    env.run_until_idle()
    assert env.result(run) == sum(number * number for number in range(200))
    check_times = [len(found(env, run, kind)) for kind in ("StepStarted", "StepCompleted")]
    assert check_times == [200, 200]


def test_inline_steps_go_on_beside_dispatched_ones(env: Environment) -> None:
    order: list[str] = []

    @step(dispatch="worker")
    async def away() -> None:
        order.append("away")

    @step
    async def near(name: str) -> None:
        order.append(name)

    @workflow
    async def flow() -> None:
        async def chain() -> None:
            await near("one")
            await near("two")

        await asyncio.gather(away(), chain())
        await near("three")

    env.run(flow)
    assert order == ["one", "two", "away", "three"]


def test_a_dispatched_step_can_be_outrun_by_a_timeout(env: Environment) -> None:
    @step(dispatch="worker")
    async def ask() -> None:
        await step_hook("never")

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(60):
                await ask()
        except TimeoutError:
            await sleep("1h")
            return "gave up"
        return ""

    run = env.start(flow)
    env.advance("2m")
    assert env.hooks(run) == ()
    assert "StepCancelled" in kinds(env, run)
    check_run(env, run)
    env.advance("1h")
    assert env.result(run) == "gave up"


def test_answers_and_steps_race_alike_on_every_pass(env: Environment) -> None:
    @step(dispatch="worker")
    async def away(name: str) -> str:
        return name

    @workflow
    async def flow() -> list[Any]:
        first = asyncio.create_task(away("away"))
        other = asyncio.create_task(hook("question"))
        done, late = await asyncio.wait({first, other}, return_when=asyncio.FIRST_COMPLETED)
        for each in late:
            each.cancel()
        await sleep("1h")
        return [each.result() for each in done]

    run = env.start(flow)
    turns_only(env)
    [open_hook] = env.hooks(run)
    env.wait_for(env.client.resume_hook(open_hook.token, "answered"))
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == ["answered"]
    check_run(env, run)
