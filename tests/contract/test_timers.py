"""The `Timers` port, sentence by sentence."""

from __future__ import annotations

import pytest

from stepwell.core.messages import TimerDue, load_message
from tests.contract.given import MINUTE, NASTY_IDS, START, Deployment, run


async def _received(deployment: Deployment) -> list[TimerDue]:
    """All messages in the queue, acknowledged."""
    found: list[TimerDue] = []
    while delivery := await deployment.consumer.receive():
        message = load_message(delivery.body)
        assert isinstance(message, TimerDue)
        found.append(message)
        assert await deployment.consumer.delete(delivery)
    return found


async def _fired(deployment: Deployment) -> list[TimerDue]:
    await deployment.fire_due()
    return await _received(deployment)


def test_a_timer_sends_its_message_when_due_and_not_before(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START + 1000)
        deployment.clock.advance(999)
        assert await _fired(deployment) == []
        deployment.clock.advance(1)
        assert await _fired(deployment) == [
            TimerDue(run_id="run", wait_id="wait", arm=1, due=START + 1000)
        ]

    run(scenario())


def test_a_late_timer_carries_the_time_it_was_due(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START + 1000)
        deployment.clock.advance(60 * MINUTE)
        assert [message.due for message in await _fired(deployment)] == [START + 1000]

    run(scenario())


def test_a_timer_started_after_its_time_fires_at_once(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START - 1000)
        assert len(await _fired(deployment)) == 1

    run(scenario())


def test_a_timer_fires_once(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START)
        assert len(await _fired(deployment)) == 1
        deployment.clock.advance(60 * MINUTE)
        assert await _fired(deployment) == []

    run(scenario())


def test_starting_an_existing_timer_again_changes_nothing(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START + 1000)
        await deployment.timers.start("run", "wait", 1, START + 1000)
        deployment.clock.advance(60 * MINUTE)
        assert [message.due for message in await _fired(deployment)] == [START + 1000]

    run(scenario())


@pytest.mark.parametrize("due", [START + 1000, START + 9000])
def test_a_timer_fires_at_the_time_that_it_was_last_started_with(
    deployment: Deployment, due: int
) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START + 5000)
        await deployment.timers.start("run", "wait", 1, due)
        deployment.clock.advance(due - START - 1)
        assert due not in [message.due for message in await _fired(deployment)]
        deployment.clock.advance(1)
        assert due in [message.due for message in await _fired(deployment)]

    run(scenario())


def test_a_cancelled_timer_does_not_fire(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START)
        await deployment.timers.start("run", "wait", 2, START)
        await deployment.timers.cancel("run", "wait", 1)
        assert [message.arm for message in await _fired(deployment)] == [2]

    run(scenario())


def test_cancelling_what_is_not_there_is_harmless(deployment: Deployment) -> None:
    run(deployment.timers.cancel("run", "wait", 1))


def test_timers_of_odd_ids_do_not_touch_each_other(deployment: Deployment) -> None:
    async def scenario() -> None:
        for one in NASTY_IDS:
            for other in NASTY_IDS[:5]:
                await deployment.timers.start(one, other, 1, START)
        await deployment.timers.cancel("a#b", "a", 1)
        fired = {(message.run_id, message.wait_id) for message in await _fired(deployment)}
        expected = {(one, other) for one in NASTY_IDS for other in NASTY_IDS[:5]}
        assert fired == expected - {("a#b", "a")}

    run(scenario())


def test_the_message_stands_in_the_group_of_its_run(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "first", 1, START)
        await deployment.timers.start("run", "second", 1, START + 1)
        deployment.clock.advance(1)
        await deployment.fire_due()
        held = await deployment.consumer.receive()
        assert held is not None
        assert await deployment.consumer.receive() is None
        assert await deployment.consumer.delete(held)
        assert [message.wait_id for message in await _received(deployment)] == ["second"]

    run(scenario())
