"""The `Queue` and `Consumer` ports, sentence by sentence, as strict as an SQS FIFO queue."""

from __future__ import annotations

import pytest

from stepwell.core.messages import dump_message
from stepwell.engine.ports import Delivery
from tests.contract.given import (
    MAX_RECEIVES,
    MINUTE,
    NASTY_IDS,
    VISIBILITY,
    Deployment,
    cause,
    run,
    take,
    wake,
)


def test_a_message_is_delivered_as_it_was_sent(deployment: Deployment) -> None:
    async def scenario() -> Delivery:
        await deployment.queue.send(wake("é#/..", "c1"))
        return await take(deployment.consumer)

    delivery = run(scenario())
    assert delivery.body == dump_message(wake("é#/..", "c1"))
    assert delivery.receive_count == 1


def test_an_empty_queue_has_nothing_to_receive(deployment: Deployment) -> None:
    assert run(deployment.consumer.receive()) is None


def test_a_group_keeps_its_order(deployment: Deployment) -> None:
    async def scenario() -> list[str]:
        for n in range(20):
            await deployment.queue.send(wake(cause=f"c{n}"))
        order = []
        while delivery := await deployment.consumer.receive():
            order.append(cause(delivery))
            assert await deployment.consumer.delete(delivery)
        return order

    assert run(scenario()) == [f"c{n}" for n in range(20)]


def test_one_message_of_a_group_is_in_flight(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake("one", "c1"))
        await deployment.queue.send(wake("one", "c2"))
        await deployment.queue.send(wake("two", "c3"))
        first, second = await take(deployment.consumer), await take(deployment.consumer)
        assert [cause(first), cause(second)] == ["c1", "c3"]
        assert await deployment.consumer.receive() is None
        assert await deployment.consumer.delete(first)
        assert cause(await take(deployment.consumer)) == "c2"

    run(scenario())


def test_odd_run_ids_are_groups_of_their_own(deployment: Deployment) -> None:
    async def scenario() -> None:
        for run_id in NASTY_IDS:
            await deployment.queue.send(wake(run_id))
        for _ in NASTY_IDS:
            await take(deployment.consumer)
        assert await deployment.consumer.receive() is None

    run(scenario())


def test_a_message_that_is_not_deleted_comes_again(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake(cause="c1"))
        await deployment.queue.send(wake(cause="c2"))
        first = await take(deployment.consumer)
        deployment.clock.advance(VISIBILITY - 1)
        assert await deployment.consumer.receive() is None
        deployment.clock.advance(1)
        again = await take(deployment.consumer)
        assert (cause(again), again.receive_count) == ("c1", 2)
        assert again.message_id == first.message_id
        assert again.receipt != first.receipt

    run(scenario())


