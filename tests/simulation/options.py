"""Runs whose steps have keys and options, wait for conditions, and are undone."""

from __future__ import annotations

import asyncio

from examples.outside import outside
from stepwell import (
    CompensationFailed,
    FatalError,
    KeyConflict,
    RetryPolicy,
    StepFailed,
    StepInterrupted,
    current,
    hook,
    saga,
    sleep,
    step,
    wait_for_condition,
    workflow,
)


def _note(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="sim.noted")
async def noted(what: str) -> str:
    return _note(what)


@step(name="sim.parsed", commit="lazy")
async def parsed(what: str) -> str:
    return _note(what)


def _wire(key: str, what: str) -> str:
    return outside().request("wired", key, what)


@step(name="sim.wired", at_most_once=True)
async def wired(what: str) -> str:
    return _wire(current.step_id, what)


@step(name="sim.wired_away", at_most_once=True, dispatch="worker")
async def wired_away(what: str) -> str:
    return _wire(current.step_id, what)


@step(
    name="sim.wired_again",
    at_most_once=True,
    retry=RetryPolicy(
        max_attempts=9, initial="1s", jitter="none", retry_on=(Exception, StepInterrupted)
    ),
)
async def wired_again(what: str) -> str:
    return _wire(f"{current.step_id}/{current.attempt}", what)  # each attempt by itself


@step(name="sim.returned")
async def returned(receipt: str, what: str) -> None:
    _note(f"return {what}")


@step(name="sim.bought", compensate=returned)
async def bought(what: str) -> str:
    return _note(f"buy {what}")


@step(name="sim.stuck")
async def stuck(receipt: str) -> None:
    raise FatalError("cannot be taken back")


@step(name="sim.given", compensate=stuck)
async def given() -> str:
    return _note("give")


@workflow(name="sim.keyed")
async def keyed() -> list[str]:
    def plain(what: str) -> str:
        return _note(what)

    one = noted.with_options(key="one")
    both = list(await asyncio.gather(one("a"), one("a")))
    await sleep("1h")
    try:
        await one("b")
    except KeyConflict as conflict:
        both.append(conflict.key)
    return [*both, await one("a"), await current.step("plain", plain, "c", key="c")]


@workflow(name="sim.lazy")
async def lazy() -> list[str]:
    read = [await parsed("a"), await noted("b"), *await asyncio.gather(parsed("c"), parsed("d"))]
    answer: str = await hook("question")
    return [*read, await parsed(answer), await noted("e")]


async def _look(seen: list[str]) -> tuple[bool, list[str]]:
    _note(str(len(seen)))
    return len(seen) == 2, [*seen, "looked"]


@workflow(name="sim.polled")
async def polled() -> list[str]:
    keyed = wait_for_condition(_look, [], name="look", key="k", backoff="10m")
    one, other = await asyncio.gather(keyed, wait_for_condition(_look, [], name="look"))
    return [*one, *other]


@workflow(name="sim.undone")
async def undone() -> str:
    try:
        async with saga() as undo:
            await bought("a")
            undo.add(noted, "added")
            async with saga():
                await asyncio.gather(bought("b"), bought("c"))
            await given()
            raise ValueError("no")
    except CompensationFailed as failed:
        return f"{failed.original}: {failed}"


@workflow(name="sim.undone_by_cancel")
def undone_by_cancel() -> None:
    with saga() as undo:
        undo.add(noted, "added")
        parsed("a")  # type: ignore[unused-coroutine]
        bought("b")  # type: ignore[unused-coroutine]
        hook("question")


@workflow(name="sim.once")
async def once() -> list[str]:
    found = []
    for what, call in (("a", wired), ("b", wired_away), ("c", wired_again)):
        try:
            found.append(await call(what))
        except StepFailed as error:
            found.append(type(error).__name__)
    return found
