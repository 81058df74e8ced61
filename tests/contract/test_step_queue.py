"""The step queue of the local engine, as an SQS standard queue behaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stepwell.adapters.local.step_queue import SqliteStepQueue
from stepwell.core.messages import StepAttempt, load_attempt
from stepwell.engine.ports import Delivery, ItemTooLarge
from tests.contract.given import (
    MAX_RECEIVES,
    NASTY_IDS,
    START,
    VISIBILITY,
    Deployment,
    attempt,
    run,
)


async def _take(queue: SqliteStepQueue) -> Delivery:
    """The delivery that has to be there."""
    delivery = await queue.receive()
    assert delivery is not None
    return delivery


async def _drain(queue: SqliteStepQueue) -> list[StepAttempt]:
    """All that can be received now, acknowledged."""
    found: list[StepAttempt] = []
    while delivery := await queue.receive():
        found.append(load_attempt(delivery.body))
        assert await queue.delete(delivery)
    return found


def test_an_attempt_is_delivered_as_it_was_sent(deployment: Deployment) -> None:
    sent = [attempt(one, one) for one in NASTY_IDS]

    async def scenario() -> None:
        for one in sent:
            await deployment.step_queue.send(one)
        assert await _drain(deployment.step_queue) == sent
        assert await deployment.step_queue.receive() is None

    run(scenario())


def test_attempts_of_one_run_are_in_flight_together(deployment: Deployment) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt(step="charge:1"))
        await queue.send(attempt(step="charge:2"))
        taken = [load_attempt((await _take(queue)).body).step for _ in range(2)]
        assert taken == ["charge:1", "charge:2"]

    run(scenario())


def test_an_attempt_sent_twice_comes_twice(deployment: Deployment) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt())
        await queue.send(attempt())
        one, other = await _take(queue), await _take(queue)
        assert one.message_id != other.message_id
        assert await queue.delete(one)
        assert await queue.delete(other)

    run(scenario())


def test_attempts_of_unknown_steps_are_left_to_others(deployment: Deployment) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt(name="theirs"))
        await queue.send(attempt(name="ours"))
        delivery = await queue.receive(steps=["ours", "more"])
        assert delivery is not None
        assert load_attempt(delivery.body).name == "ours"
        assert await queue.receive(steps=["ours", "more"]) is None
        assert await queue.receive(steps=[]) is None
        assert load_attempt((await _take(queue)).body).name == "theirs"

    run(scenario())


def test_an_attempt_that_is_not_deleted_comes_again(deployment: Deployment) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt())
        first = await _take(queue)
        deployment.clock.advance(VISIBILITY - 1)
        assert await queue.receive() is None
        deployment.clock.advance(1)
        again = await _take(queue)
        assert (again.message_id, again.receive_count) == (first.message_id, 2)
        assert again.receipt != first.receipt

    run(scenario())


def test_an_attempt_given_back_comes_after_its_delay(deployment: Deployment) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt())
        assert await queue.give_back(await _take(queue))
        assert await queue.give_back(await _take(queue), delay=5000)
        assert await queue.next_visible_at() == START + 5000
        deployment.clock.advance(4999)
        assert await queue.receive() is None
        deployment.clock.advance(1)
        assert (await _take(queue)).receive_count == 3

    run(scenario())


def test_postponing_keeps_an_attempt_from_any_thread(deployment: Deployment) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt())
        delivery = await _take(queue)
        with ThreadPoolExecutor(1) as pool:
            for _ in range(5):
                deployment.clock.advance(VISIBILITY - 1)
                assert pool.submit(queue.postpone, delivery, VISIBILITY).result()
                assert await queue.receive() is None
        assert await queue.delete(delivery)
        assert await queue.next_visible_at() is None

    run(scenario())


@pytest.mark.parametrize("late", [False, True])
def test_a_stale_receipt_has_no_effect(deployment: Deployment, late: bool) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt())
        stale = await _take(queue)
        deployment.clock.advance(VISIBILITY)
        current = None if late else await _take(queue)
        assert not await queue.delete(stale)
        assert not await queue.give_back(stale)
        assert not queue.postpone(stale, 1000)
        await queue.reject(stale, "stale")
        assert await queue.dead_letters() == ()
        assert await queue.delete(current or await _take(queue))

    run(scenario())


def test_what_is_received_too_often_becomes_a_dead_letter(deployment: Deployment) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt())
        for _ in range(MAX_RECEIVES):
            assert await queue.give_back(await _take(queue))
        await queue.send(attempt("next"))
        assert [one.run_id for one in await _drain(queue)] == ["next"]
        (letter,) = await queue.dead_letters()
        assert load_attempt(letter.body) == attempt()
        assert letter.reason == f"received {MAX_RECEIVES} times and never deleted"
        assert letter.receive_count == MAX_RECEIVES

    run(scenario())


def test_a_rejected_attempt_is_a_dead_letter_until_it_is_sent_again(
    deployment: Deployment,
) -> None:
    async def scenario() -> None:
        queue = deployment.step_queue
        await queue.send(attempt())
        await queue.reject(await _take(queue), "no such step")
        assert await queue.receive() is None
        (letter,) = await queue.dead_letters()
        assert (letter.run_id, letter.reason) == ("run", "no such step")
        assert await queue.redrive(letter.message_id)
        assert not await queue.redrive(letter.message_id)
        assert await queue.dead_letters() == ()
        again = await queue.receive(steps=["charge"])
        assert again is not None
        assert (load_attempt(again.body), again.receive_count) == (attempt(), 1)

    run(scenario())


def test_dead_attempts_are_no_dead_messages_of_runs(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.step_queue.send(attempt())
        assert await deployment.consumer.receive() is None
        await deployment.step_queue.reject(await _take(deployment.step_queue), "no")
        assert await deployment.dead_letters() == ()

    run(scenario())


def test_an_attempt_above_the_limit_of_a_message_is_refused(deployment: Deployment) -> None:
    with pytest.raises(ItemTooLarge):
        run(deployment.step_queue.send(attempt(step="é" * 512 * 1024)))
    assert run(deployment.step_queue.receive()) is None


def test_of_many_receivers_one_gets_each_attempt(deployment: Deployment) -> None:
    for n in range(40):
        run(deployment.step_queue.send(attempt(f"r{n}")))
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: run(deployment.step_queue.receive()), range(48)))
    found = [load_attempt(delivery.body).run_id for delivery in taken if delivery]
    assert sorted(found) == sorted(f"r{n}" for n in range(40))
