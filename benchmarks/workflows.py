"""What is measured: the smallest workflows that show one cost each."""

from __future__ import annotations

import asyncio

from stepwell import hook, step, workflow


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
