"""Several signals of one subscription in one turn, and one signal over several turns."""

from __future__ import annotations

import asyncio

from stepwell import (
    RetryPolicy,
    get_checkpoint,
    get_current_signal,
    hook,
    save_checkpoint,
    set_result,
    sleep,
    step,
    stream_step,
    stream_workflow,
    terminate,
)
from stepwell.core.events import HookReceived, SignalRetryScheduled, StepFailed
from stepwell.testing import Environment


def test_the_second_signal_of_a_turn_can_wait_for_a_hook(stepwell_env: Environment) -> None:

    @stream_workflow
    async def kiln() -> None: ...

    @stream_step(stream=kiln, signals=["fired"], name="watch")
    async def watch() -> None:
        if await get_current_signal() is not None:
            answers = [*((await get_checkpoint()) or []), await hook("fine")]
            await save_checkpoint(answers)
            await set_result(answers)
            if len(answers) == 2:
                await terminate()

    env = stepwell_env
    run = env.start(kiln)
    env.run_until_idle()
    for key in ("one", "two"):
        env.wait_for(env.client.emit(kiln, "fired", {}, idempotency_key=key))
    env.run_until_idle()
    for answer in ("first", "second"):
        [found] = env.hooks()
        env.resume_hook(found.token, answer)
        env.run_until_idle()
    assert env.result(run).get_result("watch") == ["first", "second"]
    standing = env.wait_for(env.client.stream(kiln))
    history = env.wait_for(env.client.history(standing.subscriptions[0].run_id))
    wrong = [each for each in history if isinstance(each.event, StepFailed | SignalRetryScheduled)]
    assert wrong == []


def test_a_signal_that_fails_knows_nothing_of_hooks_of_the_one_before(
    stepwell_env: Environment,
) -> None:
    @step(dispatch="worker")
    async def measured_far(number: int) -> int:
        return number

    @step
    async def measured_here(number: int) -> int:
        return number

    @stream_workflow
    async def forge() -> None: ...

    @stream_step(
        stream=forge, signals=["asked", "broken"], name="watch", retry=RetryPolicy(max_attempts=1)
    )
    async def watch() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        if signal.signal_type == "asked":
            await hook("fine")
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(measured_far(1))
            await measured_here(1)
            raise ValueError("broken")

    env = stepwell_env
    env.start(forge)
    env.run_until_idle()
    for kind in ("asked", "broken"):
        env.wait_for(env.client.emit(forge, kind, {}))
    env.run_until_idle()
    env.resume_hook(env.hooks()[0].token, "yes")
    env.run_until_idle()
    [subscription] = env.wait_for(env.client.stream(forge)).subscriptions
    history = env.wait_for(env.client.history(subscription.run_id))
    assert subscription.parked == 1
    assert len([each for each in history if isinstance(each.event, HookReceived)]) == 1


def test_what_is_tried_again_can_wait_for_a_time_after_that(stepwell_env: Environment) -> None:
    tries: list[int] = []

    @step(retry=RetryPolicy(max_attempts=1))
    async def fails_once() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("down")

    @stream_workflow
    async def oven() -> None: ...

    @stream_step(
        stream=oven,
        signals=["heated"],
        name="watch",
        retry=RetryPolicy(max_attempts=2, initial="1m", jitter="none"),
    )
    async def watch() -> None:
        if await get_current_signal() is not None:
            await fails_once()
            await sleep("1h")
            await set_result("slept")
            await terminate()

    env = stepwell_env
    run = env.start(oven)
    env.run_until_idle()
    env.wait_for(env.client.emit(oven, "heated", {}))
    env.run_until_idle()
    [subscription] = env.wait_for(env.client.stream(oven)).subscriptions
    env.advance("1m")
    waiting = env.wait_for(env.client.get(subscription.run_id)).waiting
    assert [wait.kind for wait in waiting] == ["timer"]
    env.advance("1h")
    assert env.result(run).get_result("watch") == "slept"
    assert len(tries) == 2
