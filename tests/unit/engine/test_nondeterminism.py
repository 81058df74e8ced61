"""Code that no longer fits a history: the run waits as BLOCKED, and nothing happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import hook, sleep, step, workflow
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.errors import RunBlocked
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

#: Bodies of steps that ran.
RAN: list[str] = []

with registry.isolated():

    @step
    async def charge(order: str) -> int:
        RAN.append(f"charge {order}")
        return 1

    @step
    async def ship(order: str) -> int:
        RAN.append(f"ship {order}")
        return 2


with registry.isolated():

    @step(name="charge")
    async def charge_as_text(order: str) -> list[str]:
        RAN.append(f"charge {order}")
        return [order]


with registry.isolated():

    @step(name="charge")
    async def charge_with_a_currency(order: str, currency: str = "EUR") -> int:
        RAN.append(f"charge {order} {currency}")
        return 1


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def registered(body: Callable[..., Any]) -> Workflow[..., Any]:
    return workflow(name="flow")(body)


async def original() -> Any:
    first = await charge("a")
    second = await ship("a")
    answers = await asyncio.gather(hook("one"), hook("two"), sleep("7d"))
    return [first, second, *answers[:2], await charge("b")]


async def renamed() -> Any:
    await charge("a")
    await step(name="deliver")(ship.__wrapped__)("a")  # type: ignore[attr-defined]
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))


async def removed() -> Any:
    await charge("a")
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))
    await charge("b")


async def inserted_before() -> Any:
    await step(name="check")(ship.__wrapped__)("a")  # type: ignore[attr-defined]
    return await original()


async def inserted_between() -> Any:
    await charge("a")
    await step(name="check")(ship.__wrapped__)("a")  # type: ignore[attr-defined]
    await ship("a")
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))


async def inserted_before_the_wait() -> Any:
    await charge("a")
    await ship("a")
    await step(name="check")(ship.__wrapped__)("a")  # type: ignore[attr-defined]
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))


async def another_input() -> Any:
    await charge("another")
    await ship("a")
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))


async def swapped() -> Any:
    await ship("a")
    await charge("a")
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))


async def a_hook_for_a_step() -> Any:
    await charge("a")
    await hook("ship")
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))


async def a_step_for_a_hook() -> Any:
    await charge("a")
    await ship("a")
    one = step(name="one")(ship.__wrapped__)  # type: ignore[attr-defined]
    await asyncio.gather(one("a"), hook("two"), sleep("7d"))


async def a_timer_for_a_hook() -> Any:
    await charge("a")
    await ship("a")
    await asyncio.gather(sleep("1d"), hook("two"), sleep("7d"))


async def another_result_type() -> Any:
    await charge_as_text("a")
    await ship("a")
    await asyncio.gather(hook("one"), hook("two"), sleep("7d"))


async def ends_too_soon() -> Any:
    return await charge("a")


async def fails_too_soon() -> Any:
    await charge("a")
    raise NameError("a slip in the new code")


async def without_the_hooks() -> Any:
    await charge("a")
    await ship("a")
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0), sleep("7d"))


async def without_the_timer() -> Any:
    await charge("a")
    await ship("a")
    await asyncio.gather(hook("one"), hook("two"))


BREAKING = [
    (renamed, "StepCompleted of 'ship:1'", "step 'deliver:1'"),
    (removed, "StepCompleted of 'ship:1'", "hook '1/one:1', hook '2/two:1', timer '3/sleep:1'"),
    (inserted_before, "StepCompleted of 'charge:1'", "step 'check:1'"),
    (inserted_between, "StepCompleted of 'ship:1'", "step 'check:1'"),
    (inserted_before_the_wait, "'1/one:1'", "step 'check:1'"),
    (another_input, "step 'charge:1' with input", "step 'charge:1' with input"),
    (swapped, "StepCompleted of 'charge:1'", "step 'ship:1'"),
    (a_hook_for_a_step, "step 'ship:1'", "hook 'ship:1'"),
    (a_step_for_a_hook, "hook '1/one:1'", "step '1/one:1'"),
    (a_timer_for_a_hook, "'1/one:1'", "timer '1/sleep:1'"),
    (another_result_type, "a result of step 'charge:1'", "a result that fits its type now"),
    (ends_too_soon, "step 'ship:1'", "nothing more"),
    (fails_too_soon, "step 'ship:1'", "nothing more: it raised NameError: a slip in the new code"),
    (without_the_hooks, "'1/one:1'", "timer '3/sleep:1'"),
    (without_the_timer, "timer '3/sleep:1'", "hook '2/two:1'"),
]


def waiting_run(env: Environment) -> RunHandle[Any]:
    with registry.isolated():
        run = env.start(registered(original))
        env.run_until_idle()
        assert env.get(run).status is RunStatus.SUSPENDED
        check_run(env, run)
    RAN.clear()
    return run


def answer(env: Environment, run: RunHandle[Any], name: str) -> None:
    [open_hook] = [each for each in env.hooks(run) if each.name == name]
    env.resume_hook(open_hook.token, name)


@pytest.mark.parametrize(("body", "recorded", "asked"), BREAKING)
def test_a_change_that_does_not_fit_blocks_before_any_effect(
    body: Any, recorded: str, asked: str, stepwell_env: Environment
) -> None:
    run = waiting_run(stepwell_env)
    before = stepwell_env.history(run)
    with registry.isolated():
        registered(body)
        answer(stepwell_env, run, "one")
    assert RAN == []
    header = stepwell_env.get(run)
    assert header.status is RunStatus.SUSPENDED
    assert header.attention is not None
    assert header.attention.kind == "BLOCKED"
    reason = header.attention.reason
    assert "workflow 'flow'" in reason
    told, _, wanted = reason.partition(", the code asked for ")
    assert recorded in told
    assert asked in wanted
    # The answer is a fact and is recorded; nothing that the code did is.
    after = stepwell_env.history(run)
    assert after[: len(before)] == before
    assert {each.event.type for each in after[len(before) :]} == {"HookReceived"}
    with pytest.raises(RunBlocked, match="the history records"):
        stepwell_env.result(run)


@pytest.mark.parametrize(("body", "recorded", "asked"), BREAKING)
def test_when_the_code_fits_again_the_run_goes_on(
    body: Any, recorded: str, asked: str, stepwell_env: Environment
) -> None:
    run = waiting_run(stepwell_env)
    with registry.isolated():
        registered(body)
        answer(stepwell_env, run, "one")
    with registry.isolated():
        registered(original)
        answer(stepwell_env, run, "two")
        assert stepwell_env.get(run).attention is None
        check_run(stepwell_env, run)
        stepwell_env.advance("7d")
        assert stepwell_env.result(run) == [1, 2, "one", "two", 1]
        check_run(stepwell_env, run)
    assert RAN == ["charge b"]


def test_a_step_that_asks_at_another_place_is_told_where(stepwell_env: Environment) -> None:
    run = waiting_run(stepwell_env)
    with registry.isolated():
        registered(another_input)
        answer(stepwell_env, run, "one")
    attention = stepwell_env.get(run).attention
    assert attention is not None
    line = another_input.__code__.co_firstlineno + 1
    assert f"workflow 'flow', another_input line {line}" in attention.reason


def test_a_workflow_that_is_gone_blocks_its_runs(stepwell_env: Environment) -> None:
    run = waiting_run(stepwell_env)
    answer(stepwell_env, run, "one")
    attention = stepwell_env.get(run).attention
    assert attention is not None
    assert "'flow' is not registered" in attention.reason
    with registry.isolated():
        registered(original)
        answer(stepwell_env, run, "two")
        stepwell_env.advance("7d")
        assert stepwell_env.result(run) == [1, 2, "one", "two", 1]


def test_code_that_swallows_the_refusal_is_blocked_all_the_same(stepwell_env: Environment) -> None:
    async def swallows() -> Any:
        try:
            await charge("another")
        except BaseException:
            return await ship("swallowed")

    run = waiting_run(stepwell_env)
    with registry.isolated():
        registered(swallows)
        answer(stepwell_env, run, "one")
    assert RAN == []
    attention = stepwell_env.get(run).attention
    assert attention is not None
    assert "step 'charge:1' with input" in attention.reason


async def a_parameter_with_a_default() -> Any:
    first = await charge_with_a_currency("a")
    second = await ship("a")
    answers = await asyncio.gather(hook("one"), hook("two"), sleep("7d"))
    return [first, second, *answers[:2], await charge_with_a_currency("b")]


async def steps_behind_the_wait() -> Any:
    first = await charge("a")
    second = await ship("a")
    answers = await asyncio.gather(hook("one"), hook("two"), sleep("7d"))
    await ship("late")
    return [first, second, *answers[:2], await charge("b")]


async def a_longer_sleep() -> Any:
    # The recorded timer counts: it is due when it was due.
    first = await charge("a")
    second = await ship("a")
    answers = await asyncio.gather(hook("one"), hook("two"), sleep("900d"))
    return [first, second, *answers[:2], await charge("b")]


@pytest.mark.parametrize(
    "body", [a_parameter_with_a_default, steps_behind_the_wait, a_longer_sleep]
)
def test_a_change_that_fits_lets_the_run_go_on(body: Any, stepwell_env: Environment) -> None:
    run = waiting_run(stepwell_env)
    with registry.isolated():
        registered(body)
        answer(stepwell_env, run, "one")
        answer(stepwell_env, run, "two")
        stepwell_env.advance("7d")
        assert stepwell_env.result(run) == [1, 2, "one", "two", 1]
        check_run(stepwell_env, run)


def test_another_order_between_branches_fits(stepwell_env: Environment) -> None:
    async def both(pauses: tuple[int, int]) -> Any:
        async def branch(order: str, pause: int) -> int:
            for _ in range(pause):
                await asyncio.sleep(0)
            return await charge(order) + await ship(order)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(n, p)) for n, p in zip("ab", pauses, strict=True)]
            group.create_task(hook("one"))
        return [task.result() for task in tasks]

    async def left_first() -> Any:
        return await both((0, 5))

    async def right_first() -> Any:
        return await both((5, 0))

    with registry.isolated():
        run = stepwell_env.start(registered(left_first))
        stepwell_env.run_until_idle()
    RAN.clear()
    with registry.isolated():
        registered(right_first)
        answer(stepwell_env, run, "one")
        assert stepwell_env.result(run) == [3, 3]
    assert RAN == []


def test_what_comes_due_after_a_run_was_blocked_still_comes(stepwell_env: Environment) -> None:
    fits = True

    @step
    async def old() -> None: ...

    @step
    async def new() -> None: ...

    @workflow
    async def naps() -> None:
        await (old() if fits else new())
        await asyncio.gather(sleep("1h"), sleep("2h"), sleep("3h"))

    run = stepwell_env.start(naps)
    stepwell_env.run_until_idle()
    fits = False
    stepwell_env.advance("1h")
    assert stepwell_env.get(run).attention is not None
    fits = True
    stepwell_env.advance("1h")
    assert stepwell_env.get(run).attention is None
    stepwell_env.advance("1h")
    assert stepwell_env.get(run).status is RunStatus.COMPLETED


def reason_of(env: Environment, run: RunHandle[Any]) -> str:
    attention = env.get(run).attention
    assert attention is not None
    return attention.reason


def test_the_reason_compares_what_is_recorded_with_what_is_asked_for(
    stepwell_env: Environment,
) -> None:
    run = waiting_run(stepwell_env)
    with registry.isolated():
        registered(inserted_between)
        answer(stepwell_env, run, "one")
    lines = reason_of(stepwell_env, run).splitlines()
    marked = [line[:2] + line.split("'")[1] for line in lines[lines.index(_HEAD) + 1 :]]
    assert marked == [
        "  charge:1",
        "- ship:1",
        "- 1/one:1",
        "- 2/two:1",
        "- 3/sleep:1",
        "+ check:1",
    ]


_HEAD = "recorded (-) against asked for (+):"


def test_a_removed_call_is_named_with_the_one_that_took_its_place(
    stepwell_env: Environment,
) -> None:
    async def twice() -> None:
        await charge("a")
        await charge("b")
        await hook("one")

    async def once() -> None:
        await charge("b")
        await hook("one")

    with registry.isolated():
        run = stepwell_env.start(registered(twice))
        stepwell_env.run_until_idle()
    with registry.isolated():
        registered(once)
        answer(stepwell_env, run, "one")
    reason = reason_of(stepwell_env, run)
    assert "a call was removed before 'charge:1'" in reason
    assert "recorded as 'charge:2'" in reason


def test_calls_with_keys_may_change_their_order_and_their_place(
    stepwell_env: Environment,
) -> None:
    async def before() -> list[int]:
        await charge.with_options(key="1")("a")
        await charge.with_options(key="2")("b")
        await hook("one")
        return []

    async def after() -> list[int]:
        second = await charge.with_options(key="2")("b")
        [first] = await asyncio.gather(charge.with_options(key="1")("a"))
        await hook("one")
        return [first, second]

    with registry.isolated():
        run = stepwell_env.start(registered(before))
        stepwell_env.run_until_idle()
    RAN.clear()
    with registry.isolated():
        registered(after)
        answer(stepwell_env, run, "one")
        assert stepwell_env.run_to_end(run) == [1, 1]
    assert RAN == []


def test_a_key_that_nobody_asks_for_any_more_blocks_the_run(stepwell_env: Environment) -> None:
    async def before() -> None:
        await charge.with_options(key="1")("a")
        await hook("one")

    async def after() -> None:
        await charge.with_options(key="2")("a")
        await hook("one")

    with registry.isolated():
        run = stepwell_env.start(registered(before))
        stepwell_env.run_until_idle()
    RAN.clear()
    with registry.isolated():
        registered(after)
        answer(stepwell_env, run, "one")
    reason = reason_of(stepwell_env, run)
    assert "'charge=1' is recorded and 'charge=2' is asked for" in reason
    assert RAN == []
