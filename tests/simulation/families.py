"""Scenarios of several runs: parents and children, and runs that go on as new ones."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from examples.outside import outside
from stepwell import (
    ChildCancelled,
    ChildFailed,
    continue_as_new,
    current,
    hook,
    sleep,
    start_child,
    step,
    step_guard,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.testing import Environment
from tests.simulation.scenario import Scenario


@step(name="family.note")
async def note(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@workflow(name="family.grandchild")
async def grandchild(what: str) -> str:
    await sleep("1h")
    return await note(f"{what}, a grandchild")


class Sent(BaseModel):
    by: str = "nobody"


@step_guard(name="family.look")
def look(payload: dict[str, Any]) -> dict[str, Any]:
    return {"power": "mutate", "args": [f"{payload['args'][0]}, guarded"]}


@workflow(name="family.child", context=Sent)
async def child(what: str) -> str:
    noted = await note(f"{what} by {current.context.by}")
    return f"{noted}, {await start_child(grandchild, what)}"


@workflow(name="family.failing")
async def failing(what: str) -> None:
    raise ValueError(f"{what}: {await note('failing')}")


@workflow(name="family.waiting")
async def waiting() -> Any:
    try:
        return await hook("waits")
    finally:
        await note("no longer")


@workflow(name="family.parent")
async def parent() -> list[str]:
    first = start_child.with_options(context=Sent(by="its parent"), prepare_step=look)
    found = [await first(child, "one")]
    try:
        await start_child.with_options(key="bad")(failing, "no")
    except ChildFailed as error:
        found.append(f"{error.child_id} {error.type}")
    return [*found, await start_child("family.grandchild", what="by name")]


@workflow(name="family.side_by_side")
async def side_by_side() -> list[str]:
    many = (start_child(grandchild, str(n)) for n in range(3))
    return list(await asyncio.gather(*many))


@workflow(name="family.leaving")
async def leaving() -> list[Any]:
    """Children that nobody waits for to their end."""
    found: list[Any] = []
    start = start_child.with_options(wait=False)
    unwanted = await start(waiting)
    await unwanted.cancel("not needed")
    try:
        await unwanted.result()
    except ChildCancelled as error:
        found.append(error.reason)
    try:
        async with asyncio.timeout(60):
            await start_child(waiting)
    except TimeoutError:
        found.append("late")
    abandon = start_child.with_options(wait=False, on_parent_close="abandon")
    await abandon(grandchild, "abandoned")
    left = await start(waiting)
    return [*found, left.status()]


@workflow(name="family.holding")
async def holding() -> Any:
    try:
        return await start_child(waiting)
    except asyncio.CancelledError:
        await note("cleaned up")
        raise


@workflow(name="family.rounds")
async def rounds(done: int) -> int:
    await note(f"round {done}")
    if done == 1:
        await sleep("1h")
    if done < 3:
        opened = asyncio.create_task(hook("open"))
        await note(f"end of round {done}")
        opened.cancel()
        await start_child.with_options(wait=False)(waiting)
        continue_as_new(done + 1)
    return done


@workflow(name="family.waits_for_rounds")
async def waits_for_rounds() -> int:
    return await start_child(rounds, 0)


@workflow(name="family.blocking")
def blocking() -> list[Any]:
    handle: Any = start_child.with_options(wait=False)(grandchild, "from a thread")
    return [start_child(rounds, 2), handle.result()]


def _cancel(env: Environment, run: RunHandle[Any]) -> None:
    env.cancel(run, "not wanted")


def _answered(env: Environment, run: RunHandle[Any]) -> None:
    [held] = [each for each in env.hooks() if each.name == "waits"]
    env.resume_hook(held.token, "kept")


def _pass(env: Environment, run: RunHandle[Any]) -> None:
    env.advance("5h")


FAMILIES = (
    Scenario(name="parent", workflow=parent, script=_pass),
    Scenario(name="left children", workflow=leaving, script=_pass, timed=True),
    Scenario(name="held child", workflow=holding, script=_answered),
    # Which of the two ends first depends on when.
    Scenario(name="cancelled parent", workflow=holding, script=_cancel, timed=True),
    Scenario(name="rounds", workflow=waits_for_rounds, script=_pass),
    Scenario(name="def parent", workflow=blocking, script=_pass),
)
