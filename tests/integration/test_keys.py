"""Explicit keys: a call that keeps its identity whatever is called before it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from stepwell import (
    KeyConflict,
    RetryPolicy,
    StepFailed,
    StepTimeout,
    current,
    hook,
    sleep,
    step,
    workflow,
)
from stepwell.core import events as e
from stepwell.core.overrides import overridden
from stepwell.core.records import RunStatus
from stepwell.core.state import fold
from stepwell.errors import DefinitionError, RunFailed
from stepwell.testing import Environment
from tests.integration.histories import found


def ids(env: Environment, run: Any) -> list[str]:
    completed = [each.event for each in env.history(run)]
    return [event.step for event in completed if isinstance(event, e.StepCompleted)]


def test_a_key_is_the_identity_of_a_call_in_the_whole_run(env: Environment) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @step
    def negate(n: int) -> int:
        return -n

    @workflow
    async def flow() -> list[int]:
        async def branch() -> int:
            return await double.with_options(key="in a branch")(1)

        return [*await asyncio.gather(branch()), await negate.with_options(key="#3").aio(3)]

    run = env.start(flow)
    env.run_until_idle()
    assert env.run_to_end(run) == [2, -3]
    assert ids(env, run) == ["double=in a branch", "negate=#3"]


def test_a_keyed_call_of_a_def_workflow_blocks(env: Environment) -> None:
    @step
    def negate(n: int) -> int:
        return -n

    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    def flow() -> list[int]:
        return [negate.with_options(key="a")(1), double.with_options(key="b")(2)]  # type: ignore[list-item]

    assert env.run(flow) == [-1, 4]


@pytest.mark.parametrize("waits", [False, True])
def test_the_same_key_with_the_same_input_runs_once(env: Environment, waits: bool) -> None:
    ran: list[int] = []

    @step
    async def draw(n: int) -> int:
        ran.append(n)
        return len(ran)

    @workflow
    async def flow() -> list[int]:
        keyed = draw.with_options(key="k")
        first = list(await asyncio.gather(keyed(1), keyed(1)))
        if waits:
            await sleep("1h")
        return [*first, await keyed(1), await draw.with_options(key="k")(1)]

    run = env.start(flow)
    env.run_until_idle()
    env.advance("2h")
    assert env.run_to_end(run) == [1, 1, 1, 1]
    assert ran == [1]


def test_the_same_key_gives_the_recorded_failure(env: Environment) -> None:
    ran: list[int] = []

    @step(retry=RetryPolicy(max_attempts=1))
    async def fails() -> None:
        ran.append(1)
        raise OSError("down")

    @workflow
    async def flow() -> list[str]:
        keyed = fails.with_options(key="k")
        ended = list(await asyncio.gather(keyed(), keyed(), return_exceptions=True))
        await sleep("1h")
        try:
            await keyed()
        except StepFailed as error:
            ended.append(error)
        return [str(each) for each in ended]

    run = env.start(flow)
    env.run_until_idle()
    env.advance("2h")
    assert env.run_to_end(run) == ["step 'fails' failed: OSError: down"] * 3
    assert ran == [1]


def test_a_key_that_means_another_call_is_refused_alike_on_every_pass(env: Environment) -> None:
    @step
    async def charge(n: int) -> int:
        return n

    @step
    async def refund(n: int) -> int:
        return -n

    @workflow
    async def flow() -> list[str]:
        told = [str(await charge.with_options(key="k")(1))]
        for other in (refund.with_options(key="k"), charge.with_options(key="k")):
            try:
                told.append(str(await other(2)))
            except KeyConflict as error:
                told.append(f"{error.key}: {error}")
            await sleep("1h")
        return told

    run = env.start(flow)
    env.run_until_idle()
    env.advance("3h")
    first, other_step, other_input = env.run_to_end(run)
    assert first == "1"
    assert "'refund' asks for it, it belongs to step 'charge'" in other_step
    assert "with another input" in other_input
    assert ids(env, run) == ["charge=k"]


def test_a_key_conflict_that_nobody_catches_fails_the_run(env: Environment) -> None:
    @step
    async def charge(n: int) -> int:
        return n

    @workflow
    async def flow() -> None:
        await asyncio.gather(*(charge.with_options(key="k")(n) for n in range(2)))

    with pytest.raises(RunFailed, match="KeyConflict: key 'k'"):
        env.run(flow)


def test_a_call_is_cancelled_when_the_last_who_waits_for_it_is(env: Environment) -> None:
    @step
    async def slow() -> str:
        await asyncio.sleep(0)
        return "done"

    @workflow
    async def flow() -> list[str]:
        keyed = slow.with_options(key="k")
        first, second = asyncio.create_task(keyed()), asyncio.create_task(keyed())
        await asyncio.sleep(0)
        first.cancel()
        told = [str(await second)]
        other = slow.with_options(key="other")
        gone = asyncio.create_task(other())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        try:
            await other()
        except KeyConflict as error:
            told.append(str(error))
        return told

    run = env.start(flow)
    env.run_until_idle()
    done, cancelled = env.run_to_end(run)
    assert done == "done"
    assert "was cancelled" in cancelled
    assert ids(env, run) == ["slow=k"]


def test_a_step_and_a_hook_may_share_name_and_key(env: Environment) -> None:
    @step(name="review")
    async def review() -> str:
        return "by a step"

    @workflow
    async def flow() -> list[str]:
        return [await review.with_options(key="k")(), await hook("review", key="k")]

    run = env.start(flow)
    env.run_until_idle()
    env.resume_hook(env.hooks(run)[0].token, "by a person")
    env.run_until_idle()
    assert env.run_to_end(run) == ["by a step", "by a person"]


def test_options_of_a_call_hold_for_that_call(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=3, initial="1s", jitter="none"))
    async def dawdle(seconds: float) -> int:
        await asyncio.sleep(seconds)
        raise OSError("down")

    @workflow
    async def flow() -> list[int]:
        told = []
        once = dawdle.with_options(retry=RetryPolicy(max_attempts=1))
        for call in (dawdle(0), once(0), once.with_options(timeout="10ms")(5)):
            try:
                await call
            except StepTimeout as error:
                told.append(-error.attempts)
            except StepFailed as error:
                told.append(error.attempts)
        return told

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.run_to_end(run) == [3, 1, -1]
    assert dawdle.definition.retry.max_attempts == 3


def test_options_of_a_call_travel_with_a_dispatched_step(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=5, initial="1s"), dispatch="worker")
    async def flaky(n: int) -> int:
        raise OSError("down")

    @workflow
    async def flow() -> int:
        twice = RetryPolicy(max_attempts=2, initial="90s", jitter="none", factor=3, max_delay="1h")
        try:
            return await flaky.with_options(key="k", retry=twice, timeout="10m")(1)
        except StepFailed as error:
            return error.attempts

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.run_to_end(run) == 2
    history = [each.event for each in env.history(run)]
    started = found(env, run, "StepStarted")
    known = fold(history).steps["flaky=k"]
    made = overridden(flaky.definition, known.options)
    assert (made.timeout, made.retry.max_attempts, made.retry.max_delay) == (600_000, 2, 3600.0)
    assert started[0].options == known.options
    retry = found(env, run, "StepRetryScheduled")[0]
    assert retry.due - retry.at == 90_000


def test_a_step_without_options_of_its_own_carries_none(env: Environment) -> None:
    @step(dispatch="worker")
    async def plain() -> int:
        return 1

    @workflow
    async def flow() -> int:
        return await plain.with_options(key="k")()

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1m")
    assert found(env, run, "StepStarted")[0].options is None


def test_plain_functions_run_as_steps(env: Environment) -> None:
    ran: list[str] = []

    async def fetch(url: str, *, deep: bool = False) -> tuple[str, bool]:
        ran.append(url)
        return url, deep

    def render(text: str) -> bytes:
        ran.append(text)
        return text.encode()

    @workflow
    async def flow() -> Any:
        got = await current.step("fetch", fetch, "u", key="u", deep=True, timeout="5s")
        page = await current.step("render", render, "x")
        await sleep("1h")
        return [
            list(got),
            (await current.step("render", partial(render, "y"))).decode(),
            page.decode(),
        ]

    @workflow
    def blocking() -> Any:
        return [
            list(current.step("fetch", fetch, "u")),
            current.step("render", render, "z").decode(),
        ]

    run = env.start(flow)
    env.run_until_idle()
    env.advance("2h")
    assert env.run_to_end(run) == [["u", True], "y", "x"]
    assert ran == ["u", "x", "y"]
    assert ids(env, run) == ["fetch=u", "render:1", "render:2"]
    assert env.run(blocking) == [["u", False], "z"]


def test_a_plain_function_is_tried_again_and_cut_off_as_its_call_says(env: Environment) -> None:
    tries: list[int] = []

    def fails() -> None:
        tries.append(1)
        raise OSError("down")

    async def dawdles() -> None:
        await asyncio.sleep(5)

    @workflow
    async def flow() -> list[str]:
        told = []
        once = RetryPolicy(max_attempts=1)
        for call in (
            current.step("fails", fails, retry=RetryPolicy(max_attempts=2, initial="1s")),
            current.step("dawdles", dawdles, retry=once, timeout=0.01),
        ):
            try:
                await call
            except StepFailed as error:
                told.append(type(error).__name__)
        return told

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.run_to_end(run) == ["StepFailed", "StepTimeout"]
    assert len(tries) == 2


def test_outside_a_run_the_function_is_called() -> None:
    async def double(n: int) -> int:
        return 2 * n

    def negate(n: int) -> int:
        return -n

    async def flow() -> list[int]:
        return [
            await current.step("double", double, 1, key="k"),
            await current.step("negate", negate, n=2),
        ]

    assert asyncio.run(flow()) == [2, -2]
    assert current.step("negate", negate, 3) == -3


@step(name="keys.declared")
async def declared() -> None: ...


def plain() -> None: ...


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (partial(current.step, "no name", plain), "step name 'no name'"),
        (partial(current.step, "plain", plain, key=""), "step key ''"),
        (partial(current.step, "plain", plain, timeout=0), "timeout must be above zero"),
        (partial(current.step, "plain", plain, timeout="soon"), "timeout"),
        (partial(current.step, "plain", plain, retry=3), "retry takes a RetryPolicy"),
        (partial(current.step, "plain", declared), "declared with a decorator"),
        (partial(current.step, "plain", declared.with_options(key="k")), "declared with"),
        (partial(current.step, "plain", int), "decorate a function"),
        (partial(declared.with_options, key=""), "step key ''"),
        (partial(declared.with_options, timeout=-1), "timeout"),
        (partial(declared.with_options, retry="often"), "retry takes a RetryPolicy"),
        (partial(declared.with_options, dispatch="away"), "dispatch is"),
        (
            partial(declared.with_options, dispatch="worker", retry=RetryPolicy(retry_on=(OSError,))),
            "belong to its declaration",
        ),
    ],
)  # fmt: skip
def test_bad_options_are_refused_by_name_outside_a_run_too(call: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        call()


def test_a_bad_call_in_a_run_fails_it(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        await current.step("plain", plain, key="")

    with pytest.raises(RunFailed, match="step key ''"):
        env.run(flow)


def test_a_long_timeout_dispatches_a_call() -> None:
    assert declared.with_options(timeout="2m").definition.dispatch == "worker"
    assert declared.with_options(timeout="2m", dispatch="inline").definition.dispatch == "inline"
    assert declared.with_options(timeout="1s").definition.dispatch == "inline"
    assert declared.with_options(dispatch="worker").definition.dispatch == "worker"
    kept = declared.with_options(dispatch="worker").with_options(timeout="1s", key="k")
    assert (kept.definition.dispatch, kept.key) == ("worker", "k")
    assert kept.with_options(timeout="2s").key == "k"


def test_changed_code_under_a_key_blocks_the_run(env: Environment) -> None:
    @step
    async def charge(n: int) -> int:
        return n

    def body(n: int) -> Any:
        async def flow() -> None:
            await charge.with_options(key="k")(n)
            await hook("more")

        return workflow(name="flow")(flow)

    run = env.start(body(1))
    env.run_until_idle()
    body(2)
    env.resume_hook(env.hooks(run)[0].token, None)
    env.run_until_idle()
    header = env.get(run)
    assert header.status is RunStatus.SUSPENDED
    assert header.attention is not None
    assert "charge=k" in header.attention.reason
