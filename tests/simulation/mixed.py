"""Scenarios of runs that have to do with each other while somebody looks after each of them."""

from __future__ import annotations

from typing import Any

from examples.outside import outside
from stepwell import (
    ChildError,
    FatalError,
    RetryPolicy,
    continue_as_new,
    current,
    hook,
    saga,
    shield,
    sleep,
    start_child,
    step,
    workflow,
)

_OFTEN = RetryPolicy(max_attempts=20, initial=0, jitter="none")


@step(name="mixed.note")
async def note(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="mixed.undo")
async def undo(_: str, what: str) -> None:
    outside().request("undo", current.idempotency_key, what)


@step(name="mixed.away", dispatch="worker", retry=_OFTEN, compensate=undo)
async def away(what: str) -> str:
    return outside().request("away", current.idempotency_key, what)


@step(name="mixed.reach", retry=_OFTEN)
async def reach(what: str) -> str:
    if not outside().effects("outage"):
        raise FatalError("down")
    return outside().request("note", current.idempotency_key, what)


@workflow(name="mixed.worker")
async def worker(what: str) -> str:
    """Waits, then needs what may be down."""
    await sleep("1m")
    return f"{await note(what)}, {await reach(what)}"


@workflow(name="mixed.rounds")
async def rounds(done: int) -> int:
    """Goes on as new runs, with a child left open in each."""
    await start_child.with_options(wait=False)(worker, f"round {done}")
    async with shield():
        await note(f"{done}, {sorted(current.run.inbox)}")
    await sleep("1m")
    if done < 2:
        continue_as_new(done + 1)
    await reach("rounds")
    return done


@workflow(name="mixed.parent")
async def parent() -> list[Any]:
    """Fails with any of its children, and has undone then what was made elsewhere."""
    abandon = start_child.with_options(wait=False, on_parent_close="abandon")
    left = await abandon(worker, "abandoned")
    many = await start_child.with_options(wait=False)(rounds, 0)
    async with saga():
        made = await away.map(["one", "two"], max_concurrency=1)
        first = await start_child(worker, "waited for")
        return [made, first, await many.result(), await left.result()]


@workflow(name="mixed.patient")
async def patient() -> list[Any]:
    """Catches what becomes of a child that it asks to end, and goes on."""
    handle = await start_child.with_options(wait=False)(worker, "unwanted")
    await note("before")
    await handle.cancel("not needed")
    await note("after")
    found: list[Any] = [handle.status()]
    try:
        found.append(await handle.result())
    except ChildError as error:
        found.append(type(error).__name__)
    return [*found, await away("last"), await hook("question")]
