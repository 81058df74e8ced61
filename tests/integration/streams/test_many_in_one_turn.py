"""Several signals of one subscription in one turn, and one signal over several turns."""

from __future__ import annotations

from stepwell import (
    RetryPolicy,
    get_current_signal,
    hook,
    set_result,
    sleep,
    step,
    stream_step,
    stream_workflow,
    terminate,
)
from stepwell.core.events import SignalRetryScheduled, StepFailed
from stepwell.testing import Environment


def test_the_second_signal_of_a_turn_can_wait_for_a_hook(stepwell_env: Environment) -> None:
    answers: list[str] = []

    @step(dispatch="worker")
    async def measured(number: int) -> int:
        return number

    @stream_workflow
    async def kiln() -> None: ...

    @stream_step(stream=kiln, signals=["fired"], name="watch")
    async def watch() -> None:
        if await get_current_signal() is not None:
            await measured(len(answers))
            answers.append(str(await hook("fine")))
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
    assert env.result(run).step_states == {"watch": "terminated"}
    assert answers[-1] == "second"
    standing = env.wait_for(env.client.stream(kiln))
    history = env.wait_for(env.client.history(standing.subscriptions[0].run_id))
    wrong = [each for each in history if isinstance(each.event, StepFailed | SignalRetryScheduled)]
    assert wrong == []


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
