"""Calls that fail: no effects, tried again, parked in the end, and mended by somebody."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    FatalError,
    RetryPolicy,
    StreamStepContext,
    emit,
    get_checkpoint,
    get_current_signal,
    hook,
    save_checkpoint,
    set_result,
    step,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
)
from stepwell.engine import subscriptions
from stepwell.errors import SignalNotParked, SubscriptionNotFound
from stepwell.testing import Environment
from tests.integration.streams.given import begin, events, post, send, standing, subscription

Seen = list[Any]
TWICE = RetryPolicy(max_attempts=2, initial="10s", jitter="none")
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream without a step so far."""

    @stream_workflow
    async def mill() -> None: ...

    return mill


def failing(
    stream: Any, seen: Seen, *, retry: RetryPolicy = ONCE, on_failure: Any = "skip"
) -> None:
    """A step that fails on the payload `{"bad": true}` until `seen` holds "mended"."""

    @stream_step(stream=stream, signals=["sack"], retry=retry, on_failure=on_failure, name="grind")
    async def grind() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        seen.append(signal.sequence)
        if signal.payload.get("bad") and "mended" not in seen:
            raise ValueError("a stone")


def parked(env: Environment, step_name: str = "grind") -> list[int]:
    found = env.wait_for(env.client.parked_signals("mill", step_name))
    return [each.sequence for each in found]


def test_what_a_failed_call_said_is_discarded(stepwell_env: Environment, stream: Any) -> None:
    tries: Seen = []

    @stream_step(stream=stream, signals=["sack"], retry=TWICE)
    async def grind() -> None:
        if await get_current_signal() is None:
            return
        tries.append(await get_checkpoint())
        await save_checkpoint({"tried": len(tries)})
        await set_result("half")
        if len(tries) == 1:
            await suspend("never")
            await terminate()
            raise ValueError("a stone")

    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack")
    assert tries == [None]
    found = subscription(stepwell_env, "mill", "grind")
    assert (found.status, found.handled) == ("running", 0)
    stepwell_env.advance("10s")
    assert tries == [None, None]
    found = subscription(stepwell_env, "mill", "grind")
    assert (found.status, found.handled, found.parked) == ("waiting", 1, 0)


def test_what_succeeded_in_a_failed_call_is_not_done_again(
    stepwell_env: Environment, stream: Any
) -> None:
    done: Seen = []

    @step(name="streams.weigh_sack")
    async def weigh_sack() -> int:
        done.append("weighed")
        return 50

    @stream_step(stream=stream, signals=["sack"], retry=TWICE)
    async def grind() -> None:
        if await get_current_signal() is None:
            return
        await weigh_sack()
        await emit("other", "ground", {"n": 1})
        done.append("tried")
        if done.count("tried") == 1:
            raise ValueError("a stone")

    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack")
    stepwell_env.advance("10s")
    assert done == ["weighed", "tried", "tried"]
    assert standing(stepwell_env, "other").last == 1


