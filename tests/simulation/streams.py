"""Scenarios of streams: reviews, games of two, busy and failing steps, and early signals."""

from __future__ import annotations

import asyncio
from typing import Any

from examples.outside import outside
from stepwell import (
    RetryPolicy,
    current,
    emit,
    get_checkpoint,
    get_current_signal,
    poll_inbox,
    run_stream_workflow,
    save_checkpoint,
    schedule_signal,
    set_result,
    sleep,
    start_child,
    step,
    step_hook,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.streams import Signal, StreamStepContext, acknowledge_inbox_signal
from stepwell.testing import Environment
from tests.simulation.scenario import Scenario

_OFTEN = RetryPolicy(max_attempts=20, initial=0, jitter="none")
_ONCE_MORE = RetryPolicy(max_attempts=2, initial="1m", factor=1, jitter="none")
ONE = "one"


@step(name="streams.note")
async def note(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="streams.note_away", dispatch="worker", retry=_OFTEN)
async def note_away(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="streams.reach", retry=RetryPolicy(max_attempts=1))
async def reach(what: str) -> str:
    if not outside().effects("outage"):
        raise ConnectionError("down")
    return outside().request("note", current.idempotency_key, what)


@step(name="streams.ask", retry=_OFTEN)
async def ask(what: str) -> str:
    return f"{what}: {await step_hook('question')}"


# A review that waits for a person, and a parent that shows what for.


@stream_workflow(name="sim.reviews")
async def reviews() -> None:
    await schedule_signal("sim.reviews", "draft", {"from": "schedule"}, delay="10m")


@stream_step(stream=reviews, signals=["draft", "approved"], name="review")
async def review() -> None:
    signal = await get_current_signal()
    seen = (await get_checkpoint()) or []
    if signal is None:
        return
    if signal.signal_type == "draft":
        seen.append(await note(f"draft {signal.sequence}"))
        await save_checkpoint(seen)
        if len(seen) == 2:
            await suspend("a person has to look", resume_signals=["approved"])
        return
    await note("approved")
    await set_result(len(seen))
    await terminate()


@stream_step(stream=reviews, signals=["draft", "approved"], name="counter")
async def counter() -> None:
    """Takes two at a time, out of their turn."""
    if await get_current_signal() is None:
        return
    waiting = await poll_inbox()
    for each in waiting[:1]:
        await acknowledge_inbox_signal(each.signal_id)
    count = ((await get_checkpoint()) or 0) + 1 + len(waiting[:1])
    await save_checkpoint(count)
    await set_result(count)
    if count >= 4:
        await terminate()


@workflow(name="sim.reviewing")
async def reviewing() -> Any:
    async def init() -> None:
        await emit(reviews, "draft", {"from": "init"})

    result = await run_stream_workflow(reviews, stream_run_id=ONE, init=init)
    return [await note("reviewed"), dict(result.step_results)]


# Two streams that throw a ball to each other.


@stream_workflow(name="sim.west")
async def left_side() -> None:
    await emit("sim.west", "ball", {"throws": 1})


@stream_workflow(name="sim.east")
async def right_side() -> None: ...


async def _throw(to: str, most: int) -> None:
    signal = await get_current_signal()
    if signal is None:
        return
    throws = signal.payload["throws"]
    if throws < most:
        await emit(to, "ball", {"throws": throws + 1})
    if throws >= most - 1:
        await set_result(throws)
        await terminate()


@stream_step(stream=left_side, signals=["ball"], name="player")
async def left_player() -> None:
    await _throw("sim.east", 6)


@stream_step(stream=right_side, signals=["ball"], name="player")
def right_player() -> None:
    signal = get_current_signal()
    if signal is None:
        return
    throws = signal.payload["throws"]
    emit("sim.west", "ball", {"throws": throws + 1})
    if throws >= 5:
        set_result(throws)
        terminate()


@workflow(name="sim.game")
async def game() -> list[Any]:
    sides = [run_stream_workflow(side, stream_run_id=ONE) for side in (left_side, right_side)]
    return [each.get_result("player") for each in await asyncio.gather(*sides)]


# A step that does all that a workflow can.


@workflow(name="sim.helper")
async def helper(number: int) -> str:
    await sleep("10m")
    return await note(f"helped with {number}")


@stream_workflow(name="sim.office")
async def office() -> None:
    await note("opened")


@stream_step(stream=office, signals=["job", "closing"], name="clerk")
async def clerk() -> None:
    signal = await get_current_signal()
    done = (await get_checkpoint()) or []
    if signal is None:
        await note("there")
        return
    if signal.signal_type == "closing":
        await set_result(len(done))
        await terminate()
        return
    async with asyncio.TaskGroup() as group:
        noted = group.create_task(note_away(f"job {signal.sequence}"))
        asked = group.create_task(ask("how"))
    await sleep("1h")
    helped = await start_child(helper, signal.sequence)
    await save_checkpoint([*done, noted.result(), asked.result(), helped])


# Steps that fail until what is down comes back.


def _decides(signal: Signal, context: StreamStepContext) -> None:
    if signal.signal_type != "nothing":
        context.resume()


@stream_workflow(name="sim.shaky")
async def shaky() -> None: ...


async def _work() -> None:
    signal = await get_current_signal()
    if signal is None:
        return
    if signal.signal_type == "end":
        await set_result(await get_checkpoint())
        await terminate()
        return
    first = await note(f"tries {signal.sequence}")
    await save_checkpoint([*((await get_checkpoint()) or []), first])
    await emit("sim.shaky", "nothing", {"of": signal.sequence})
    await reach(f"reached {signal.sequence}")


@stream_step(stream=shaky, signals=["job", "end"], name="skips", retry=_ONCE_MORE)
async def skips() -> None:
    await _work()


@stream_step(
    stream=shaky,
    signals=["job", "end", "nothing"],
    name="blocks",
    on_signal=_decides,
    retry=_ONCE_MORE,
    on_failure="block",
)
async def blocks() -> None:
    await _work()


@workflow(name="sim.in_office")
async def in_office() -> dict[str, Any]:
    return dict((await run_stream_workflow(office, stream_run_id=ONE)).step_results)


@workflow(name="sim.in_doubt")
async def in_doubt() -> dict[str, Any]:
    return dict((await run_stream_workflow(shaky, stream_run_id=ONE)).step_results)


# Played by hand, one after the other.


def send(env: Environment, stream: str, kind: str, key: str = "") -> None:
    """Send a signal, and let all come of it that comes at once."""
    keyed = key or f"{kind}-1"
    env.wait_for(env.client.emit(stream, kind, {}, stream_run_id=ONE, idempotency_key=keyed))
    env.run_until_idle()


def _reviewed(env: Environment, run: RunHandle[Any]) -> None:
    del run
    for key in ("first", "second", "second", "third"):
        send(env, "sim.reviews", "draft", key)
    send(env, "sim.reviews", "approved")


def _worked(env: Environment, run: RunHandle[Any]) -> None:
    del run
    send(env, "sim.office", "job")
    [hook] = env.hooks()
    env.resume_hook(hook.token, "well")
    env.advance("2h")
    send(env, "sim.office", "closing")


def _mended(env: Environment, run: RunHandle[Any]) -> None:
    del run
    send(env, "sim.shaky", "job")
    env.advance("1h")
    outside().request("outage", "over", "yes")
    for each in ("skips", "blocks"):
        env.wait_for(env.client.redrive_signal("sim.shaky", each, 1, stream_run_id=ONE))
        env.run_until_idle()
    send(env, "sim.shaky", "end")


SCENARIOS = (
    Scenario(name="reviewing", workflow=reviewing, script=_reviewed),
    Scenario(name="game", workflow=game),
    Scenario(name="office", workflow=in_office, script=_worked),
    Scenario(name="shaky", workflow=in_doubt, script=_mended),
)
