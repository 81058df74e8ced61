"""asyncio as workflow code uses it: the right result, and the same commands on every pass.

The traces are the ids of the commands asked for, in order. They are the same on every Python.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import sleep, step, workflow
from stepwell.authoring.registry import registry
from stepwell.core.retry import RetryPolicy
from stepwell.errors import RetryableError, StepFailed
from stepwell.testing import Environment
from stepwell.testing.laws import check_replay, check_run

Body = Callable[[], Awaitable[Any]]

with registry.isolated():

    @step
    async def say(x: int, ticks: int = 0) -> int:
        """A step that ends after so many rounds of the real loop."""
        for _ in range(ticks):
            await asyncio.sleep(0)
        return x

    @step(retry=RetryPolicy(max_attempts=1))
    async def fail(text: str, ticks: int = 0) -> int:
        for _ in range(ticks):
            await asyncio.sleep(0)
        raise RetryableError(text)


@dataclass(frozen=True)
class Case:
    body: Body
    result: Any
    trace: list[str]


CASES: list[Any] = []


def case(result: Any, *trace: str) -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        CASES.append(pytest.param(Case(body, result, list(trace)), id=body.__name__))
        return body

    return add


def message(error: BaseException) -> str:
    assert isinstance(error, StepFailed), repr(error)
    return error.message


@case([1, 2, 3], "1/say:1", "2/say:1", "3/say:1")
async def gather_of_steps() -> Any:
    return await asyncio.gather(say(1, 4), say(2), say(3, 2))


@case([[1, 2], [3, 4], 7], "1.1/say:1", "1.2/say:1", "2.1/say:1", "2.2/say:1", "say:1")
async def gather_nested() -> Any:
    async def pair(a: int, b: int) -> list[int]:
        return await asyncio.gather(say(a, b), say(b, a))

    first, second = await asyncio.gather(pair(1, 2), pair(3, 4))
    return [first, second, await say(first[0] + second[0] + 3)]


@case([1, "no", 3], "1/say:1", "2/fail:1", "3/say:1")
async def gather_returning_exceptions() -> Any:
    found = await asyncio.gather(say(1), fail("no"), say(3), return_exceptions=True)
    return [message(each) if isinstance(each, BaseException) else each for each in found]


@case("no", "1/say:1", "2/fail:1", "say:1")
async def gather_failing_fast() -> Any:
    try:
        await asyncio.gather(say(1, 50), fail("no"))
    except StepFailed as error:
        await say(0)
        return error.message


@case([1, 2], "1/say:1", "2/say:1", "3/say:1")
async def task_group() -> Any:
    async with asyncio.TaskGroup() as group:
        one = group.create_task(say(1, 3))
        two = group.create_task(say(2))
        group.create_task(say(3))
    return [one.result(), two.result()]


@case(["no", True], "1/say:1", "2/fail:1", "3/sleep:1", "say:1")
async def task_group_with_a_failing_child() -> Any:
    cleaned = []

    async def waits() -> None:
        try:
            await sleep("1d")
        finally:
            cleaned.append(True)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(say(1))
            group.create_task(fail("no", 2))
            group.create_task(waits())
    except* StepFailed as errors:
        found = [message(each) for each in errors.exceptions]
    await say(9)
    return [*found, *cleaned]


@case([[2], [1, 3]], "1/say:1", "2/say:1", "3/say:1")
async def wait_for_the_first_completed() -> Any:
    tasks = [asyncio.create_task(say(n, ticks)) for n, ticks in ((1, 9), (2, 0), (3, 9))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    first = [task.result() for task in done]
    return [first, [task.result() for task in (await asyncio.wait(pending))[0]]]


@case(["no", 2], "1/say:1", "2/fail:1", "3/say:1", "4/say:1")
async def wait_for_the_first_exception() -> Any:
    tasks = [asyncio.create_task(say(1)), asyncio.create_task(fail("no", 2))]
    tasks += [asyncio.create_task(say(n, 40)) for n in (3, 4)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    [failed] = [task for task in done if task.exception()]
    error = failed.exception()
    assert error is not None
    return [message(error), len(pending)]


@case([[1], 1], "1/say:1", "2/sleep:1", "timer:1", "sleep:1")
async def wait_with_a_timeout() -> Any:
    async def slow() -> None:
        await sleep("1h")

    tasks = [asyncio.create_task(say(1)), asyncio.create_task(slow())]
    await asyncio.sleep(0)
    done, pending = await asyncio.wait(tasks, timeout=60)
    await sleep("1s")
    return [[task.result() for task in done], len(pending)]


@case(["bounded", "task", "plain"], "1/timer:1", "2/timer:1", "4/say:1")
async def wait_for_keeps_its_place_among_others_that_wait_for_the_same() -> Any:
    order: list[str] = []
    gate = asyncio.Event()

    async def bounded() -> None:
        await asyncio.wait_for(gate.wait(), 60)
        order.append("bounded")

    async def bounded_task() -> None:
        await asyncio.wait_for(waiting, 60)
        order.append("task")

    async def plain() -> None:
        await asyncio.shield(waiting)
        order.append("plain")

    async def opens() -> None:
        await say(1)
        gate.set()

    waiting = asyncio.get_running_loop().create_future()
    group = asyncio.gather(bounded(), bounded_task(), plain(), opens())
    await gate.wait()
    waiting.set_result(None)
    await group
    return order


@case([["bounded", "late"], ["plain", "late"]], "1/timer:1", "2/timer:1")
async def wait_for_keeps_its_place_among_others_that_are_late() -> Any:
    order: list[list[str]] = []

    async def bounded() -> None:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 60)
        except TimeoutError:
            order.append(["bounded", "late"])

    async def plain() -> None:
        try:
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        except TimeoutError:
            order.append(["plain", "late"])

    await asyncio.gather(bounded(), plain())
    return order


@case(["bounded", "plain"], "1/timer:1", "3/say:1")
async def wait_for_keeps_its_place_in_a_lock() -> Any:
    order: list[str] = []
    lock = asyncio.Lock()
    gate = asyncio.Event()

    async def uses(name: str) -> None:
        await gate.wait()
        async with lock:
            order.append(name)
            await asyncio.sleep(0)

    async def opens() -> None:
        await say(1)
        gate.set()

    await asyncio.gather(asyncio.wait_for(uses("bounded"), 60), uses("plain"), opens())
    return order


@case([3, 1, 2], "1/say:1", "2/say:1", "3/say:1")
async def as_completed_of_coroutines() -> Any:
    return [await each for each in asyncio.as_completed([say(1, 20), say(2, 40), say(3)])]


@case([2, 1], "1/say:1", "2/say:1")
async def as_completed_of_tasks() -> Any:
    tasks = [asyncio.create_task(say(1, 20)), asyncio.create_task(say(2))]
    return [await each for each in asyncio.as_completed(set(tasks))]


@case([1, "late"], "timer:1", "1/say:1", "2/sleep:1")
async def as_completed_with_a_timeout() -> Any:
    async def slow() -> int:
        await sleep("1h")
        return 2

    found: list[Any] = []
    try:
        for each in asyncio.as_completed([say(1), slow()], timeout=10):
            found += [await each]
    except TimeoutError:
        found.append("late")
    return found


@case(["late", 5], "timer:1", "say:1", "say:2")
async def timeout_around_steps() -> Any:
    try:
        async with asyncio.timeout(30):
            await say(1)
            await asyncio.Event().wait()
    except TimeoutError:
        return ["late", await say(5)]


@case([1, False], "timer:1", "say:1")
async def timeout_not_reached() -> Any:
    async with asyncio.timeout(30) as scope:
        found = await say(1)
    return [found, scope.expired()]


@case("moved", "timer:1", "say:1", "timer:2")
async def timeout_rescheduled() -> Any:
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with asyncio.timeout(30) as scope:
            await say(1)
            scope.reschedule(start + 90)
            await asyncio.Event().wait()
    except TimeoutError:
        return "moved" if loop.time() - start >= 90 else "early"


@case("late", "timer:1", "sleep:1")
async def timeout_at_a_time() -> Any:
    try:
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + 5):
            await sleep("1h")
    except TimeoutError:
        return "late"


@case("late", "say:1")
async def timeout_in_the_past() -> Any:
    try:
        async with asyncio.timeout(-1):
            await say(1)
    except TimeoutError:
        return "late"


@case([1, 2], "timer:1", "say:1", "say:2")
async def wait_for_a_step() -> Any:
    return [await asyncio.wait_for(say(1), 60), await say(2)]


@case(["late", 3], "timer:1", "say:1", "sleep:1", "say:2")
async def wait_for_that_expires() -> Any:
    async def slow() -> None:
        await say(1)
        await sleep("1h")

    try:
        await asyncio.wait_for(slow(), 60)
    except TimeoutError:
        return ["late", await say(3)]


@case([1, 2], "say:1", "say:2")
async def wait_for_without_a_limit() -> Any:
    return [await asyncio.wait_for(say(1), None), await say(2)]


@case(["late", 2], "say:1")
async def wait_for_no_time_at_all() -> Any:
    try:
        await asyncio.wait_for(say(1), 0)
    except TimeoutError:
        return ["late", await say(2)]


@case([1, 2, 3], "1/timer:1", "1/say:1", "2/say:1", "1/say:2")
async def wait_for_beside_another_branch() -> Any:
    async def bounded() -> list[int]:
        return [await asyncio.wait_for(say(1), 60), await say(3, 9)]

    (one, three), two = await asyncio.gather(bounded(), say(2, 4))
    return [one, two, three]


@case(["late", 1], "timer:1", "1/say:1", "say:1")
async def wait_for_a_task() -> Any:
    async def slow() -> int:
        await say(1)
        await asyncio.Event().wait()
        return 0

    task = asyncio.create_task(slow())
    try:
        await asyncio.wait_for(task, 60)
    except TimeoutError:
        return ["late", await say(1)]


@case(["workflow", "set"], "timer:1", "say:1")
async def wait_for_shares_its_waiter() -> Any:
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="unset")

    async def inner() -> str:
        seen.set("set")
        task = asyncio.current_task()
        assert task is not None
        await say(1)
        return task.get_name()

    return [await asyncio.wait_for(inner(), 60), seen.get()]


@case(["woken", 1500], "timer:1", "timer:2")
async def asyncio_sleep() -> Any:
    start = asyncio.get_running_loop().time()
    result = await asyncio.sleep(0.5, "woken")
    await asyncio.sleep(1)
    return [result, round((asyncio.get_running_loop().time() - start) * 1000)]


@case(["a1", "b1", "a2", "b2"], "say:1")
async def sleep_of_nothing_lets_others_run() -> Any:
    order: list[str] = []

    async def speak(name: str) -> None:
        for n in (1, 2):
            order.append(f"{name}{n}")
            await asyncio.sleep(0)

    await asyncio.gather(speak("a"), speak("b"))
    await say(0)
    return order


@case([1, "cancelled"], "1/say:1")
async def shield() -> Any:
    task = asyncio.create_task(say(1, 3))
    waiter = asyncio.ensure_future(asyncio.shield(task))
    await asyncio.sleep(0)
    waiter.cancel()
    try:
        await waiter
    except asyncio.CancelledError:
        return [await task, "cancelled"]


@case([[1], 2], "1/say:1", "2/say:1", "2/say:2")
async def shields_in_a_set() -> Any:
    async def slow() -> int:
        return await say(1, 9) + await say(1)

    shields = {asyncio.shield(say(1)), asyncio.shield(slow())}
    done, rest = await asyncio.wait(shields, return_when=asyncio.FIRST_COMPLETED)
    return [[each.result() for each in done], sum([await each for each in rest])]


@case([10, 30, 20], "1/say:1", "2/say:1", "3/say:1")
async def queue() -> Any:
    line: asyncio.Queue[int] = asyncio.Queue(1)

    async def put(n: int, ticks: int) -> None:
        await line.put(await say(n, ticks))

    async with asyncio.TaskGroup() as group:
        for n, ticks in ((10, 0), (20, 9), (30, 4)):
            group.create_task(put(n, ticks))
        return [await line.get() for _ in range(3)]


@case([1, 2, 3], "1/say:1", "2/say:1", "3/say:1")
async def priority_queue() -> Any:
    line: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()

    async def put(n: int) -> None:
        line.put_nowait(await say(n, 9 - n))

    await asyncio.gather(put(3), put(1), put(2))
    return [await line.get() for _ in range(3)]


@case(["a in", "a out", "b in", "b out"], "1/say:1", "2/say:1")
async def lock() -> Any:
    order: list[str] = []
    lock = asyncio.Lock()

    async def use(name: str) -> None:
        async with lock:
            order.append(f"{name} in")
            await say(1)
            order.append(f"{name} out")

    await asyncio.gather(use("a"), use("b"))
    return order


@case([2, [1, 2, 3, 4]], "1/say:1", "2/say:1", "3/say:1", "4/say:1")
async def semaphore() -> Any:
    room = asyncio.Semaphore(2)
    inside = most = 0

    async def use(n: int) -> int:
        nonlocal inside, most
        async with room:
            inside += 1
            most = max(most, inside)
            found = await say(n, n)
            inside -= 1
            return found

    found = await asyncio.gather(*(use(n) for n in (1, 2, 3, 4)))
    return [most, found]


@case([1, 2], "1/say:1", "2/say:1")
async def event() -> Any:
    opened = asyncio.Event()

    async def follows() -> int:
        await opened.wait()
        return await say(2)

    async def leads() -> int:
        found = await say(1)
        opened.set()
        return found

    # In order of creation the follower is the second, in order of asking as well.
    return await asyncio.gather(leads(), follows())


@case(3, "2/say:1", "2/say:2", "1/say:1")
async def condition() -> Any:
    changed = asyncio.Condition()
    total = 0

    async def waits() -> int:
        async with changed:
            await changed.wait_for(lambda: total >= 3)
        return await say(total)

    async def adds() -> None:
        nonlocal total
        for n in (1, 2):
            found = await say(n)
            async with changed:
                total += found
                changed.notify_all()

    return (await asyncio.gather(waits(), adds()))[0]


@case([1, 2, 3], "1/say:1", "2/say:1", "3/say:1", "2/say:2", "1/say:2", "3/say:2")
async def barrier() -> Any:
    gate = asyncio.Barrier(3)

    async def comes(n: int, ticks: int) -> int:
        await say(n, ticks)
        async with gate:
            return await say(n)

    return await asyncio.gather(comes(1, 0), comes(2, 30), comes(3, 15))


@case(["cancelled", "cleaned", 2], "1/say:1", "1/say:2", "say:1")
async def cancelling_a_task() -> Any:
    log: list[Any] = []

    async def works() -> None:
        try:
            await say(1, 1000)
        except asyncio.CancelledError:
            log.append("cancelled")
            await say(9)
            log.append("cleaned")
            raise

    task = asyncio.create_task(works())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    return [*log, await say(2)]


@case([["one", "two"], "outside"], "1/say:1", "2/say:1")
async def context_variables() -> Any:
    here: contextvars.ContextVar[str] = contextvars.ContextVar("here", default="outside")

    async def visits(name: str, ticks: int) -> str:
        here.set(name)
        await say(1, ticks)
        return here.get()

    return [await asyncio.gather(visits("one", 4), visits("two", 0)), here.get()]


@case(["inside", "outside"], "1/say:1")
async def a_task_with_a_context() -> Any:
    here: contextvars.ContextVar[str] = contextvars.ContextVar("here", default="outside")
    context = contextvars.copy_context()
    context.run(here.set, "inside")

    async def looks() -> str:
        await say(1)
        return here.get()

    return [await asyncio.create_task(looks(), context=context), here.get()]


@case(["workflow", "workflow-1", "named", "grouped"], "2/say:1")
async def names_of_tasks() -> Any:
    async def name() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    async def named() -> str:
        await say(1)
        return await name()

    found = [await name(), await asyncio.create_task(name())]
    found.append(await asyncio.create_task(named(), name="named"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(name(), name="grouped")
    return [*found, task.result()]


@case([0, 2, 4], "say:1", "say:2", "say:3")
async def async_generators() -> Any:
    async def doubled(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield 2 * await say(i)

    return [each async for each in doubled(3)]


@case([[0, 1], "closed", 7], "say:1", "say:2", "g1/say:1", "say:3")
async def an_abandoned_generator_cleans_up() -> Any:
    log: list[Any] = []
    closed = asyncio.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            for i in range(9):
                yield await say(i)
        finally:
            await say(99)
            log.append("closed")
            closed.set()

    found = []
    async for each in numbers():
        found.append(each)
        if each == 1:
            break
    await closed.wait()
    return [found, *log, await say(7)]


@case([[1, 4, 9], {"2": 2}], "say:1", "say:2", "say:3", "1/say:1")
async def async_comprehensions() -> Any:
    squares = [await say(n * n) for n in (1, 2, 3)]
    task = asyncio.create_task(say(2))
    return [squares, {str(await each): await each for each in [task]}]


@case([1, "later", 60], "timer:1", "1/say:1", "callback.1/say:1")
async def call_later() -> Any:
    loop = asyncio.get_running_loop()
    start = loop.time()
    done: asyncio.Future[str] = loop.create_future()

    async def tells() -> None:
        await say(2)
        done.set_result("later")

    loop.call_later(60, lambda: loop.create_task(tells()))
    return [await asyncio.create_task(say(1)), await done, round(loop.time() - start)]


if sys.version_info >= (3, 13):

    @case([3, 1, 2], "1/say:1", "2/say:1", "3/say:1")
    async def as_completed_iterated_asynchronously() -> Any:
        tasks = [asyncio.create_task(say(n, ticks)) for n, ticks in ((1, 20), (2, 40), (3, 0))]
        return [await each async for each in asyncio.as_completed(tasks)]


@pytest.mark.parametrize("given", CASES)
def test_the_result_is_right_and_every_replay_asks_the_same(
    given: Case, stepwell_env: Environment
) -> None:
    flow = workflow(given.body)
    run = stepwell_env.start(flow)
    stepwell_env.advance("2d")
    assert stepwell_env.result(run) == given.result
    check_run(stepwell_env, run)
    events = [each.event for each in stepwell_env.history(run)]
    assert check_replay(events, flow.definition, run.id) == given.trace
