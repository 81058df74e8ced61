"""Workflows of steps: they fail, take long, kill their process, or are made elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from examples.outside import outside
from stepwell import (
    RetryPolicy,
    StepFailed,
    StepInterrupted,
    current,
    hook,
    step,
    workflow,
)

_THREE = RetryPolicy(max_attempts=3, initial="10s", factor=2, jitter="none")
_ONCE = RetryPolicy(max_attempts=1)


@step(name="acceptance.do")
async def do(what: str) -> str:
    outside().request("done", current.idempotency_key, what)
    return what


@workflow(name="acceptance.greet")
async def greet(name: str) -> str:
    return f"hello {await do(name)}"


@step(name="acceptance.fail", retry=_THREE)
async def fail() -> None:
    outside().request("tried", str(current.attempt), "failed")
    raise ConnectionError("the bank is down")


@workflow(name="acceptance.fails_thrice")
async def fails_thrice() -> str:
    try:
        await fail()
    except StepFailed as error:
        return f"{error.type} after {error.attempts}: {error.message}"
    return "it worked"


class OutOfStock(Exception):
    """What the shop says."""


@step(name="acceptance.reserve", retry=_ONCE)
async def reserve() -> None:
    raise OutOfStock("no bolts")


@workflow(name="acceptance.own_error")
async def own_error() -> str:
    """The branch that was taken is taken again by the replay that follows the hook."""
    try:
        await reserve()
    except StepFailed as error:
        if error.type.endswith("OutOfStock"):
            await do("reorder")
        else:
            await do("give up")
    return f"{await hook('later')} {await do('after')}"


@step(name="acceptance.bad", retry=_THREE)
async def bad() -> Any:
    outside().request("done", "bad", "bad")
    return object()


@workflow(name="acceptance.uncarriable")
async def uncarriable() -> Any:
    return await bad()


@step(name="acceptance.write")
async def write(size: int) -> str:
    outside().request("done", current.idempotency_key, "text")
    return "x" * size


@workflow(name="acceptance.large")
async def large(size: int) -> list[int]:
    text = await write(size)
    await hook("later")
    return [len(text), len(set(text))]


@step(name="acceptance.branch", retry=_ONCE)
async def branch(n: int) -> int:
    outside().request("done", current.idempotency_key, str(n))
    if n == 7:
        raise ValueError("the seventh")
    return n


@workflow(name="acceptance.fan")
async def fan(width: int) -> str:
    found = await asyncio.gather(*[branch(n) for n in range(width)], return_exceptions=True)
    failed = [n for n, each in enumerate(found) if isinstance(each, StepFailed)]
    rest = [each for each in found if not isinstance(each, BaseException)]
    return f"failed {failed}, in order {rest == sorted(rest)}, {len(rest)} more"


@step(name="acceptance.slow", timeout="50s")
async def slow(seconds: int) -> str:
    outside().request("begun", current.idempotency_key, str(seconds))
    await asyncio.sleep(seconds)
    return f"{seconds} s"


@workflow(name="acceptance.long_turns")
async def long_turns(seconds: list[int]) -> list[str]:
    return [await slow(each) for each in seconds]


@step(name="acceptance.too_slow", timeout="30s", retry=RetryPolicy(max_attempts=2, initial="5s"))
async def too_slow() -> None:
    outside().request("begun", str(current.attempt), "slow")
    await asyncio.sleep(3_600)


@workflow(name="acceptance.times_out")
async def times_out() -> str:
    try:
        await too_slow()
    except StepFailed as error:
        return f"{type(error).__name__} after {error.attempts}"
    return "it ended"


@step(name="acceptance.endless_step", retry=RetryPolicy(max_attempts=2, initial="5s"))
async def endless_step() -> None:
    outside().request("begun", str(current.attempt), "endless")
    await asyncio.sleep(3_600)


@workflow(name="acceptance.outlives")
async def outlives() -> str:
    """An inline step that would outlive its process."""
    try:
        await endless_step()
    except StepFailed as error:
        return f"after {error.attempts}"
    return "it ended"


@step(name="acceptance.watch")
async def watch() -> str:
    for _ in range(100):
        if current.cancelled:
            outside().request("noticed", current.idempotency_key, "in time")
            break
        await asyncio.sleep(1)
    return "watched"


@workflow(name="acceptance.watches")
async def watches() -> str:
    await watch()
    return await do("after")


@step(name="acceptance.pay_once", dispatch="worker", retry=_ONCE)
async def pay_once() -> str:
    outside().request("paid", current.idempotency_key, "once")
    return "paid"


@workflow(name="acceptance.pays_once")
async def pays_once() -> str:
    """What may not be done twice: one attempt, made elsewhere, counted before it begins."""
    try:
        return await pay_once()
    except StepInterrupted:
        return f"nobody knows, {await do('ask the bank')}"


@step(name="acceptance.kill", retry=_THREE)
async def kill() -> None:
    outside().request("killed", current.idempotency_key, "a process")


@workflow(name="acceptance.kills")
async def kills() -> str:
    try:
        await kill()
    except StepInterrupted as error:
        return f"interrupted after {error.attempts}"
    return "it ended"


@step(name="acceptance.kill_elsewhere", dispatch="worker", retry=_THREE)
async def kill_elsewhere() -> None:
    outside().request("killed", current.idempotency_key, "a process")


@workflow(name="acceptance.kills_elsewhere")
async def kills_elsewhere() -> str:
    try:
        await kill_elsewhere()
    except StepInterrupted as error:
        return f"interrupted after {error.attempts}"
    return "it ended"


@workflow(name="acceptance.forgets_a_task")
async def forgets_a_task() -> str:
    background = asyncio.create_task(do("in the background"))
    await do("in front")
    return "kept" if background else "lost"


@workflow(name="acceptance.waits_for_nothing")
async def waits_for_nothing() -> None:
    await asyncio.Event().wait()


@workflow(name="acceptance.endless")
async def endless() -> None:
    while True:
        await do("again")


@workflow(name="acceptance.spins_on_caught_errors")
async def spins_on_caught_errors() -> str:
    while True:
        try:
            await do("again")
        except Exception:
            return "caught"
