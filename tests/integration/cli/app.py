"""The workflows that the tests of the command line run; copied into the folder of each test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from stepwell import (
    STEP_HOOK_TIMEOUT,
    FatalError,
    Result,
    RetryableError,
    RetryPolicy,
    Suspend,
    continue_as_new,
    current,
    define_hook,
    get_current_signal,
    hook,
    resume_hook,
    sleep,
    start_child,
    step,
    step_hook,
    stream_step,
    stream_workflow,
    terminate,
    workflow,
)


class Verdict(BaseModel):
    approved: bool
    note: str


class Reading(BaseModel):
    celsius: float


@stream_workflow
async def boiler() -> None: ...


@stream_step(
    stream=boiler,
    signals={"measured": Reading, "broken": None},
    retry=RetryPolicy(max_attempts=1),
)
async def gauge() -> None:
    signal = await get_current_signal()
    if signal is None:
        return
    if signal.signal_type == "broken":
        raise RuntimeError("it leaks")
    if signal.payload["celsius"] > 90:
        await terminate()


verdict = define_hook("verdict", Verdict)


@workflow
def waits_for_input() -> Any:
    if "approved" not in current.run.inbox:
        raise Suspend("sign-off")
    return current.run.inbox["approved"]


@step
async def draft(title: str) -> str:
    print("drafting")
    return title.upper()


@workflow
async def hello(name: str, times: int = 1, *, on: date = date(2030, 1, 1)) -> dict[str, Any]:
    return {"text": await draft(name) * times, "on": on.isoformat()}


@workflow(name="total")
async def add(*numbers: int) -> int:
    return sum(numbers)


@workflow
async def approve(title: str) -> str:
    text = await draft(title)
    found = await verdict()
    return f"{text}: {found.approved}, {found.note}"


@workflow
async def two_questions() -> list[Any]:
    return list(await asyncio.gather(hook("left"), hook("right")))


@workflow
async def brief_question() -> str:
    answer = await hook("brief", timeout="50ms", on_timeout="return")
    return "nobody" if answer is STEP_HOOK_TIMEOUT else "somebody"


@workflow
async def nap(duration: str) -> str:
    await sleep(duration)
    return "rested"


@workflow
async def nap_when_told(duration: str) -> str:
    await hook("go")
    await sleep(duration)
    return "rested"


@step(retry=RetryPolicy(max_attempts=2, initial="20ms", jitter="none"))
async def stumble() -> str:
    if current.attempt == 1:
        raise ConnectionError("the line is [bold]dead[/bold]")
    return "standing"


@workflow
async def stumbles() -> str:
    return await stumble()


@step
async def refuse() -> None:
    raise FatalError("not today")


@workflow
async def fails() -> None:
    await refuse()


@workflow
async def stumbles_when_told() -> str:
    await hook("go")
    return await stumble()


@workflow
async def fails_when_told() -> None:
    await hook("go")
    await refuse()


@step(stream=True)
async def talk() -> AsyncIterator[Any]:
    yield "one"
    yield {"two": 2}
    yield await step_hook("third")
    yield Result("said")


@workflow
async def talks() -> str:
    said: str = await talk()
    return said


@workflow
async def talks_later() -> str:
    await hook("go")
    said: str = await talk()
    return said


@step
def hold(name: str) -> int:
    """Say that it is here, then hold on until a file lets it go; how often it was entered."""
    with Path(f"{name}.entries").open("a") as entries:
        entries.write("entered\n")
    print(f"holding {name}")
    while not Path(f"{name}.release").exists():
        time.sleep(0.01)
    return len(Path(f"{name}.entries").read_text().split())


@step(name="hold_away", dispatch="worker", retry=RetryPolicy(initial="20ms", jitter="none"))
def hold_away(name: str) -> int:
    """As `hold`, and dispatched."""
    with Path(f"{name}.entries").open("a") as entries:
        entries.write("entered\n")
    print(f"holding {name}")
    while not Path(f"{name}.release").exists():
        time.sleep(0.01)
    return current.attempt


@workflow
async def holds_away(name: str) -> int:
    await hook("go")
    return await hold_away.aio(name)


@workflow
async def holds_away_now(name: str) -> int:
    return await hold_away.aio(name)


@workflow
async def holds_item_away(name: str) -> list[int]:
    """Holds an item of a map that is made elsewhere, and waits for an answer besides."""
    _, held = await asyncio.gather(hook("go"), hold_away.map([name]))
    return held


@workflow
async def holds(name: str) -> int:
    await hook("go")
    return await hold.aio(name)


@step
def meet(own: str, other: str) -> int:
    """Come back with the process id once the other one is here as well."""
    Path(f"{own}.here").touch()
    while not Path(f"{other}.here").exists():
        time.sleep(0.01)
    return os.getpid()


@workflow
async def meets(own: str, other: str) -> int:
    await hook("go")
    return await meet.aio(own, other)


@workflow
async def notifies_late(delay: str) -> str:
    def told(token: str) -> None:
        with Path("notified").open("a") as file:
            file.write(f"{token}\n")
        if len(Path("notified").read_text().split()) == 1:
            raise RetryableError("nobody is listening", retry_after=delay)

    answer: str = await hook("asked", on_created=told)
    return answer


@step
async def answer_oneself() -> str:
    async def answered(token: str) -> None:
        await resume_hook(token, "by myself")

    answer: str = await step_hook("self", on_created=answered)
    return answer


@workflow
async def answers_itself() -> str:
    return await answer_oneself()


@workflow
async def delegates(title: str) -> str:
    return f"{await start_child(approve, title)} by another"


@workflow
async def rounds(left: int) -> str:
    if left:
        continue_as_new(left - 1)
    return "done"


@step(name="asked_away", dispatch="worker")
async def asked_away(n: int) -> int:
    """Waits in its middle, apart from the first one."""
    return n if n == 0 else int(await step_hook("number", key=str(n)))


@workflow
async def maps_away() -> list[int]:
    """Goes over items elsewhere."""
    return await asked_away.map(range(3))
