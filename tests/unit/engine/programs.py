"""Small programs as data, and a workflow that runs them: what authors write, in random mixtures."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from stepwell import RetryPolicy, hook, sleep, step, step_hook, workflow
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.errors import HookTimeout, StepFailed
from stepwell.testing import Environment

#: A word, a number, and the programs inside.
Program = tuple[str, int, list[Any]]

with registry.isolated():

    @step(retry=RetryPolicy(max_attempts=2, initial="20s", jitter="none"))
    async def act(kind: str, n: int) -> int:
        """Ends after some rounds of the loop; fails, or waits for an answer, if it is to."""
        for _ in range(n % 4):
            await asyncio.sleep(0)
        if kind == "fail":
            raise OSError("down")
        return await step_hook("inner", timeout="90s") if kind == "ask" else n

    @workflow(name="program")
    async def program(what: Any) -> Any:
        """Run a program."""
        return await run(what)


async def run(what: Program) -> Any:
    """What a program comes to."""
    word, n, inside = what
    return await _WORDS[word](n, inside)


async def _act(n: int, inside: list[Program]) -> Any:
    return await act("do", n)


async def _fail(n: int, inside: list[Program]) -> Any:
    try:
        return await act("fail", n)
    except StepFailed as error:
        return error.type


async def _ask(n: int, inside: list[Program]) -> Any:
    try:
        return await act("ask", n)
    except StepFailed as error:
        return error.type


async def _sleep(n: int, inside: list[Program]) -> Any:
    await sleep(10 * n)
    return "slept"


async def _hook(n: int, inside: list[Program]) -> Any:
    try:
        return await hook("outer", timeout=None if n % 2 else 30 * n + 30)
    except HookTimeout:
        return "nobody"


async def _row(n: int, inside: list[Program]) -> Any:
    return [await run(each) for each in inside]


async def _all(n: int, inside: list[Program]) -> Any:
    return await asyncio.gather(*(run(each) for each in inside))


async def _group(n: int, inside: list[Program]) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(each)) for each in inside]
    return [task.result() for task in tasks]


async def _first(n: int, inside: list[Program]) -> Any:
    tasks = [asyncio.create_task(run(each)) for each in inside]
    if not tasks:
        return []
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
    return [task.result() for task in tasks if task in done]


async def _race(n: int, inside: list[Program]) -> Any:
    return [await each for each in asyncio.as_completed([run(each) for each in inside])]


async def _within(n: int, inside: list[Program]) -> Any:
    try:
        async with asyncio.timeout(15 * n):
            return await _row(n, inside)
    except TimeoutError:
        return "late"


async def _bounded(n: int, inside: list[Program]) -> Any:
    try:
        return await asyncio.wait_for(_all(n, inside), 15 * n)
    except TimeoutError:
        return "late"


async def _hurried(n: int, inside: list[Program]) -> Any:
    task = asyncio.ensure_future(_all(n, inside))
    try:
        return await asyncio.wait_for(task, 15 * n)
    except TimeoutError:
        return "late"


async def _ordered(n: int, inside: list[Program]) -> Any:
    """In which order they end, and come through a lock."""
    ended: list[Any] = []
    lock = asyncio.Lock()

    async def one(number: int, each: Program) -> None:
        try:
            found = await run(each)
            ended.append([number, found])
        finally:
            async with lock:
                ended.append(number)
                await asyncio.sleep(0)

    await asyncio.gather(*(one(number, each) for number, each in enumerate(inside)))
    return ended


async def _stopped(n: int, inside: list[Program]) -> Any:
    """Begun, cancelled after some rounds, and waited for."""
    tasks = [asyncio.create_task(run(each)) for each in inside]
    for _ in range(n):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(each).__name__ for each in found]


async def _guarded(n: int, inside: list[Program]) -> Any:
    try:
        return await _row(n, inside)
    finally:
        await act("do", n)


_WORDS = {
    "act": _act,
    "fail": _fail,
    "ask": _ask,
    "sleep": _sleep,
    "hook": _hook,
    "row": _row,
    "all": _all,
    "group": _group,
    "first": _first,
    "race": _race,
    "within": _within,
    "bounded": _bounded,
    "guarded": _guarded,
    "hurried": _hurried,
    "ordered": _ordered,
    "stopped": _stopped,
}
PLAIN = ["act", "fail", "ask", "sleep", "hook"]
NESTING = [word for word in _WORDS if word not in PLAIN]


def one_move(env: Environment, handle: RunHandle[Any], choose: random.Random) -> None:
    """Something that may happen to a waiting run: an answer, time passing, or a cancel."""
    hooks = env.hooks(handle)
    move = choose.random()
    if move < 0.05:
        env.cancel(handle, "enough")
    elif hooks and move < 0.5:
        env.resume_hook(choose.choice(hooks).token, choose.randrange(9))
    else:
        env.advance(choose.choice([10, 30, 100]))