def test_after_the_last_attempt_a_signal_is_parked_and_later_ones_go_on(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    failing(stream, seen, retry=TWICE)
    begin(stepwell_env, stream)
    for bad in (True, False):
        post(stepwell_env, "mill", "sack", {"bad": bad})
    stepwell_env.run_until_idle()
    assert seen == [1]
    stepwell_env.advance("1m")
    assert seen == [1, 1, 2]
    [left] = stepwell_env.wait_for(stepwell_env.client.parked_signals("mill", "grind"))
    assert (left.sequence, left.signal_type, left.attempts) == (1, "sack", 2)
    assert (left.error.type, left.error.message) == ("ValueError", "a stone")
    found = subscription(stepwell_env, "mill", "grind")
    assert (found.status, found.parked, found.handled, found.cursor) == ("waiting", 1, 1, 2)


def test_a_fatal_error_is_not_tried_again(stepwell_env: Environment, stream: Any) -> None:
    tries: Seen = []

    @stream_step(stream=stream, signals=["sack"])
    async def grind() -> None:
        if await get_current_signal() is not None:
            tries.append(1)
            raise FatalError("broken")

    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack")
    stepwell_env.advance("1h")
    assert (len(tries), parked(stepwell_env)) == (1, [1])


def test_an_error_in_on_signal_is_one_of_the_call(stepwell_env: Environment, stream: Any) -> None:
    called: Seen = []

    async def decide(signal: Any, ctx: StreamStepContext) -> None:
        await ctx.resume()
        called.append("asked")
        if called.count("asked") == 1:
            raise ValueError("a stone")

    @stream_step(stream=stream, signals=["sack"], on_signal=decide, retry=TWICE)
    async def grind() -> None:
        if await get_current_signal() is not None:
            called.append("called")

    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack")
    assert called == ["asked"], "its resume() before the error is not honoured"
    stepwell_env.advance("10s")
    assert called == ["asked", "asked", "called"]


def test_a_parked_signal_is_redriven_from_its_beginning(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    failing(stream, seen)
    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack", {"bad": True})
    send(stepwell_env, "mill", "sack", {})
    seen.append("mended")
    client = stepwell_env.client
    stepwell_env.wait_for(client.redrive_signal("mill", "grind", 1, actor="eve"))
    stepwell_env.run_until_idle()
    assert seen == [1, 2, "mended", 1]
    found = subscription(stepwell_env, "mill", "grind")
    assert (found.parked, found.handled, found.cursor) == (0, 2, 2)
    [asked] = events(stepwell_env, found.run_id, "SignalRedriven")
    assert (asked.sequence, asked.actor) == (1, "eve")
    with pytest.raises(SignalNotParked):
        stepwell_env.wait_for(client.redrive_signal("mill", "grind", 1))


def test_a_redrive_that_fails_again_is_parked_again(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    failing(stream, seen)
    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack", {"bad": True})
    for _ in range(2):
        stepwell_env.wait_for(stepwell_env.client.redrive_signal("mill", "grind", 1))
        stepwell_env.run_until_idle()
    assert seen == [1, 1, 1]
    assert parked(stepwell_env) == [1]


def test_a_redriven_call_opens_its_hooks_and_runs_its_steps_anew(
    stepwell_env: Environment, stream: Any
) -> None:
    answers: Seen = []

    @step(name="streams.ask_twice")
    async def ask_twice() -> None:
        answers.append("step")

    @stream_step(stream=stream, signals=["sack"], retry=ONCE)
    async def grind() -> None:
        if await get_current_signal() is None:
            return
        await ask_twice()
        answers.append(await hook("fine"))
        if answers[-1] == "no":
            raise ValueError("a stone")

    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack")
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, "no")
    assert parked(stepwell_env) == [1]
    stepwell_env.wait_for(stepwell_env.client.redrive_signal("mill", "grind", 1))
    stepwell_env.run_until_idle()
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, "yes")
    assert parked(stepwell_env) == []
    assert answers[-1] == "yes"
    assert answers.count("step") == 2


def test_a_parked_signal_is_discarded(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    failing(stream, seen)
    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack", {"bad": True})
    client = stepwell_env.client
    stepwell_env.wait_for(client.discard_signal("mill", "grind", 1, actor="eve"))
    stepwell_env.run_until_idle()
    found = subscription(stepwell_env, "mill", "grind")
    assert (found.parked, found.discarded, seen) == (0, 1, [1])
    with pytest.raises(SignalNotParked):
        stepwell_env.wait_for(client.discard_signal("mill", "grind", 1))
    with pytest.raises(SubscriptionNotFound):
        stepwell_env.wait_for(client.discard_signal("mill", "nobody", 1))


@pytest.mark.parametrize("action", ["redrive", "discard"])
def test_with_block_later_signals_wait_for_somebody(
    stepwell_env: Environment, stream: Any, action: str
) -> None:
    seen: Seen = []
    failing(stream, seen, on_failure="block")
    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack", {"bad": True})
    send(stepwell_env, "mill", "sack", {})
    found = subscription(stepwell_env, "mill", "grind")
    assert (found.blocked_by, found.lag, seen) == (1, 1, [1])
    stepwell_env.advance("30d")
    assert seen == [1]
    seen.append("mended")
    client = stepwell_env.client
    mend = client.redrive_signal if action == "redrive" else client.discard_signal
    stepwell_env.wait_for(mend("mill", "grind", 1))
    stepwell_env.run_until_idle()
    assert seen == [1, "mended", *([1] if action == "redrive" else []), 2]
    assert subscription(stepwell_env, "mill", "grind").blocked_by is None


def test_with_too_many_parked_signals_later_ones_wait(
    stepwell_env: Environment, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_PARKED", 3)
    seen: Seen = []
    failing(stream, seen)
    begin(stepwell_env, stream)
    for _ in range(5):
        post(stepwell_env, "mill", "sack", {"bad": True})
    stepwell_env.run_until_idle()
    assert parked(stepwell_env) == [1, 2, 3]
    assert subscription(stepwell_env, "mill", "grind").blocked_by == 3
    stepwell_env.wait_for(stepwell_env.client.discard_signal("mill", "grind", 3))
    stepwell_env.run_until_idle()
    assert parked(stepwell_env) == [1, 2, 4]


def test_a_start_that_fails_is_tried_again_then_parked_and_redriven(
    stepwell_env: Environment, stream: Any
) -> None:
    tries: Seen = []

    @stream_step(stream=stream, signals=["sack"], retry=TWICE)
    async def grind() -> None:
        signal = await get_current_signal()
        tries.append(signal and signal.sequence)
        if signal is None and len(tries) < 4:
            raise ValueError("no grain")

    begin(stepwell_env, stream)
    stepwell_env.advance("1m")
    assert parked(stepwell_env) == [0]
    send(stepwell_env, "mill", "sack")
    assert tries == [None, None, 1]
    stepwell_env.wait_for(stepwell_env.client.redrive_signal("mill", "grind", 0))
    stepwell_env.run_until_idle()
    stepwell_env.advance("1m")
    assert tries == [None, None, 1, None]
    assert parked(stepwell_env) == []


def test_others_are_called_whatever_fails(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    good: Seen = []
    failing(stream, seen)

    @stream_step(stream=stream, signals=["sack"])
    async def count_sacks() -> None:
        signal = await get_current_signal()
        good.append(signal and signal.sequence)

    begin(stepwell_env, stream)
    send(stepwell_env, "mill", "sack", {"bad": True})
    assert good == [None, 1]


def test_a_call_whose_process_dies_is_made_again_and_nothing_is_lost(
    stepwell_env: Environment, stream: Any
) -> None:
    done: Seen = []

    @step(name="streams.carry_sack")
    async def carry_sack(number: int) -> int:
        done.append(number)
        return number

    @stream_step(stream=stream, signals=["sack"])
    async def grind() -> None:
        signal = await get_current_signal()
        if signal is not None:
            state = (await get_checkpoint()) or []
            await save_checkpoint([*state, await carry_sack(signal.sequence)])

    begin(stepwell_env, stream)
    for call in range(1, 12):
        stepwell_env.crash_at(call)
        send(stepwell_env, "mill", "sack")
    stepwell_env.advance("1h")
    assert stepwell_env.crashes > 5
    found = subscription(stepwell_env, "mill", "grind")
    assert (found.status, found.handled, found.lag) == ("waiting", 11, 0)
    assert sorted(set(done)) == list(range(1, 12))
    numbers = [end.sequence for end in events(stepwell_env, found.run_id, "SignalHandled")]
    assert numbers == list(range(12))
