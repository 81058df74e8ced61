"""More code of recorded histories: keys, options of calls, conditions and sagas.

As with `workflows`, a change here must leave each of them replayable.
"""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell import (
    Backoff,
    CompensationFailed,
    FatalError,
    KeyConflict,
    RetryPolicy,
    StepInterrupted,
    current,
    hook,
    saga,
    sleep,
    step,
    wait_for_condition,
    workflow,
)


@step(name="hist.tripled")
async def tripled(n: int) -> int:
    return 3 * n


@step(name="hist.lazily", commit="lazy")
def lazily(n: int) -> int:
    return n - 1


@step(name="hist.once", at_most_once=True)
async def once(n: int) -> int:
    return n


@step(name="hist.hired", retry=RetryPolicy(max_attempts=5, jitter="none"))
async def hired(n: int) -> int:
    if current.attempt < 2:
        raise OSError("busy")
    return n


@step(name="hist.given_back")
async def given_back(receipt: str, what: str) -> None:
    if what == "c":
        raise FatalError("gone")


@step(name="hist.taken", compensate=given_back)
async def taken(what: str) -> str:
    return what.upper()


@workflow(name="hist.keyed")
async def keyed() -> list[Any]:
    def plain(n: int) -> int:
        return n + 1

    one = tripled.with_options(key="one")
    found: list[Any] = list(await asyncio.gather(one(1), one(1)))
    await sleep("1h")
    try:
        await one(2)
    except KeyConflict as conflict:
        found.append(conflict.key)
    found.append(await hired.with_options(key="two", timeout="2m")(4))
    found.append(await current.step("plain", plain, 5, key="three"))
    return [*found, await hook("hist.tripled", key="one"), await lazily.aio(7), await once(8)]


@workflow(name="hist.conditioned")
async def conditioned() -> list[Any]:
    async def look(seen: list[int]) -> tuple[bool, list[int]]:
        return len(seen) == 2, [*seen, len(seen)]

    spread = Backoff(initial="1m", factor=3)
    first = await wait_for_condition(look, [], backoff=spread)
    return [*first, *await wait_for_condition(look, [9], key="again", timeout="1h")]


@workflow(name="hist.undone")
async def undone() -> str:
    try:
        async with saga() as undo:
            await taken("a")
            async with saga():
                await asyncio.gather(taken("b"), taken("c"))
            undo.add(tripled, 1)
            raise ValueError("no")
    except CompensationFailed as failed:
        return f"{failed.original}: {len(failed.errors)}"


@workflow(name="hist.undone_blocking")
def undone_blocking() -> None:
    with saga() as undo:
        undo.add(tripled, n=2)
        hook("never")


@workflow(name="hist.died_once")
async def died_once() -> str:
    try:
        return str(await once(1))
    except StepInterrupted as error:
        return f"interrupted after {error.attempts}"
