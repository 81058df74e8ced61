"""What runs cost, in port calls: the same on every machine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks.workflows import fan_out, increment, sequence
from stepwell import hook, step, step_hook, workflow
from stepwell.testing import Environment

#: Larger than any number of calls in these tests: nothing crashes, calls are counted.
_NEVER = 10**9


@pytest.fixture
def env() -> Iterator[Environment]:
    with Environment() as environment:
        environment.crash_at(_NEVER)
        yield environment


def calls(env: Environment) -> dict[str, int]:
    counted = Counter(env.port_calls)
    env.crash_at(_NEVER)
    return dict(counted)


@pytest.mark.parametrize("steps", [1, 5, 100])
def test_a_sequence_costs_one_read_and_one_write_per_step(env: Environment, steps: int) -> None:
    env.run(sequence, steps)
    # The first event leaves with the first step's, the last step's with the end of the run.
    assert calls(env) == {"store.load": 1, "store.append": steps, "store.update_header": 1}


def test_a_hundred_parallel_steps_cost_one_write(env: Environment) -> None:
    env.run(fan_out, 100)
    assert calls(env) == {"store.load": 1, "store.append": 1, "store.update_header": 1}


def test_three_thousand_parallel_steps_cost_two(env: Environment) -> None:
    env.run(fan_out, 3000)
    assert calls(env) == {"store.load": 1, "store.append": 2, "store.update_header": 1}


def test_five_steps_around_a_step_hook(env: Environment) -> None:
    @step
    async def ask() -> int:
        answer: int = await step_hook("question", timeout="24h")
        return answer

    @workflow
    async def asks() -> int:
        value = await increment(await increment(0))
        value += await ask()
        return await increment(await increment(value))

    run = env.start(asks)
    env.run_until_idle()
    assert calls(env) == {
        "store.load": 1,
        "store.append": 3,
        "store.put_hook": 1,
        "timers.start": 1,
        "store.update_header": 1,
    }
    env.resume_hook(env.hooks(run)[0].token, 40)
    assert env.result(run) == 44
    assert calls(env) == {
        "store.load": 1,
        "store.append": 4,
        "store.update_header": 1,
        "timers.cancel": 1,
    }


def test_a_message_that_has_nothing_to_say_costs_a_read(env: Environment) -> None:
    @workflow
    async def waits() -> None:
        await hook("never")

    run = env.start(waits)
    env.run_until_idle()
    calls(env)
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert calls(env) == {"store.load": 1}


def test_a_timeout_that_does_not_pass_costs_nothing(env: Environment) -> None:
    @workflow
    async def bounded() -> int:
        async with asyncio.timeout(60):
            return await increment(1)

    env.run(bounded)
    assert calls(env) == {"store.load": 1, "store.append": 1, "store.update_header": 1}
