"""Small runs of every kind, each a workflow and what the outside does while it runs.

A scenario must be the same on every drive: its effects outside are keyed, and what fails, fails by
the run's time and not by a count of calls (a crash makes one call more).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

from examples.agent.workflow import assist
from examples.approval.workflow import Order, refund
from examples.outside import outside
from stepwell import (
    STEP_HOOK_TIMEOUT,
    FatalError,
    HookTimeout,
    Result,
    RetryPolicy,
    StepFailed,
    current,
    delete_step_checkpoint,
    hook,
    load_step_checkpoint,
    random,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    uuid4,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.errors import HookFailed
from stepwell.testing import Environment
from tests.simulation import options, remarks, streams
from tests.simulation.families import FAMILIES
from tests.simulation.inputs import INPUTS
from tests.simulation.lives import LIVES
from tests.simulation.scenario import Scenario, answer


@step(name="sim.note")
async def note(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="sim.note_in_thread")
def note_in_thread(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="sim.slow_note")
async def slow_note(what: str) -> str:
    for _ in range(50):
        await asyncio.sleep(0)  # whatever was begun beside this is done by then
    return outside().request("note", current.idempotency_key, what)


@step(
    name="sim.flaky",
    retry=RetryPolicy(max_attempts=20, initial="1s", factor=1, jitter="none"),
)
async def flaky() -> str:
    up = outside().effects("outage").get("over")
    outside().request("tried", current.idempotency_key, "once")
    if not up:
        raise ConnectionError("down")
    return "up"


@step(name="sim.refused")
async def refused() -> None:
    raise FatalError("no")


@step(name="sim.reviewed")
async def reviewed(draft: str) -> str:
    state = await load_step_checkpoint()
    if state is None:
        outside().request("charge", current.idempotency_key, draft)
        state = {"draft": draft.upper()}
        await save_step_checkpoint(state)

    async def tell(token: str) -> None:
        outside().request("token", current.idempotency_key, token)

    feedback = await step_hook("review", timeout="24h", on_created=tell, on_timeout="return")
    if feedback is STEP_HOOK_TIMEOUT:
        return f"{state['draft']} unseen"
    await delete_step_checkpoint()
    return f"{state['draft']} {feedback}"


@step(name="sim.two_questions")
async def two_questions() -> list[str]:
    state = await load_step_checkpoint() or {"answers": []}
    for key in ("first", "second")[len(state["answers"]) :]:
        given = await step_hook("ask", key=key)
        state["answers"].append(given)
        await save_step_checkpoint(state)
    return list(state["answers"])


@step(name="sim.told", stream=True)
async def told(parts: int) -> AsyncIterator[str | Result[str]]:
    state = await load_step_checkpoint() or {"part": 0, "asking": False}
    while state["part"] < parts:
        part = state["part"]
        if not state["asking"]:
            yield f"{part}a"
            yield f"{part}b"
            state = {"part": part, "asking": True}
            await save_step_checkpoint(state)
        await step_hook("more", key=str(part))
        yield f"{part}c"
        state = {"part": part + 1, "asking": False}
        await save_step_checkpoint(state)
    yield Result("told")


@step(name="sim.spoken", stream=True)
async def spoken(words: int) -> AsyncIterator[str | Result[int]]:
    for word in range(words):
        yield f"word {word}"
    answered = await step_hook("listener")
    yield f"heard {answered}"
    yield Result(words)


@workflow(name="sim.sequence")
async def sequence() -> list[str]:
    return [await note("one"), await note_in_thread.aio("two"), await note("three")]


@workflow(name="sim.lots")
async def lots() -> list[str]:
    drawn = [str(uuid4()), str(random())]
    return [await note(lot) for lot in drawn]


@workflow(name="sim.parallel")
async def parallel() -> list[str]:
    both = await asyncio.gather(note("a"), note("b"), note("c"))
    async with asyncio.TaskGroup() as group:
        more = [group.create_task(note(what)) for what in ("d", "e")]
    return [*both, *(each.result() for each in more)]


@workflow(name="sim.retried")
async def retried() -> str:
    return await flaky()


@workflow(name="sim.slept")
async def slept() -> str:
    await note("before")
    await sleep("1h")
    await asyncio.gather(sleep("10m"), sleep("20m"))
    return await note("after")


@workflow(name="sim.asked")
async def asked() -> Any:
    async def tell(token: str) -> None:
        outside().request("token", "asked", token)

    return await hook("question", on_created=tell)


@workflow(name="sim.asked_twice")
async def asked_twice() -> list[Any]:
    return list(await asyncio.gather(hook("left"), hook("right", timeout="24h")))


@workflow(name="sim.raced")
async def raced() -> Any:
    hooks = [asyncio.create_task(hook(name)) for name in ("left", "right")]
    done, late = await asyncio.wait(hooks, return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    [winner] = done
    await note("won")
    return winner.result()


@workflow(name="sim.outrun")
async def outrun() -> str:
    """A step ends first, and a hook that was opened beside it is not wanted any more."""
    question = asyncio.create_task(hook("question"))
    work = asyncio.create_task(slow_note("work"))
    await asyncio.wait({question, work}, return_when=asyncio.FIRST_COMPLETED)
    question.cancel()
    return work.result()


@workflow(name="sim.unnotified")
async def unnotified() -> str:
    """Nobody can be told of a hook, so it ends with that error."""

    async def tell(token: str) -> None:
        raise FatalError("no such reviewer")

    try:
        await hook("question", on_created=tell)
    except HookFailed as error:
        return f"{error.failure.message}, {await note('failed')}"
    return "answered"


@workflow(name="sim.told_at_last")
async def told_at_last() -> str:
    """The reviewer is told at the second attempt, and does not answer in time."""

    async def tell(token: str) -> None:
        if not outside().effects("outage").get("over"):
            raise ConnectionError("down")

    answer = await hook("question", timeout="1h", on_created=tell, on_timeout="return")
    return "no answer" if answer is STEP_HOOK_TIMEOUT else "answered"


@workflow(name="sim.timed_out")
async def timed_out() -> list[Any]:
    unseen = await reviewed("late")
    try:
        await hook("question", timeout="1h")
    except HookTimeout as error:
        return [unseen, error.name]
    return [unseen]


@workflow(name="sim.cut_off")
async def cut_off() -> str:
    try:
        async with asyncio.timeout(3600):
            await reviewed("cut off")
    except TimeoutError:
        return await note("gave up")
    return "not cut off"


@workflow(name="sim.checkpointed")
async def checkpointed() -> list[Any]:
    return [await reviewed("draft"), await two_questions()]


@workflow(name="sim.beside")
async def beside() -> list[Any]:
    """Steps that keep something, beside others whose outcomes are recorded meanwhile."""
    return list(await asyncio.gather(note("beside"), reviewed("draft"), told(1), note("too")))


@workflow(name="sim.left")
async def left() -> str:
    try:
        await asyncio.gather(reviewed("left"), sleep("7d"))
    finally:
        await note("cleaned up")
    return "not left"


@workflow(name="sim.streamed")
async def streamed() -> list[Any]:
    return [await told(2), await spoken(3)]


@workflow(name="sim.failed")
async def failed() -> str:
    try:
        await refused()
    except StepFailed as error:
        await note(error.message)
        raise
    return "not failed"


@workflow(name="sim.blocking")
def blocking() -> list[Any]:
    first = note_in_thread("one")
    sleep("1h")
    return [first, hook("question"), note("two")]


_TRIES = RetryPolicy(initial=0, max_attempts=20)


@step(name="sim.away", dispatch="worker", retry=_TRIES)
async def away(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="sim.away_in_thread", dispatch="worker", retry=_TRIES)
def away_in_thread(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="sim.asked_away", dispatch="worker", retry=_TRIES)
async def asked_away(name: str) -> str:
    draft = await load_step_checkpoint(str)
    if draft is None:
        draft = outside().request("note", current.idempotency_key, name)
        await save_step_checkpoint(draft)

    async def tell(token: str) -> None:
        outside().request("token", current.idempotency_key, token)

    answer = await step_hook(name, on_created=tell, timeout="1d")
    return f"{draft} {answer}"


@step(name="sim.told_away", dispatch="worker", stream=True, retry=_TRIES)
async def told_away() -> AsyncIterator[str | Result[int]]:
    for chunk in ("one", "two", "three"):
        yield chunk
    yield Result(3)


@step(name="sim.refused_away", dispatch="worker", retry=_TRIES)
async def refused_away() -> None:
    raise FatalError("no")


@workflow(name="sim.dispatched")
async def dispatched() -> list[Any]:
    found: list[Any] = [await note("near"), await away("far"), await away_in_thread.aio("off")]
    found.append(await told_away())
    try:
        await refused_away()
    except StepFailed as error:
        found.append(error.message)
    return found


@workflow(name="sim.asked_elsewhere")
async def asked_elsewhere() -> str:
    return await asked_away("far")


@workflow(name="sim.outrun_elsewhere")
async def outrun_elsewhere() -> str:
    away = asyncio.create_task(asked_away("left"))
    near = asyncio.create_task(hook("right"))
    await asyncio.wait({away, near}, return_when=asyncio.FIRST_COMPLETED)
    away.cancel()
    await note("after")
    answer: str = near.result()
    return answer


@step(name="sim.item")
async def item(what: str) -> str:
    if what == "none":
        raise FatalError("no such item")
    return outside().request("note", current.idempotency_key, what)


@step(name="sim.asked_item")
async def asked_item(name: str) -> str:
    return f"{name} {await step_hook('item', key=name)}"


@workflow(name="sim.mapped")
async def mapped() -> list[Any]:
    ticket = note.submit("beside")
    found = await item.map(["a", "none", "b", "c"], max_concurrency=2, on_error="collect")
    first = await asked_item.map(["left", "right"], min_successful=1)
    return [found.results, len(found.errors), first.results, await ticket]


@step(name="sim.item_away", dispatch="worker", retry=_TRIES)
async def item_away(what: str) -> str:
    if what == "none":
        raise FatalError("no such item")
    return outside().request("note", current.idempotency_key, what)


@workflow(name="sim.mapped_away")
async def mapped_away() -> list[Any]:
    whole = await item_away.map(["a", "b", "c"], max_concurrency=1)
    found = await item_away.map(["d", "none"], on_error="collect", max_concurrency=32)
    try:
        await item_away.map(["none", "none"], max_concurrency=32)
    except StepFailed as error:
        return [whole, found.results, len(found.errors), error.message]
    return []


@workflow(name="sim.map_asks_away")
async def map_asks_away() -> list[str]:
    return await asked_away.map(["left", "right"])


def _approve(env: Environment, run: RunHandle[Any]) -> None:
    env.advance("1h")
    answer(env, run, "approval", {"approved": True, "reviewer": "Grace"})


def _visit(env: Environment, run: RunHandle[Any]) -> None:
    answer(env, run, "visitor", {"text": "aisle"})
    env.advance("1h")


def _both(env: Environment, run: RunHandle[Any]) -> None:
    answer(env, run, "right", 2)
    answer(env, run, "left", 1)


def _checkpointed(env: Environment, run: RunHandle[Any]) -> None:
    answer(env, run, "review", "fine")
    answer(env, run, "ask", "1st")
    answer(env, run, "ask", "2nd")


def _beside(env: Environment, run: RunHandle[Any]) -> None:
    answer(env, run, "review", "fine")
    answer(env, run, "more", 1)


def _more(env: Environment, run: RunHandle[Any]) -> None:
    answer(env, run, "more", 1)
    answer(env, run, "more", 2)
    answer(env, run, "listener", "you")


def _item(env: Environment, run: RunHandle[Any]) -> None:
    [found] = [hook for hook in env.hooks(run) if hook.hook_id.endswith("@right")]
    env.resume_hook(found.token, "yes")


def _blocking(env: Environment, run: RunHandle[Any]) -> None:
    env.advance("2h")
    answer(env, run, "question", 42)


def _outage_of_hours(env: Environment, run: RunHandle[Any]) -> None:
    _outage(env, run)
    env.advance("2h")


def _outage(env: Environment, run: RunHandle[Any]) -> None:
    env.advance("2500ms")
    outside().request("outage", "over", "yes")
    env.advance("1h")


_ORDER = Order(number="A-1", customer="C-17", amount=Decimal("48.50"), complaint="broken")


def _remarked(env: Environment, run: RunHandle[Any]) -> None:
    env.advance("10m")
    answer(env, run, "question", "yes")
    env.advance("2h")


SCENARIOS = (
    Scenario(name="approval", workflow=refund, args=(_ORDER,), script=_approve),
    Scenario(
        name="approval unanswered",
        workflow=refund,
        args=(_ORDER,),
        script=lambda env, run: env.advance("25h"),
    ),
    Scenario(name="agent", workflow=assist, args=("Oslo",), script=_visit, streams=("converse:1",)),
    Scenario(name="sequence", workflow=sequence),
    Scenario(name="lots", workflow=lots, drawn=True),
    Scenario(name="parallel", workflow=parallel),
    Scenario(name="retry", workflow=retried, script=_outage, timed=True),
    Scenario(name="sleep", workflow=slept, script=lambda env, run: env.advance("3h")),
    Scenario(
        name="workflow hook",
        workflow=asked,
        script=lambda env, run: answer(env, run, "question", {"a": 1}),
    ),
    Scenario(name="two hooks", workflow=asked_twice, script=_both),
    Scenario(name="race", workflow=raced, script=lambda env, run: answer(env, run, "right", "won")),
    Scenario(name="outrun", workflow=outrun),
    Scenario(name="unnotified", workflow=unnotified),
    Scenario(name="told at last", workflow=told_at_last, script=_outage_of_hours, timed=True),
    Scenario(name="timeouts", workflow=timed_out, script=lambda env, run: env.advance("27h")),
    Scenario(name="cut off", workflow=cut_off, script=lambda env, run: env.advance("2h")),
    Scenario(name="checkpoints", workflow=checkpointed, script=_checkpointed),
    Scenario(name="cancel", workflow=left, script=lambda env, run: env.cancel(run, "not wanted")),
    Scenario(name="beside", workflow=beside, script=_beside, streams=("3/sim.told:1",)),
    Scenario(
        name="streamed",
        workflow=streamed,
        script=_more,
        streams=("sim.told:1", "sim.spoken:1"),
    ),
    Scenario(name="failed", workflow=failed),
    Scenario(name="dispatched", workflow=dispatched, streams=("sim.told_away:1",)),
    Scenario(
        name="asked elsewhere",
        workflow=asked_elsewhere,
        script=lambda env, run: answer(env, run, "far", "yes"),
    ),
    Scenario(
        name="outrun elsewhere",
        workflow=outrun_elsewhere,
        script=lambda env, run: answer(env, run, "right", "yes"),
    ),
    Scenario(name="map", workflow=mapped, script=_item),
    Scenario(name="keyed", workflow=options.keyed, script=lambda env, run: env.advance("2h")),
    Scenario(
        name="lazy",
        workflow=options.lazy,
        script=lambda env, run: answer(env, run, "question", "f"),
    ),
    Scenario(name="polled", workflow=options.polled, script=lambda env, run: env.advance("2h")),
    Scenario(name="remarked", workflow=remarks.remarked, script=_remarked),
    Scenario(name="undone", workflow=options.undone),
    Scenario(
        name="undone by cancel",
        workflow=options.undone_by_cancel,
        script=lambda env, run: env.cancel(run, "not wanted"),
    ),
    Scenario(name="map elsewhere", workflow=mapped_away),
    Scenario(name="map asks elsewhere", workflow=map_asks_away, script=_both),
    Scenario(name="def workflow", workflow=blocking, script=_blocking),
    *FAMILIES,
    *INPUTS,
    *LIVES,
    *streams.SCENARIOS,
)
