"""Signals that code emits as the last that it does: they are sent, however it ends."""

from __future__ import annotations

import pytest

from stepwell import (
    current,
    emit,
    get_current_signal,
    step,
    stream_step,
    stream_workflow,
    terminate,
    workflow,
)
from stepwell.errors import RunFailed
from stepwell.testing import Environment


@step
async def before_the_last(text: str) -> str:
    """Something durable before the end."""
    return text


def sent(env: Environment) -> list[str]:
    """What has come to the stream, in its order."""
    found = env.wait_for(env.client.signals("told"))
    return [each.payload["text"] for each in found]


@pytest.mark.parametrize("steps", [0, 1])
def test_what_a_workflow_emits_before_it_returns_is_sent(
    stepwell_env: Environment, steps: int
) -> None:
    @workflow
    async def tell_and_return() -> str:
        for _ in range(steps):
            await before_the_last("before")
        await emit("told", "said", {"text": "first"})
        await emit("told", "said", {"text": "second"})
        return "done"

    assert stepwell_env.run(tell_and_return) == "done"
    assert sent(stepwell_env) == ["first", "second"]


def test_what_a_workflow_emits_before_it_raises_is_sent(stepwell_env: Environment) -> None:
    @workflow
    async def tell_and_raise() -> None:
        try:
            raise ValueError("no")
        except ValueError as error:
            await emit("told", "said", {"text": str(error)})
            raise

    with pytest.raises(RunFailed):
        stepwell_env.run(tell_and_raise)
    assert sent(stepwell_env) == ["no"]


def test_what_a_stream_step_emits_last_is_sent_once_over_its_attempts(
    stepwell_env: Environment,
) -> None:
    failed: list[str] = []

    @stream_workflow
    async def telling() -> None:
        """Nothing."""

    @stream_step(stream=telling, signals=["go"])
    async def teller() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        await before_the_last(str(current.run_id))
        await emit("told", "said", {"text": "last"}, stream_run_id="default")
        if not failed:
            failed.append("once")
            raise ConnectionError("not yet")
        await terminate()

    run = stepwell_env.start(telling)
    stepwell_env.wait_for(stepwell_env.client.emit(telling, "go"))
    stepwell_env.run_to_end(run)
    assert failed == ["once"]
    assert sent(stepwell_env) == ["last"]
