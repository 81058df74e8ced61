"""Subscriptions over their lives: cancelled between attempts, held up, in the way of nobody."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    RetryPolicy,
    StreamStepContext,
    continue_as_new,
    emit,
    get_current_signal,
    sleep,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
    workflow,
)
from stepwell.client import NewSignal
from stepwell.core.records import RunStatus
from stepwell.errors import DefinitionError, RunEnded, UsageError
from stepwell.testing import Environment
from tests.integration.streams.given import begin, send, subscription

Seen = list[Any]
SLOWLY = RetryPolicy(max_attempts=3, initial="1h", jitter="none")


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream without a step so far."""

    @stream_workflow
    async def ferry() -> None: ...

    return ferry


def test_a_cancel_does_not_wait_for_the_next_attempt(
    stepwell_env: Environment, stream: Any
) -> None:
    @stream_step(stream=stream, signals=["car"], retry=SLOWLY)
    async def deck() -> None:
        if await get_current_signal() is not None:
            raise ValueError("full")

    run = begin(stepwell_env, stream)
    send(stepwell_env, "ferry", "car")
    stepwell_env.cancel(run)
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    assert subscription(stepwell_env, "ferry", "deck").status == "cancelled"


def test_what_is_held_wakes_a_step_that_waits_for_it_now(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []

    @stream_step(stream=stream, signals=["car", "horn", "flag"])
    async def deck() -> None:
        signal = await get_current_signal()
        if signal is None:
            await suspend("no horn yet", ["horn"])
            return
        seen.append(signal.signal_type)
        if signal.signal_type == "horn":
            await suspend("no flag yet", ["flag"])

    begin(stepwell_env, stream)
    send(stepwell_env, "ferry", "flag")
    send(stepwell_env, "ferry", "car")
    assert seen == []
    send(stepwell_env, "ferry", "horn")
    assert seen == ["horn", "flag", "car"]


def test_a_cancel_keeps_its_reason_whatever_else_is_said(
    stepwell_env: Environment, stream: Any
) -> None:
    def decide(signal: Any, ctx: StreamStepContext) -> None:
        ctx.cancel("sunk")
        ctx.suspend("rain")

    @stream_step(stream=stream, signals=["car"], on_signal=decide)
    async def deck() -> None: ...

    begin(stepwell_env, stream)
    send(stepwell_env, "ferry", "car")
    assert subscription(stepwell_env, "ferry", "deck").reason == "sunk"


def test_many_signals_with_much_beside_them(stepwell_env: Environment, stream: Any) -> None:
    much = {"note": "x" * 20_000}
    news = [NewSignal(signal_type="car", metadata=much), NewSignal(signal_type="car")]
    one, two = stepwell_env.wait_for(stepwell_env.client.emit_all(stream, news))
    assert (one.metadata, two.metadata) == (much, {})


def test_an_empty_name_is_no_stream_run(stepwell_env: Environment, stream: Any) -> None:
    refused: Seen = []

    @workflow(name="streams.nameless")
    async def nameless() -> None:
        try:
            await emit(stream, "car", stream_run_id="")
        except DefinitionError as error:
            refused.append(str(error))

    stepwell_env.run(nameless)
    assert len(refused) == 1


def test_a_body_cannot_go_on_as_new(stepwell_env: Environment) -> None:
    @stream_workflow
    async def tram() -> None:
        continue_as_new()

    @stream_step(stream="tram", signals=["car"])
    async def driver() -> None: ...

    run = begin(stepwell_env, tram)
    error = stepwell_env.get(run).error
    assert error is not None
    assert "continue_as_new" in error.message


def test_nothing_is_mended_of_a_step_that_has_ended(stepwell_env: Environment, stream: Any) -> None:
    @stream_step(stream=stream, signals=["car", "last"], retry=RetryPolicy(max_attempts=1))
    async def deck() -> None:
        signal = await get_current_signal()
        if signal is not None and signal.signal_type == "car":
            raise ValueError("full")
        if signal is not None:
            await terminate()

    begin(stepwell_env, stream)
    send(stepwell_env, "ferry", "car")
    send(stepwell_env, "ferry", "last")
    with pytest.raises(RunEnded, match="takes no signals any more"):
        stepwell_env.wait_for(stepwell_env.client.redrive_signal("ferry", "deck", 1))


def test_a_subscription_is_not_retried_by_itself(stepwell_env: Environment, stream: Any) -> None:
    @stream_step(stream=stream, signals=["car"])
    async def deck() -> None: ...

    run = begin(stepwell_env, stream)
    stepwell_env.cancel(run)
    stepwell_env.run_until_idle()
    run_id = subscription(stepwell_env, "ferry", "deck").run_id
    with pytest.raises(UsageError, match="stream run"):
        stepwell_env.wait_for(stepwell_env.client.retry(run_id))


def test_a_run_goes_on_whose_signal_went_with_its_stream_run(
    stepwell_env: Environment, stream: Any
) -> None:
    @workflow(name="streams.survivor")
    async def survivor() -> str:
        await emit(stream, "car", {"text": "x" * 50_000}, stream_run_id="gone")
        await sleep("1h")
        return "there"

    run = stepwell_env.start(survivor)
    stepwell_env.run_until_idle()
    other = begin(stepwell_env, stream, run="gone")
    stepwell_env.wait_for(stepwell_env.client.delete(other.id))
    stepwell_env.run_until_idle()
    stepwell_env.advance("1h")
    assert stepwell_env.result(run) == "there"


@pytest.mark.parametrize("signal_id", ["", "x" * 300, "\ud800"])
def test_what_can_be_no_signal_is_not_taken_back(
    stepwell_env: Environment, stream: Any, signal_id: str
) -> None:
    with pytest.raises(DefinitionError, match="signal key"):
        stepwell_env.wait_for(stepwell_env.client.cancel_signal(stream, signal_id))
