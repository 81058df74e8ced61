"""The code of the recorded histories. A change here must leave each of them replayable.

What a step does is of no matter to a replay, as long as the step has its name, its parameters and
its result type.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from stepwell import (
    STEP_HOOK_TIMEOUT,
    ChildCancelled,
    ChildFailed,
    FatalError,
    HookTimeout,
    Result,
    RetryPolicy,
    StepFailed,
    StepTimeout,
    Suspend,
    continue_as_new,
    current,
    define_hook,
    hook,
    load_step_checkpoint,
    now,
    patched,
    random,
    save_step_checkpoint,
    set_attributes,
    set_context,
    sleep,
    start_child,
    step,
    step_guard,
    step_hook,
    uuid4,
    workflow,
)
from stepwell.errors import HookFailed


@step(name="hist.signed_off", dispatch="worker")
async def signed_off(draft: str) -> str:
    if "approved" not in current.run.inbox:
        raise Suspend("sign-off")
    return f"{draft} by {current.run.inbox['approved']}"


@workflow(name="hist.inboxed")
async def inboxed() -> list[Any]:
    """Steps and the workflow itself wait for input; the workflow then goes another way."""
    draft = await double(4)
    way = current.run.inbox.get("way")
    if way is None:
        await gathered_note("left")
        raise Suspend("which way?")
    await sleep("1m")
    return [way, await signed_off(f"draft {draft}"), sorted(current.run.inbox)]


@step(name="hist.gathered_note")
async def gathered_note(text: str) -> str:
    return text


class Invoice(BaseModel):
    number: int
    total: Decimal
    due: dt.date


class Approval(BaseModel):
    approved: bool


approval = define_hook("approval", Approval)


@step(name="hist.double")
async def double(value: int) -> int:
    return 2 * value


@step(name="hist.double_in_thread")
def double_in_thread(value: int) -> int:
    return 2 * value


@step(name="hist.bill")
async def bill(number: int) -> Invoice:
    return Invoice(number=number, total=Decimal("19.90"), due=dt.date(2030, 2, 1))


@step(name="hist.third_time", retry=RetryPolicy(initial="10s", jitter="none"))
async def third_time() -> int:
    if current.attempt < 3:
        raise ConnectionError(f"attempt {current.attempt}")
    return current.attempt


@step(name="hist.refuse")
async def refuse(reason: str) -> None:
    raise FatalError(reason)


@step(name="hist.dawdle", timeout="20ms", retry=RetryPolicy(max_attempts=1))
async def dawdle() -> None:
    await asyncio.sleep(60)


@step(name="hist.review")
async def review(draft: str) -> str:
    kept = await load_step_checkpoint()
    if kept is None:
        kept = draft.upper()
        await save_step_checkpoint(kept)
    feedback = await step_hook("feedback", timeout="24h", on_timeout="return")
    return f"{kept}: {'none' if feedback is STEP_HOOK_TIMEOUT else feedback}"


@step(name="hist.interview")
async def interview() -> list[str]:
    answers: list[str] = await load_step_checkpoint() or []
    for key in ("name", "colour")[len(answers) :]:
        answers.append(await step_hook("ask", key=key, payload_schema=str))
        await save_step_checkpoint(answers)
    return answers


@step(name="hist.speak", stream=True)
async def speak(words: int) -> AsyncIterator[str | Result[int]]:
    for word in range(words):
        yield f"word {word}"
    await step_hook("heard")
    yield "the end"
    yield Result(words)


@step(name="hist.away", dispatch="worker", retry=RetryPolicy(initial="10s", jitter="none"))
async def away(value: int) -> int:
    if current.attempt < 2:
        raise ConnectionError(f"attempt {current.attempt}")
    return 2 * value


@step(name="hist.asked_away", dispatch="worker")
async def asked_away(topic: str) -> list[Any]:
    first = await step_hook("ask", key=topic)
    second = await step_hook("ask", timeout="1h", on_timeout="return")
    return [first, second is STEP_HOOK_TIMEOUT]


@step(name="hist.told_away", dispatch="worker", stream=True)
async def told_away(words: int) -> AsyncIterator[str | Result[int]]:
    for word in range(words):
        yield f"word {word}"
    yield Result(words)


@step(name="hist.never_away", dispatch="worker")
async def never_away() -> None:
    await step_hook("never")


@workflow(name="hist.steps")
async def steps(start: int) -> tuple[Invoice, int]:
    first = await double(start)
    second = await double_in_thread.aio(first)
    return await bill(second), await double(second)


@workflow(name="hist.retries")
async def retries() -> int:
    return await third_time()


@workflow(name="hist.caught")
async def caught() -> list[str]:
    found = []
    for reason in ("first", "second"):
        try:
            await refuse(reason)
        except StepFailed as error:
            found.append(f"{error.type}: {error.message}")
    return found


@workflow(name="hist.failed")
async def failed() -> None:
    await double(1)
    await refuse("not today")


@workflow(name="hist.dawdled")
async def dawdled() -> str:
    try:
        await dawdle()
    except StepTimeout:
        return "too late"
    return "in time"


@workflow(name="hist.gathered")
async def gathered() -> list[int]:
    async def branch(value: int) -> int:
        return await double(await double(value))

    return list(await asyncio.gather(*(branch(value) for value in range(3)), double(10)))


@workflow(name="hist.grouped")
async def grouped() -> list[Any]:
    async with asyncio.TaskGroup() as group:
        made = [group.create_task(double(value)) for value in range(3)]
    broken = 0
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(refuse("broken"))
            group.create_task(sleep("1h"))
    except* StepFailed as errors:
        broken = len(errors.exceptions)
    return [[each.result() for each in made], broken]


@workflow(name="hist.as_completed")
async def as_completed() -> list[int]:
    async def after(delay: str, value: int) -> int:
        await sleep(delay)
        return await double(value)

    late_first = [after("3m", 3), after("1m", 1), after("2m", 2)]
    return [await each for each in asyncio.as_completed(late_first)]


@workflow(name="hist.cut_off")
async def cut_off() -> list[str]:
    found = []
    try:
        async with asyncio.timeout(60):
            await hook("never")
    except TimeoutError:
        found.append("timeout")
    try:
        await asyncio.wait_for(hook("never"), timeout=60)
    except TimeoutError:
        found.append("wait_for")
    try:
        async with asyncio.timeout(60):
            await review("too slow")
    except TimeoutError:
        found.append("review")
    async with asyncio.timeout(3600):
        found.append(await hook("quick"))
    return [*found, str(await hook("slow"))]


@workflow(name="hist.asked")
async def asked() -> list[Any]:
    given = await approval(timeout="1h")
    found: list[Any] = [given.approved]
    found.append(await hook("note", key="by key"))
    found.append(await hook("note", timeout="1h", on_timeout="return") is STEP_HOOK_TIMEOUT)
    try:
        await hook("note", timeout="1h")
    except HookTimeout as error:
        found.append(error.hook)
    return found


@workflow(name="hist.raced")
async def raced() -> str:
    asking = {asyncio.create_task(hook(name), name=name) for name in ("left", "right")}
    done, late = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    await double(1)
    return ",".join(each.get_name() for each in done)


@workflow(name="hist.unnotified")
async def unnotified() -> str:
    def tell(token: str) -> None:
        raise ConnectionError("no way to the reviewer")

    try:
        await hook("question", on_created=tell)
    except HookFailed as error:
        return error.failure.message
    return "told"


@workflow(name="hist.reviewed")
async def reviewed() -> list[Any]:
    both = await asyncio.gather(review("seen"), review("unseen"))
    return [*both, await interview()]


@workflow(name="hist.streamed")
async def streamed() -> int:
    return int(await speak(3))


@workflow(name="hist.slept")
async def slept() -> list[str]:
    begun = now()
    await sleep("90m")
    await sleep(begun + dt.timedelta(hours=2))
    await sleep(begun)
    await asyncio.sleep(30)
    return [str(now() - begun), str(uuid4()), str(uuid4()), f"{random():.6f}"]


@workflow(name="hist.cancelled")
async def cancelled() -> str:
    try:
        await asyncio.gather(review("draft"), hook("never"), sleep("7d"))
    finally:
        await double(21)
    return "not cancelled"


@workflow(name="hist.signalled")
async def signalled() -> list[int]:
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock = asyncio.Lock()

    async def produce(value: int) -> None:
        async with lock:
            await queue.put(await double(value))

    async with asyncio.TaskGroup() as group:
        for value in range(3):
            group.create_task(produce(value))
    return [queue.get_nowait() for _ in range(3)]


@workflow(name="hist.blocking")
def blocking(names: list[str]) -> list[str]:
    found = []
    for name in names:
        sleep("1m")
        found.append(f"{name} {double_in_thread(len(name))}")
    try:
        hook("answer", timeout="1h")
    except HookTimeout:
        found.append("no answer")
    return [*found, str(hook("answer"))]


@workflow(name="hist.interrupted")
async def interrupted() -> int:
    return await double(await double(await double(1)))


@workflow(name="hist.dispatched")
async def dispatched() -> list[Any]:
    both = await asyncio.gather(away(1), double(2), told_away(2))
    found: list[Any] = [*both, await asked_away("a topic")]
    try:
        async with asyncio.timeout(60):
            await never_away()
    except TimeoutError:
        found.append("cut off")
    return found


@workflow(name="hist.dispatched_blocking")
def dispatched_blocking() -> list[Any]:
    found: Any = away(4)
    return [found, double_in_thread(5)]


@workflow(name="hist.dispatched_interrupted")
async def dispatched_interrupted() -> int:
    return sum(await asyncio.gather(away(1), away(2)))


@workflow(name="hist.dispatched_open")
async def dispatched_open() -> Any:
    return await asyncio.gather(hook("open"), asked_away("open"))


@step(name="hist.asked_item")
async def asked_item(n: int) -> Any:
    if n == 2:
        raise FatalError("two")
    return [n, await step_hook("ask", key=str(n))]


@workflow(name="hist.mapped")
async def mapped() -> list[Any]:
    ticket = double.submit(4)
    doubled = await double.map([1, 2], max_concurrency=1)
    first = await asked_item.map(range(4), min_successful=1, key=lambda n: f"n{n}")
    statuses = [each.status for each in first]
    answer = await hook("answer")
    return [doubled, first.results, statuses, answer, await ticket.result()]


@step(name="hist.item_away", dispatch="worker", retry=RetryPolicy(initial=0, jitter="none"))
async def item_away(n: int) -> Any:
    if n == 2:
        raise FatalError("two")
    if n == 3:
        return [n, await step_hook("ask", key=str(n))]
    return n


@workflow(name="hist.mapped_away")
async def mapped_away() -> list[Any]:
    whole = await item_away.map([0, 1, 4, 5], max_concurrency=2)
    found = await item_away.map(range(4), on_error="collect", key=lambda n: f"n{n}")
    try:
        async with asyncio.timeout(60):
            await item_away.map([3])
    except TimeoutError:
        whole.append("late")
    answer = await hook("answer")
    return [whole, found.results, len(found.errors), answer]


@workflow(name="hist.waiting")
async def waiting() -> Any:
    await double(1)
    return await asyncio.gather(hook("open"), sleep("365d"), review("still open"))


class Visit(BaseModel):
    guest: str = "nobody"
    rounds: int = 0


@step(name="hist.greet_in_context")
async def greet_in_context() -> str:
    return f"{current.context.guest}, {current.context.rounds}"


@step(name="hist.greet_away", dispatch="worker")
async def greet_away() -> str:
    return f"{current.context.guest}, {current.context.rounds}"


@workflow(name="hist.remarked", context=Visit)
async def remarked() -> Any:
    set_attributes({"stage": "begun", "guest": "Ada"})
    found: list[Any] = []
    for rounds in range(2):
        set_context(Visit(guest="Ada", rounds=rounds))
        found.append(await (greet_in_context() if patched("greets") else double(rounds)))
    set_attributes({"stage": None, "rounds": 2})
    found.append(await greet_away())
    found.append(await hook("leave"))
    return [*found, patched("greets"), patched("leaves")]


@workflow(name="hist.offspring")
async def offspring(value: int) -> int:
    if value < 0:
        raise ValueError("below zero")
    await sleep("1h")
    return await double(value)


@workflow(name="hist.parent")
async def parent() -> list[Any]:
    found: list[Any] = [await start_child(offspring, 1)]
    handle = await start_child.with_options(wait=False, key="kept", on_parent_close="abandon")(
        offspring, 2
    )
    found.append(handle.status())
    try:
        await start_child(offspring, -1)
    except ChildFailed as error:
        found.append(error.type)
    try:
        async with asyncio.timeout(60):
            await start_child("hist.offspring", value=3)
    except TimeoutError:
        found.append("late")
    found += [await handle.result(), handle.status()]
    unwanted = await start_child.with_options(wait=False)(offspring, 4)
    await unwanted.cancel("not needed")
    try:
        await unwanted.result()
    except ChildCancelled as error:
        found.append(error.reason)
    return found


@workflow(name="hist.parent_blocking")
def parent_blocking() -> list[Any]:
    handle: Any = start_child.with_options(wait=False)(offspring, 1)
    first: Any = start_child(offspring, 2)
    return [first, handle.result()]


@step_guard(name="hist.watch")
def watch(payload: dict[str, Any]) -> dict[str, Any]:
    return {"power": "observe"}


@workflow(name="hist.visited", context=Visit)
async def visited() -> str:
    return await greet_in_context()


@workflow(name="hist.hands_over")
async def hands_over() -> list[str]:
    guarded = start_child.with_options(context=Visit(guest="Ada"), prepare_step=watch)
    named = start_child.with_options(context={"rounds": 3}, key="named")
    return [await guarded(visited), await start_child(visited), await named("hist.visited")]


@workflow(name="hist.continued")
async def continued(turn: int) -> int:
    if turn < 8:
        await asyncio.gather(hook("dropped"), _go_on(turn))
    return turn


async def _go_on(turn: int) -> None:
    continue_as_new(await double(turn))


#: What cannot be reached while the history of `retried` is recorded; then its code is mended.
DOWN: set[str] = set()


@step(name="hist.reach", retry=RetryPolicy(max_attempts=1))
async def reach(what: str) -> str:
    if what in DOWN:
        raise OSError(f"{what} is down")
    return what


@workflow(name="hist.forked")
async def forked(name: str) -> list[Any]:
    answer = await hook("approve", timeout="2h")
    await sleep("10m")
    return [name, answer, await reach("shop"), await hook("last"), await reach("bank")]


@workflow(name="hist.retried")
async def retried() -> list[Any]:
    first = await reach("wrong" if DOWN else "right")
    try:
        async with asyncio.timeout(3600):
            answer = await hook("approve", timeout="2h")
            return [first, answer, await reach("shop"), await reach("bank")]
    finally:
        await reach("tidy")
