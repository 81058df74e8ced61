"""Everything at once on ports that take their time, with a process that dies again and again."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from stepwell import (
    STEP_HOOK_TIMEOUT,
    HookTimeout,
    Result,
    RetryPolicy,
    current,
    hook,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.errors import HookExpired
from stepwell.testing import Environment
from tests.integration.histories import found

PATIENT = RetryPolicy(max_attempts=50, initial="1m", jitter="none")


class Slow:
    """A port whose calls let others go first, before and after they take effect."""

    def __init__(self, port: Any, chance: random.Random) -> None:
        self._port = port
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._let_others_go_first()
            result = await method(*args, **kwargs)
            await self._let_others_go_first()
            return result

        return call

    async def _let_others_go_first(self) -> None:
        for _ in range(self._chance.randint(0, 4)):
            await asyncio.sleep(0)


def slow(env: Environment, chance: random.Random) -> None:
    """Give a deployment slow ports."""
    ports = env._local.ports
    outside = ("store", "blobs", "queue", "timers")
    waits = {name: Slow(getattr(ports, name), chance) for name in outside}
    env._ports = env._crasher.wrap(replace(ports, **waits))
    env._engine = env._new_engine()


class World:
    """What happened outside: tokens by hook, and charges by their key."""

    def __init__(self, env: Environment, chance: random.Random) -> None:
        self.tokens: defaultdict[str, set[str]] = defaultdict(set)
        self.charges: set[str] = set()
        self.chance = chance
        self._keyring = env._settings.keyring

    def tell(self, token: str) -> None:
        self.tokens[self._keyring.read(token)[1]].add(token)


def answered(value: Any) -> Any:
    return None if value is STEP_HOOK_TIMEOUT else value


def flow_in(world: World) -> Any:
    @step(stream=True, retry=PATIENT)
    async def agent() -> AsyncIterator[Any]:
        state = await load_step_checkpoint() or {"answers": [], "asked": False}
        while (turn := len(state["answers"])) < 2:
            if not state["asked"]:
                yield f"turn {turn}"
                world.charges.add(f"{current.idempotency_key}/{turn}")
                state["asked"] = True
                await save_step_checkpoint(state)
            answer = await step_hook(
                "human", key=str(turn), timeout="1h", on_created=world.tell, on_timeout="return"
            )
            state = {"answers": [*state["answers"], answered(answer)], "asked": False}
            await save_step_checkpoint(state)
            if turn == 1 and world.chance.random() < 0.3:
                raise ConnectionError
        yield "end"
        yield Result(state["answers"])

    @step(retry=PATIENT)
    async def both(number: int) -> list[Any]:
        first = step_hook("x", on_created=world.tell, timeout="30m", on_timeout="return")
        second = step_hook("y", on_created=world.tell, timeout="2h", on_timeout="return")
        return [answered(each) for each in await asyncio.gather(first, second)]

    @step(retry=PATIENT)
    def plain(number: int) -> list[Any]:
        if load_step_checkpoint() is None:
            save_step_checkpoint(number)
        return [answered(step_hook("p", on_created=world.tell, timeout="3h", on_timeout="return"))]

    @workflow
    async def flow() -> list[Any]:
        answers = list(await asyncio.gather(agent(), both(1), plain.aio(2), both(3)))
        await sleep("1m")
        try:
            return [*answers, await hook("last", timeout="1h", on_created=world.tell)]
        except HookTimeout:
            return [*answers, None]

    return flow


def disturb(env: Environment, run: Any, chance: random.Random) -> dict[str, str]:
    """Work, die, answer and let time pass at random. Returns the answers that were taken."""
    taken: dict[str, str] = {}
    for _ in range(40):
        if chance.random() < 0.7:
            env.crash_at(chance.randint(1, 12), chance.choice(("before", "after")))
        if chance.random() < 0.5:
            env.take_turn()
        else:
            env.run_until_idle()
        waiting = env.hooks()
        if waiting and chance.random() < 0.5:
            one = chance.choice(waiting)
            value = chance.randint(0, 1_000_000)
            try:
                env.wait_for(env.client.resume_hook(one.token, value))
            except HookExpired:
                continue
            taken[one.hook_id] = str(value)
        if chance.random() < 0.3:
            env.advance(chance.choice(("1m", "10m", "31m")))
    env.crash_at(1_000_000)
    return taken


@pytest.mark.parametrize("seed", range(12))
def test_no_answer_charge_or_chunk_is_lost_or_doubled(seed: int) -> None:
    chance = random.Random(seed)
    with Environment(seed=seed) as env:
        slow(env, random.Random(seed))
        world = World(env, chance)
        run = env.start(flow_in(world))
        taken = disturb(env, run, chance)
        env.run_to_end(run)
        received = {event.hook: event.payload for event in found(env, run, "HookReceived")}
        assert received == taken
        assert all(len(tokens) == 1 for tokens in world.tokens.values())
        assert len(world.charges) == 2
        assert _read(env, run) == ["turn 0", "turn 1", "end"]
        assert env.hooks() == ()
        assert env.wait_for(env._local.queue.dead_letters()) == ()


def _read(env: Environment, run: Any) -> list[Any]:
    standing: list[Any] = []
    for chunk in env.output(run, "1/agent:1"):
        if chunk.reset:
            del standing[chunk.number :]
        else:
            assert chunk.number == len(standing) + 1
            standing.append(chunk.value)
    return standing
