"""Attempts of dispatched steps, driven by hand beside the turns of their run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stepwell.core.messages import StepAttempt, Wake, load_attempt
from stepwell.core.records import StepRow
from stepwell.engine.attempt import AttemptEnd
from stepwell.engine.ports import Delivery
from stepwell.testing import Environment


class Underway:
    """An attempt whose body runs while the test does other things."""

    def __init__(self, env: Environment, delivery: Delivery) -> None:
        self.env = env
        self.delivery = delivery
        self.attempt: StepAttempt = load_attempt(delivery.body)
        self.task: asyncio.Task[AttemptEnd] | None = None

    def ended(self) -> AttemptEnd:
        """Let it come to its end, and acknowledge its message."""
        assert self.task is not None
        end = self.env.wait_for(_outcome(self.task))
        self.env.wait_for(self.env._local.step_queue.delete(self.delivery))
        return end

    def die(self) -> None:
        """Its process dies: nothing more comes of it, and its message is there again."""
        assert self.task is not None
        self.env.wait_for(_killed(self.task))
        self.env.wait_for(self.env._local.step_queue.give_back(self.delivery))


async def _outcome(task: asyncio.Task[AttemptEnd]) -> AttemptEnd:
    return await task


async def _killed(task: asyncio.Task[AttemptEnd]) -> None:
    task.cancel()
    await asyncio.wait({task})


def received(env: Environment) -> Delivery | None:
    """The next message of the step queue."""
    return env.wait_for(env._local.step_queue.receive())


def begun(env: Environment, entered: Callable[[], Any]) -> Underway:
    """Receive a message and make its attempt, as far as its body has been entered."""
    delivery = received(env)
    assert delivery is not None, "no message of an attempt"
    underway = Underway(env, delivery)

    async def begin() -> None:
        underway.task = asyncio.create_task(make(env, delivery))
        while not entered() and not underway.task.done():
            await asyncio.sleep(0)

    env.wait_for(begin())
    return underway


async def make(
    env: Environment, delivery: Delivery, *, count: int | None = None, left: int | None = None
) -> AttemptEnd:
    """What a step function does with a message."""
    return await env._engine.run_attempt(
        load_attempt(delivery.body),
        message_id=delivery.message_id,
        receive_count=count or delivery.receive_count,
        time_left=left,
    )


def turns_only(env: Environment) -> None:
    """Take all turns that there are, and make no attempts."""

    async def take() -> bool:
        await env._local.timers.fire_due(env._local.queue)
        delivery = await env._local.queue.receive()
        if delivery is not None:
            await env._work(delivery)
        return delivery is not None

    while env.wait_for(take()):
        pass


def wake(env: Environment, run_id: str, cause: str = "a doubt") -> None:
    """Send a wake-up, and take its turn."""
    env.wait_for(env._local.queue.send(Wake(run_id=run_id, cause=cause)))
    turns_only(env)


def row(env: Environment, run_id: str, step: str) -> StepRow | None:
    """The row of a dispatched step."""
    return env.wait_for(env._local.store.get_step(run_id, step))


def looking_often(env: Environment) -> None:
    """Attempts look every millisecond of real time whether anybody still waits for them."""
    env._engine.settings = replace(env._engine.settings, look_every=1)
