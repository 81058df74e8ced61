"""Workflows that wait: for people, for a time, for both."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from examples.outside import outside
from stepwell import (
    STEP_HOOK_TIMEOUT,
    HookTimeout,
    Suspend,
    current,
    hook,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from tests.acceptance.doing import do


class Verdict(BaseModel):
    approved: bool
    note: str = ""


@workflow(name="acceptance.approval")
async def approval() -> str:
    verdict = await hook("verdict", payload_schema=Verdict, timeout="1d", on_timeout="return")
    if verdict is STEP_HOOK_TIMEOUT:
        return f"nobody, {await do('escalate')}"
    return f"{verdict.approved}, {await do('tell')}"


@workflow(name="acceptance.deadline")
async def deadline() -> str:
    try:
        return f"{await hook('question', timeout='1h')}, {await do('tell')}"
    except HookTimeout:
        return f"too late, {await do('escalate')}"


@workflow(name="acceptance.shown_deadline")
async def shown_deadline() -> str:
    return str(await hook("question", timeout="1h", on_timeout="wait"))


@workflow(name="acceptance.three_hooks")
async def three_hooks() -> list[Any]:
    return list(await asyncio.gather(hook("one"), hook("two"), hook("three")))


@workflow(name="acceptance.one_after_the_other")
async def one_after_the_other() -> list[Any]:
    return [await hook("turn") for _ in range(3)]


@workflow(name="acceptance.many_hooks")
async def many_hooks(width: int) -> int:
    return sum(await asyncio.gather(*[hook("part", key=str(n)) for n in range(width)]))


@workflow(name="acceptance.reminds")
async def reminds() -> str:
    """Asks anew after each hour that nobody answers; nobody listens to the earlier questions."""
    for n in range(3):
        asked = asyncio.create_task(hook("answer", key=str(n)))
        timer = asyncio.create_task(asyncio.sleep(3_600))
        done, _ = await asyncio.wait({asked, timer}, return_when=asyncio.FIRST_COMPLETED)
        if asked in done:
            timer.cancel()
            return f"{asked.result()} at {n}"
        asked.cancel()
        await do(f"remind {n}")
    return "nobody"


@workflow(name="acceptance.swallows")
async def swallows() -> str:
    """Code that would end a waiting run, if that were possible."""
    try:
        return str(await hook("question"))
    except:  # noqa: E722
        return "swallowed"


@workflow(name="acceptance.tells")
async def tells() -> str:
    async def tell(token: str) -> None:
        outside().request("told", token, "the reviewer")

    return str(await hook("question", on_created=tell))


@workflow(name="acceptance.long_wait")
async def long_wait() -> str:
    await do("before")
    return f"{await hook('question')} {await do('after')}"


@step(name="acceptance.asks")
async def asks() -> str:
    outside().request("before", current.idempotency_key, "repeated at each entry")
    draft = await load_step_checkpoint(str)
    if draft is None:
        draft = outside().request("draft", current.idempotency_key, "done once")
        await save_step_checkpoint(draft)
    return f"{draft[:0]}{await step_hook('review')}"


@workflow(name="acceptance.asks_in_a_step")
async def asks_in_a_step() -> str:
    return await asks()


@workflow(name="acceptance.sleeps")
async def sleeps() -> str:
    await sleep("200d")
    return await do("after")


async def _tell(token: str) -> None:
    outside().request("told", token, "somebody")


@workflow(name="acceptance.one_hook")
async def one_hook() -> str:
    """A step, a hook with a deadline of which somebody is told, a step."""
    await do("A")
    answer = await hook("question", timeout="1d", on_created=_tell, on_timeout="return")
    await do("B")
    return "expired" if answer is STEP_HOOK_TIMEOUT else str(answer)


@workflow(name="acceptance.two_hooks")
async def two_hooks() -> str:
    """The same with two hooks, of which one is enough."""
    await do("A")
    asked = [asyncio.create_task(hook(name, on_created=_tell)) for name in ("left", "right")]
    done, late = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    await do("B")
    return str(sorted(str(each.result()) for each in done))


@workflow(name="acceptance.naps")
async def naps(width: int) -> str:
    await asyncio.gather(*[sleep("10s") for _ in range(width)])
    return await do("after")


@workflow(name="acceptance.cleans_up")
async def cleans_up() -> str:
    try:
        return str(await hook("question", timeout="1d"))
    finally:
        await do("clean up")


@step(name="acceptance.signed")
async def signed() -> str:
    if "go" not in current.run.inbox:
        raise Suspend("wants go")
    return str(current.run.inbox["go"])


@step(name="acceptance.signed_away", dispatch="worker")
async def signed_away() -> str:
    if "go" not in current.run.inbox:
        raise Suspend("wants go")
    return str(current.run.inbox["go"])


@workflow(name="acceptance.wants_input")
async def wants_input() -> str:
    return f"{await do('first')}, {await signed()}, {await signed_away()}"


@workflow(name="acceptance.begins_again")
async def begins_again() -> str:
    if "go" not in current.run.inbox:
        await do("asks")
        raise Suspend("wants go")
    return f"{await do('goes')}, {current.run.inbox['go']}"
