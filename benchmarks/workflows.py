"""What is measured: the smallest workflows that show one cost each."""

from __future__ import annotations

import asyncio

from stepwell import continue_as_new, hook, sleep, start_child, step, step_hook, workflow


@step
async def increment(value: int) -> int:
    return value + 1


@workflow
async def sequence(steps: int) -> int:
    value = 0
    for _ in range(steps):
        value = await increment(value)
    return value


@workflow
async def fan_out(steps: int) -> int:
    return sum(await asyncio.gather(*(increment(n) for n in range(steps))))


@workflow
async def steps_then_answer(steps: int) -> int:
    value = 0
    for _ in range(steps):
        value = await increment(value)
    answer: int = await hook("answer")
    return await increment(value + answer)


@step
async def ask() -> int:
    answer: int = await step_hook("question", timeout="24h")
    return answer


@workflow
async def around_a_hook(steps: int) -> int:
    """Half of the steps, a step that asks, and the other half."""
    value = 0
    for _ in range(steps // 2):
        value = await increment(value)
    value += await ask()
    for _ in range(steps // 2):
        value = await increment(value)
    return value


@step(dispatch="worker")
async def increment_elsewhere(value: int) -> int:
    return value + 1


@workflow
async def dispatched(value: int) -> int:
    return await increment_elsewhere(value)


@workflow
async def sleep_a_day(value: int) -> int:
    await sleep("24h")
    return value


@workflow
async def map_inline(items: int) -> int:
    return sum(await increment.map(range(items)))


@workflow
async def map_elsewhere(items: int) -> int:
    return sum(await increment_elsewhere.map(range(items)))


@workflow
async def map_in_lanes(items: int) -> int:
    return sum(await increment_elsewhere.map(range(items), max_concurrency=10))


@workflow
async def child_of_steps(steps: int) -> int:
    return await start_child(sequence, steps)


@workflow
async def goes_on(rounds: int) -> int:
    if rounds:
        continue_as_new(rounds - 1)
    return await increment(rounds)
