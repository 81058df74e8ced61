"""Steps whose outcome is made durable along with others: `commit="lazy"`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import hook, sleep, step, step_hook, workflow
from stepwell.errors import DefinitionError
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, kinds

_NEVER = 10**9


def appends(env: Environment) -> int:
    return env.port_calls.count("store.append")


@pytest.mark.parametrize("steps", [1, 5, 50])
def test_any_number_of_lazy_steps_costs_one_write(env: Environment, steps: int) -> None:
    @step(commit="lazy")
    async def parse(n: int) -> int:
        return n + 1

    @workflow
    async def flow() -> int:
        value = 0
        for _ in range(steps):
            value = await parse(value)
        return value

    env.crash_at(_NEVER)
    run = env.start(flow)
    env.run_until_idle()
    assert appends(env) == 1
    assert env.result(run) == steps


def test_a_step_after_a_lazy_one_does_not_wait_for_its_outcome(env: Environment) -> None:
    written: list[int] = []

    @step(commit="lazy")
    async def parse() -> int:
        return 1

    @step
    async def charge(n: int) -> int:
        written.append(appends(env))
        return n

    @workflow
    async def flow() -> int:
        return await charge(await parse()) + await parse() + await charge(await parse())

    env.crash_at(_NEVER)
    env.start(flow)
    env.run_until_idle()
    # What the first charge came to is durable before the next effect, with all that lies before it.
    assert written == [0, 1]
    assert appends(env) == 2


def test_a_lazy_outcome_is_durable_when_the_run_waits(env: Environment) -> None:
    ran: list[int] = []

    @step(commit="lazy")
    async def parse() -> int:
        ran.append(1)
        return len(ran)

    @workflow
    async def flow() -> int:
        first = await parse()
        await sleep("1h")
        return first

    run = env.start(flow)
    env.run_until_idle()
    assert "StepCompleted" in kinds(env, run)
    env.advance("1h")
    assert env.result(run) == 1
    assert ran == [1]


def test_a_lazy_outcome_does_not_wait_alone_for_a_slow_sibling(env: Environment) -> None:
    seen: list[int] = []

    @step(commit="lazy")
    async def parse() -> None: ...

    @step
    async def slow() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        seen.append(appends(env))

    @workflow
    async def flow() -> None:
        await asyncio.gather(slow(), parse())

    env.crash_at(_NEVER)
    env.start(flow)
    env.run_until_idle()
    assert seen == [0]


def test_a_crash_runs_a_lazy_step_again_and_nothing_else_is_lost() -> None:
    runs: list[Any] = []
    ran: list[str] = []

    def scenario(env: Environment) -> None:
        ran.clear()

        @step(commit="lazy")
        async def parse(n: int) -> int:
            ran.append("parse")
            return n + 1

        @step
        async def charge(n: int) -> int:
            return 10 * n

        @workflow
        async def flow() -> int:
            value = await charge(await parse(0))
            answer: int = await hook("more")
            return await charge(await parse(value + answer))

        runs.append(env.start(flow))
        env.run_until_idle()
        for each in env.hooks(runs[-1]):
            env.resume_hook(each.token, 5)
        env.run_until_idle()

    most = 0
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == 160
        most = max(most, len(ran))
    assert most > 2


def test_a_lazy_step_that_leaves_hooks_is_over_before_they_are_closed() -> None:
    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        @step(commit="lazy")
        async def ask() -> str:
            try:
                async with asyncio.timeout(0):
                    await step_hook("nobody")
            except TimeoutError:
                return "late"
            return "answered"

        @workflow
        async def flow() -> str:
            return await ask()

        runs.append(env.start(flow))
        env.run_until_idle()

    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "late"


@pytest.mark.parametrize("where", ["workflow", "step"])
def test_an_answer_does_not_overtake_what_led_to_its_question(env: Environment, where: str) -> None:
    """The process dies when the question is out; it is answered before the next turn."""

    @step(commit="lazy")
    async def parse() -> str:
        return "parsed"

    async def tell(_: str) -> None:
        env.crash_at(1)

    @step
    async def ask() -> str:
        answer: str = await step_hook("question", on_created=tell)
        return answer

    @workflow
    async def flow() -> str:
        first = await parse()
        if where == "workflow":
            return f"{first} {await hook('question', on_created=tell)}"
        return f"{first} {await ask()}"

    run = env.start(flow)
    env.take_turn()
    env.resume_hook(env.hooks(run)[0].token, "answered")
    env.run_until_idle()
    assert env.result(run) == "parsed answered"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"commit": "later"}, 'commit is "sync" or "lazy"'),
        ({"commit": "lazy", "at_most_once": True}, "at_most_once is there to avoid"),
        ({"commit": "lazy", "dispatch": "worker"}, "dispatch is there to avoid"),
        ({"commit": "lazy", "timeout": "10m"}, "dispatch is there to avoid"),
    ],
)
def test_lazy_goes_with_nothing_that_forbids_a_second_run(options: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):

        @step(**options)
        async def parse() -> None: ...


def test_a_lazy_step_cannot_be_dispatched_by_a_call() -> None:
    @step(commit="lazy")
    async def parse() -> None: ...

    with pytest.raises(DefinitionError, match="dispatch is there to avoid"):
        parse.with_options(dispatch="worker")
