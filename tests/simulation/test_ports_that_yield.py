"""Ports whose calls take time: what leaves comes back, whoever asked for it is gone or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from stepwell import (
    Result,
    RetryPolicy,
    StepTimeout,
    current,
    hook,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.core.messages import load_message
from stepwell.core.records import Checkpoint, Chunk, RunStatus
from stepwell.engine.ports import TransientError
from stepwell.engine.turn import Engine
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.simulation.harness import _around

ONCE = RetryPolicy(max_attempts=1)
Around = Callable[[Any], Awaitable[Any]]


class Ported(Environment):
    """An environment whose engine makes its port calls through `around`."""

    def __init__(self, around: Around) -> None:
        self._through = around
        super().__init__()

    def _new_engine(self) -> Engine:
        ports = _around(self._ports, self._through)
        return Engine(ports, self._settings, self._registry, self._chance)


def method(call: Any) -> str:
    return str(call.args[0])


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@step(retry=ONCE)
async def quick() -> str:
    await rounds(20)
    return "done"


@step(retry=ONCE)
async def asks() -> str:
    return str(await step_hook("question"))


@step(retry=ONCE, timeout="10ms")
async def asks_in_time() -> str:
    return str(await step_hook("question"))


async def first_of(asking: Awaitable[Any]) -> str:
    waiting = asyncio.ensure_future(asking)
    working = asyncio.create_task(quick())
    await asyncio.wait({waiting, working}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return working.result()


@workflow
async def hook_or_work() -> str:
    return await first_of(hook("question"))


@workflow
async def step_hook_or_work() -> str:
    return await first_of(asks())


@workflow
async def step_hook_or_timeout() -> str:
    try:
        return await asks_in_time()
    except StepTimeout:
        return "done"


RACES = [hook_or_work, step_hook_or_work, step_hook_or_timeout]


@pytest.mark.parametrize("race", RACES)
def test_no_hook_is_left_open_by_a_put_that_outlasts_whoever_asked(
    race: Workflow[[], Any],
) -> None:
    async def slow(call: Any) -> Any:
        if method(call).endswith("put_hook"):
            await asyncio.sleep(0.5)  # longer than the timeout and the grace of a step
        return await call()

    with Ported(slow) as env:
        run = env.start(race)
        env.run_until_idle()
        assert env.result(run) == "done"
        assert env.hooks(run) == ()
        check_run(env, run)


@pytest.mark.parametrize("race", RACES)
def test_a_run_does_not_end_while_the_fate_of_a_put_is_unknown(race: Workflow[[], Any]) -> None:
    losing = True

    async def lossy(call: Any) -> Any:
        result = await call()
        if losing and method(call).endswith("put_hook"):
            await rounds(40)
            raise TransientError("the reply is lost")
        return result

    with Ported(lossy) as env:
        run = env.start(race)
        env.take_turn()
        assert not env.get(run).status.terminal
        losing = False
        env.advance("1m")
        for waiting in env.hooks(run):  # whoever is not too late this time
            env.resume_hook(waiting.token, "done")
        assert env.result(run) == "done"
        assert env.hooks(run) == ()
        check_run(env, run)


def test_a_thawed_turn_does_not_stop_the_timer_that_its_successor_needs() -> None:
    @step(retry=RetryPolicy(max_attempts=2, initial="1h", jitter="none"))
    async def flaky() -> str:
        if current.attempt == 1:
            raise ConnectionError
        return "ok"

    async def asked() -> str:
        await hook("go")
        return await flaky()

    @workflow
    async def flow() -> str:
        return (await asyncio.gather(sleep("2h"), asked()))[1]

    async def play(env: Environment) -> tuple[asyncio.Task[Any], asyncio.Event]:
        thaw, frozen = asyncio.Event(), asyncio.Event()

        async def freeze(call: Any) -> Any:
            if method(call).startswith("timers.") and not thaw.is_set():
                frozen.set()
                await thaw.wait()
            return await call()

        engine = Engine(_around(env._ports, freeze), env._settings, registry, lambda: 0.5)
        delivery = await env._local.queue.receive()
        assert delivery is not None
        turn = asyncio.create_task(
            engine.take_turn(
                load_message(delivery.body), message_id=delivery.message_id, receive_count=1
            )
        )
        await frozen.wait()
        return turn, thaw

    async def let_go(turn: asyncio.Task[Any], thaw: asyncio.Event) -> None:
        thaw.set()
        await asyncio.wait([turn])
        turn.exception()

    with Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
        [waiting] = env.hooks()
        env.wait_for(env.client.resume_hook(waiting.token, 1))
        turn, thaw = env.wait_for(play(env))
        env.clock.advance(150_000)
        env.advance("65m")
        env.wait_for(let_go(turn, thaw))
        env.advance("2h")
        assert env.result(run) == "ok"
        check_run(env, run)


@workflow
async def naps() -> str:
    await sleep("1h")
    return "woken"


@workflow
async def asks_until() -> str:
    return str(await hook("question", timeout="1h", on_timeout="return") or "woken")


@pytest.mark.parametrize("flow", [naps, asks_until])
def test_a_wake_sets_the_timer_that_a_lost_turn_did_not_set(flow: Workflow[[], Any]) -> None:
    failing = True

    async def broken(call: Any) -> Any:
        if failing and method(call) == "timers.start":
            raise TransientError("no timers today")
        return await call()

    with Ported(broken) as env:
        run = env.start(flow)
        env.advance("59m")  # all deliveries of the message, to the dead letters
        assert len(env.wait_for(env._local.queue.dead_letters())) == 1
        failing = False
        env.wait_for(env.client.wake(run.id))
        env.run_until_idle()
        env.advance("2h")
        assert env.get(run).status is RunStatus.COMPLETED


def test_def_steps_that_hold_every_thread_do_not_wait_for_one() -> None:
    told: list[str] = []

    @step
    def asks_plainly(number: int) -> str:
        return str(step_hook("question", on_created=told.append))

    @workflow
    async def many() -> int:
        return len(await asyncio.gather(*(asks_plainly.aio(n) for n in range(80))))

    with Environment() as env:
        run = env.start(many)
        env.run_until_idle()
        assert len(told) == 80
        assert len(env.hooks(run)) == 80


def test_a_branch_that_ends_while_its_hook_is_being_opened_is_no_failure_of_the_turn() -> None:
    async def slow(call: Any) -> Any:
        await rounds(5)
        return await call()

    @workflow
    async def flow() -> str:
        waiting = asyncio.create_task(hook("question"))
        await asyncio.sleep(0)
        waiting.cancel()
        return await quick()

    with Ported(slow) as env:
        run = env.start(flow)
        env.run_until_idle()
        assert env.result(run) == "done"
        assert env.hooks(run) == ()
        check_run(env, run)


def test_what_led_to_a_hook_is_durable_before_its_row_is_put() -> None:
    log: list[str] = []

    async def slow(call: Any) -> Any:
        name = method(call)
        log.append(f"{name} leaves")
        await rounds(10)
        result = await call()
        log.append(f"{name} is done")
        return result

    @workflow
    async def flow() -> Any:
        await quick()
        return await hook("question")

    with Ported(slow) as env:
        env.start(flow)
        env.run_until_idle()
    assert log.index("store.append is done") < log.index("store.put_hook leaves")


def test_an_entry_whose_checkpoint_a_later_turn_saved_is_fenced() -> None:
    @step
    async def saves() -> str:
        await save_step_checkpoint({"draft": 1})
        return "done"

    @workflow
    async def flow() -> str:
        return await saves()

    with Environment() as env:
        run = env.start(flow)
        later = Checkpoint(
            run_id=run.id,
            step="saves:1",
            last_event=1_000,
            save_id="later",
            saved_at=0,
            output=0,
            answers=(),
            value='{"draft":2}',
        )
        assert env.wait_for(env._local.store.put_checkpoint(later))
        env.take_turn()
        assert env.turns == []  # the message was given back
        assert env.history(run) == ()
        assert env.wait_for(env._local.store.get_checkpoint(run.id, "saves:1")) == later


def test_an_entry_whose_chunk_another_turn_has_written_is_fenced() -> None:
    rivals: list[Chunk] = []

    async def overtake(call: Any) -> Any:
        if method(call) == "store.put_chunk" and not rivals:
            rivals.append(replace(call.args[-1], value='"of another turn"'))
            assert await env._local.store.put_chunk(rivals[0])
        return await call()

    @step(stream=True)
    async def says() -> AsyncIterator[str | Result[str]]:
        yield "hello"
        yield Result("done")

    @workflow
    async def flow() -> str:
        result: str = await says()
        return result

    with Ported(overtake) as env:
        run = env.start(flow)
        env.take_turn()
        assert env.turns == []  # the message was given back
        assert env.history(run) == ()
        assert [chunk.value for chunk in env.output(run, "says:1")] == ["of another turn"]


def test_a_port_that_is_not_allowed_to_work_costs_no_attempt() -> None:
    forbidden = True

    async def refuse(call: Any) -> Any:
        if method(call) == "store.put_checkpoint" and forbidden:
            raise PermissionError("AccessDenied")
        return await call()

    @step(retry=ONCE)
    async def saves() -> str:
        try:
            await save_step_checkpoint({"draft": 1})
        except Exception:
            return "saved nothing"
        return "saved"

    @workflow
    async def flow() -> str:
        return await saves()

    with Ported(refuse) as env:
        run = env.start(flow)
        with pytest.raises(PermissionError):
            env.take_turn()
        assert env.history(run) == ()
        forbidden = False
        env.advance("10m")  # its message becomes visible again
        assert env.result(run) == "saved"
