"""Signals that a step has not taken: those that it will, and those that it will not."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    RetryPolicy,
    emit,
    get_current_signal,
    hook,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
)
from stepwell.testing import Environment
from tests.integration.streams.given import begin, post, send, standing, subscription
from tests.integration.streams.test_delivery import Seen, keeper


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream without a step so far."""

    @stream_workflow
    async def parcels() -> None: ...

    return parcels


def test_after_its_end_a_step_is_called_no_more_and_what_it_missed_shows(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    keeper("parcels", "weigh", ["came"], [], last="never")
    begin(stepwell_env, stream)
    send(stepwell_env, "parcels", "over")
    assert subscription(stepwell_env, "parcels", "scan").ignored == 0
    send(stepwell_env, "parcels", "came")
    send(stepwell_env, "parcels", "came")
    send(stepwell_env, "parcels", "never")
    found = subscription(stepwell_env, "parcels", "scan")
    assert seen == [None, (1, "over")]
    assert (found.status, found.ignored, found.lag) == ("terminated", 2, 0)


def test_what_comes_by_a_queue_after_the_end_is_kept_and_counted(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)

    @stream_workflow
    async def others() -> None:
        await hook("later")
        await emit("parcels", "came")

    keeper("others", "idle", ["x"], [])
    begin(stepwell_env, stream)
    begin(stepwell_env, others)
    send(stepwell_env, "parcels", "over")
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, {})
    found = standing(stepwell_env, "parcels")
    assert (found.status, found.last) == ("completed", 2)
    assert subscription(stepwell_env, "parcels", "scan").ignored == 1
    assert seen == [None, (1, "over")]


def test_what_waits_is_counted_without_what_is_for_others(
    stepwell_env: Environment, stream: Any
) -> None:
    @stream_step(stream=stream, signals=["came", "go"])
    async def scan() -> None:
        signal = await get_current_signal()
        if signal is not None and signal.sequence == 1:
            await suspend("look", ["go"])

    def lag() -> int:
        return subscription(stepwell_env, "parcels", "scan").lag

    begin(stepwell_env, stream)
    send(stepwell_env, "parcels", "came")
    assert lag() == 0
    for kind in ("other", "came", "other", "came", "other"):
        post(stepwell_env, "parcels", kind)
    stepwell_env.run_until_idle()
    assert lag() == 2
    send(stepwell_env, "parcels", "go")
    assert lag() == 0
    send(stepwell_env, "parcels", "other")
    assert lag() == 0


def test_what_was_parked_or_discarded_is_not_missed(stepwell_env: Environment, stream: Any) -> None:
    @stream_step(stream=stream, signals=["came", "over"], retry=RetryPolicy(max_attempts=1))
    async def scan() -> None:
        signal = await get_current_signal()
        if signal is None or signal.signal_type == "came":
            raise ValueError("no")
        await terminate()

    keeper("parcels", "weigh", ["came"], [], last="never")
    begin(stepwell_env, stream)
    for _ in range(3):
        send(stepwell_env, "parcels", "came")
    for number in (0, 1):
        stepwell_env.wait_for(stepwell_env.client.discard_signal("parcels", "scan", number))
    stepwell_env.run_until_idle()
    found = subscription(stepwell_env, "parcels", "scan")
    assert (found.lag, found.parked, found.discarded) == (0, 2, 1)
    send(stepwell_env, "parcels", "over")
    send(stepwell_env, "parcels", "came")
    found = subscription(stepwell_env, "parcels", "scan")
    assert (found.lag, found.ignored) == (0, 1)
