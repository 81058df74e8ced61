"""A turn that was frozen and overtaken: whatever its step does after that changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import Result, save_step_checkpoint, step, workflow
from stepwell.core.messages import load_message
from stepwell.engine.journal import Fenced
from stepwell.testing import Environment
from tests.integration.histories import kinds


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("act", ["nothing", "save", "output"])
def test_an_overtaken_step_has_no_effect(env: Environment, act: str, early: bool) -> None:
    gate = asyncio.Event()
    entries: list[int] = []

    @step(stream=True)
    async def work() -> AsyncIterator[str | Result[int]]:
        entries.append(1)
        entry = len(entries)
        if early:
            yield "early"
            await save_step_checkpoint("early")
        if entry == 1:
            await gate.wait()
        if act == "save":
            await save_step_checkpoint(f"by {entry}")
        if act == "output":
            yield f"by {entry}"
            if entry == 1:
                yield "more"
        yield Result(entry)

    @workflow
    async def flow() -> int:
        result: int = await work()
        return result

    async def overtake() -> None:
        delivery = await env._local.queue.receive()
        assert delivery is not None
        message = load_message(delivery.body)
        turn = env._engine.take_turn
        frozen = asyncio.create_task(turn(message, message_id=delivery.message_id, receive_count=1))
        while not entries:
            await asyncio.sleep(0)
        await turn(message, message_id=delivery.message_id, receive_count=2)
        gate.set()
        with pytest.raises(Fenced):
            await frozen
        await env._local.queue.delete(delivery)

    run = env.start(flow)
    env.wait_for(overtake())
    assert env.result(run) == 2
    assert kinds(env, run) == ["RunStarted", "StepStarted", "StepCompleted", "RunCompleted"]
    values: list[Any] = [chunk.value for chunk in env.output(run, "work:1")]
    assert values == ["early"] * early + ["by 2"] * (act == "output")
    checkpoint = env.wait_for(env._local.store.get_checkpoint(run.id, "work:1"))
    kept = {"save": '"by 2"'}.get(act, '"early"' if early else None)
    assert (checkpoint and checkpoint.value) == kept