def test_a_deleted_message_never_comes_again(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        assert await deployment.consumer.delete(await take(deployment.consumer))
        deployment.clock.advance(10 * VISIBILITY)
        assert await deployment.consumer.receive() is None

    run(scenario())


def test_a_message_given_back_comes_at_once(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        assert await deployment.consumer.give_back(await take(deployment.consumer))
        assert (await take(deployment.consumer)).receive_count == 2

    run(scenario())


def test_a_message_given_back_with_a_delay_holds_its_group(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake(cause="c1"))
        await deployment.queue.send(wake(cause="c2"))
        assert await deployment.consumer.give_back(await take(deployment.consumer), delay=5000)
        deployment.clock.advance(4999)
        assert await deployment.consumer.receive() is None
        deployment.clock.advance(1)
        assert cause(await take(deployment.consumer)) == "c1"

    run(scenario())


def test_giving_back_with_a_delay_prolongs_the_hold_of_a_long_turn(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        delivery = await take(deployment.consumer)
        for _ in range(5):
            deployment.clock.advance(VISIBILITY - 1)
            assert await deployment.consumer.receive() is None
            assert await deployment.consumer.give_back(delivery, delay=VISIBILITY)
        assert await deployment.consumer.delete(delivery)
        deployment.clock.advance(VISIBILITY)
        assert await deployment.consumer.receive() is None

    run(scenario())


def test_a_stale_receipt_has_no_effect(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        stale = await take(deployment.consumer)
        deployment.clock.advance(VISIBILITY)
        current = await take(deployment.consumer)
        assert not await deployment.consumer.delete(stale)
        assert not await deployment.consumer.give_back(stale)
        await deployment.consumer.reject(stale, "stale")
        assert await deployment.dead_letters() == ()
        assert await deployment.consumer.receive() is None
        assert await deployment.consumer.delete(current)

    run(scenario())


def test_a_receipt_is_spent_once_its_message_was_given_back(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        delivery = await take(deployment.consumer)
        assert await deployment.consumer.give_back(delivery)
        again = await take(deployment.consumer)
        assert not await deployment.consumer.delete(delivery)
        assert await deployment.consumer.delete(again)

    run(scenario())


def test_a_receipt_is_spent_once_its_message_was_deleted(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake(cause="c1"))
        delivery = await take(deployment.consumer)
        assert await deployment.consumer.delete(delivery)
        await deployment.queue.send(wake(cause="c2"))
        other = await take(deployment.consumer)
        assert not await deployment.consumer.delete(delivery)
        assert not await deployment.consumer.give_back(delivery)
        assert await deployment.consumer.delete(other)

    run(scenario())


def test_equal_bodies_within_five_minutes_are_one(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        deployment.clock.advance(5 * MINUTE - 1)
        await deployment.queue.send(wake())
        assert await deployment.consumer.delete(await take(deployment.consumer))
        assert await deployment.consumer.receive() is None

    run(scenario())


def test_an_equal_body_is_dropped_although_the_first_was_deleted(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        assert await deployment.consumer.delete(await take(deployment.consumer))
        await deployment.queue.send(wake())
        assert await deployment.consumer.receive() is None

    run(scenario())


def test_an_equal_body_after_five_minutes_is_another_message(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        first = await take(deployment.consumer)
        assert await deployment.consumer.delete(first)
        deployment.clock.advance(5 * MINUTE)
        await deployment.queue.send(wake())
        assert (await take(deployment.consumer)).message_id != first.message_id

    run(scenario())


def test_a_dropped_body_does_not_prolong_the_window(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake())
        assert await deployment.consumer.delete(await take(deployment.consumer))
        deployment.clock.advance(3 * MINUTE)
        await deployment.queue.send(wake())
        deployment.clock.advance(2 * MINUTE)
        await deployment.queue.send(wake())
        await take(deployment.consumer)

    run(scenario())


def test_bodies_that_differ_in_run_or_cause_are_both_delivered(deployment: Deployment) -> None:
    async def scenario() -> None:
        for message in (wake("one", "c1"), wake("one", "c2"), wake("two", "c1")):
            await deployment.queue.send(message)
        for _ in range(3):
            assert await deployment.consumer.delete(await take(deployment.consumer))

    run(scenario())


@pytest.mark.parametrize("how", ["not deleted", "given back"])
def test_a_message_received_too_often_becomes_a_dead_letter(
    deployment: Deployment, how: str
) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake(cause="poison"))
        await deployment.queue.send(wake(cause="next"))
        for count in range(1, MAX_RECEIVES + 1):
            delivery = await take(deployment.consumer)
            assert (cause(delivery), delivery.receive_count) == ("poison", count)
            if how == "given back":
                assert await deployment.consumer.give_back(delivery)
            else:
                deployment.clock.advance(VISIBILITY)
        assert cause(await take(deployment.consumer)) == "next"
        (letter,) = await deployment.dead_letters()
        assert letter.body == dump_message(wake(cause="poison"))

    run(scenario())


def test_a_rejected_message_becomes_a_dead_letter_at_once(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.queue.send(wake(cause="c1"))
        await deployment.queue.send(wake(cause="c2"))
        delivery = await take(deployment.consumer)
        await deployment.consumer.reject(delivery, "unknown type")
        assert not await deployment.consumer.delete(delivery)
        assert [(letter.body, letter.reason) for letter in await deployment.dead_letters()] == [
            (dump_message(wake(cause="c1")), "unknown type")
        ]
        assert cause(await take(deployment.consumer)) == "c2"

    run(scenario())


def test_no_group_starves_behind_a_busy_one(deployment: Deployment) -> None:
    async def scenario() -> None:
        for n in range(10):
            await deployment.queue.send(wake("busy", f"c{n}"))
        await deployment.queue.send(wake("quiet", "q"))
        seen = []
        for _ in range(2):
            delivery = await take(deployment.consumer)
            seen.append(cause(delivery))
            deployment.clock.advance(1)
            assert await deployment.consumer.delete(delivery)
        assert "q" in seen

    run(scenario())
