"""Orders through two streams: shipped, paid for, disputed, called off, and put right by hand."""

from __future__ import annotations

from typing import Any

import pytest

from examples.outside import Outside
from examples.pipeline.streams import BILLING, ORDERS, Sale, sale
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.core.subscription import ParkedSignal
from stepwell.errors import SignalRejected
from stepwell.testing import Environment
from tests.examples.given import PLACED


def send(env: Environment, stream: str, kind: str, payload: Any = None, run: str = "7") -> None:
    """Send a signal to an order or a bill."""
    env.wait_for(env.client.emit(stream, kind, payload, stream_run_id=run))
    env.run_until_idle()


def opened(env: Environment, number: str = "7") -> RunHandle[Sale]:
    """A sale that nobody has placed an order for."""
    run = env.start(sale, number)
    env.run_until_idle()
    return run


def placed(env: Environment, **changes: Any) -> RunHandle[Sale]:
    """A sale whose order is placed."""
    run = opened(env)
    send(env, ORDERS, "order.placed", {**PLACED, **changes})
    return run


def parked(env: Environment, run: str = "7") -> tuple[ParkedSignal, ...]:
    """The orders that were put aside."""
    return env.wait_for(env.client.parked_signals(ORDERS, "fulfilment", stream_run_id=run))


def test_a_parcel_is_paid_for_a_day_after_it_was_shipped(
    stepwell_env: Environment, world: Outside
) -> None:
    run = placed(stepwell_env)
    assert list(world.effects("parcel shipped").values()) == ["2 x tea to Quay 1"]
    stepwell_env.advance("23h")
    assert world.requests("bill charged") == 0
    stepwell_env.advance("1h")
    assert list(world.effects("bill charged").values()) == ["9.00"]
    stepwell_env.advance("13d")
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    stepwell_env.advance("1d")
    result = stepwell_env.result(run)
    assert (result.parcel, result.refunded) == ("2 x tea to Quay 1", False)
    assert world.requests("bill refunded") == 0


def test_the_step_of_one_stream_tells_the_other_on_the_stream_run_of_the_same_name(
    stepwell_env: Environment, world: Outside
) -> None:
    for number in ("7", "8"):
        opened(stepwell_env, number)
    send(stepwell_env, ORDERS, "order.placed", PLACED, run="8")
    client = stepwell_env.client
    seven, eight = (
        stepwell_env.wait_for(client.signals(BILLING, stream_run_id=run)) for run in ("7", "8")
    )
    assert seven == ()
    [shipped] = eight
    assert shipped.payload == {"amount": "9.00", "parcel": "2 x tea to Quay 1"}
    assert shipped.source_run_id is not None


def test_a_dispute_while_the_step_sleeps_comes_behind_the_payment(
    stepwell_env: Environment, world: Outside
) -> None:
    run = placed(stepwell_env)
    stepwell_env.advance("12h")
    send(stepwell_env, BILLING, "bill.disputed", {"reason": "cold"})
    assert world.done() == ["parcel shipped"]
    stepwell_env.advance("12h")
    assert world.done() == ["parcel shipped", "bill charged", "bill refunded"]
    result = stepwell_env.result(run)
    assert result.refunded
    assert list(world.effects("bill refunded").values()) == [f"{result.receipt}: cold"]


def test_a_dispute_within_two_weeks_of_the_payment_gives_the_money_back(
    stepwell_env: Environment, world: Outside
) -> None:
    run = placed(stepwell_env)
    stepwell_env.advance("10d")
    send(stepwell_env, BILLING, "bill.disputed", {"reason": "cold"})
    assert stepwell_env.result(run).refunded
    stepwell_env.advance("10d")
    assert world.requests("bill refunded") == 1


def test_an_order_that_is_called_off_is_neither_shipped_nor_paid_for(
    stepwell_env: Environment, world: Outside
) -> None:
    run = opened(stepwell_env)
    send(stepwell_env, ORDERS, "order.called_off")
    assert stepwell_env.result(run) == Sale()
    found = stepwell_env.wait_for(stepwell_env.client.stream(ORDERS, stream_run_id="7"))
    assert [each.status for each in found.subscriptions] == ["cancelled"]
    assert world.done() == []


def test_an_order_is_called_off_while_somebody_looks_for_its_address(
    stepwell_env: Environment, world: Outside
) -> None:
    run = placed(stepwell_env, address=None)
    stepwell_env.advance("10m")
    assert len(parked(stepwell_env)) == 1
    send(stepwell_env, ORDERS, "order.called_off")
    assert stepwell_env.result(run) == Sale()
    assert world.done() == []


def test_an_order_that_was_shipped_cannot_be_called_off(
    stepwell_env: Environment, world: Outside
) -> None:
    run = placed(stepwell_env)
    stepwell_env.advance("2d")
    found = stepwell_env.wait_for(stepwell_env.client.stream(ORDERS, stream_run_id="7"))
    assert found.status == "completed"
    stepwell_env.advance("20d")
    assert stepwell_env.result(run).receipt is not None


def test_a_carrier_who_does_not_answer_is_asked_again_after_an_hour(
    stepwell_env: Environment, world: Outside
) -> None:
    world.fail("parcel shipped", times=1)
    placed(stepwell_env)
    stepwell_env.advance("59m")
    assert (world.requests("parcel shipped"), world.done()) == (1, [])
    stepwell_env.advance("1m")
    assert (world.requests("parcel shipped"), world.done()) == (2, ["parcel shipped"])


def test_an_order_without_an_address_is_tried_again_then_put_aside_then_redriven(
    stepwell_env: Environment, world: Outside
) -> None:
    run = placed(stepwell_env, address=None)
    assert parked(stepwell_env) == ()
    stepwell_env.advance("1m")
    [aside] = parked(stepwell_env)
    assert (aside.sequence, aside.attempts) == (1, 2)
    assert "no address for order 7" in aside.error.message
    world.request("address given", "7", "Quay 7")
    client = stepwell_env.client
    stepwell_env.wait_for(client.redrive_signal(ORDERS, "fulfilment", 1, stream_run_id="7"))
    stepwell_env.run_until_idle()
    assert list(world.effects("parcel shipped").values()) == ["2 x tea to Quay 7"]
    stepwell_env.advance("20d")
    assert stepwell_env.result(run).parcel == "2 x tea to Quay 7"


def test_an_address_that_comes_in_time_is_found_at_the_next_attempt(
    stepwell_env: Environment, world: Outside
) -> None:
    placed(stepwell_env, address=None)
    world.request("address given", "7", "Quay 7")
    stepwell_env.advance("1m")
    assert parked(stepwell_env) == ()
    assert world.requests("parcel shipped") == 1


def test_orders_behind_one_that_was_put_aside_go_on(
    stepwell_env: Environment, world: Outside
) -> None:
    placed(stepwell_env, address=None)
    send(stepwell_env, ORDERS, "order.placed", {**PLACED, "item": "coffee"})
    stepwell_env.advance("1m")
    assert list(world.effects("parcel shipped").values()) == ["2 x coffee to Quay 1"]


@pytest.mark.parametrize("changes", [{"pieces": 0}, {"price": "-1"}, {"price": "much"}])
def test_an_order_that_is_none_is_refused_where_it_is_sent(
    stepwell_env: Environment, world: Outside, changes: dict[str, Any]
) -> None:
    opened(stepwell_env)
    with pytest.raises(SignalRejected):
        send(stepwell_env, ORDERS, "order.placed", {**PLACED, **changes})
    assert stepwell_env.wait_for(stepwell_env.client.signals(ORDERS, stream_run_id="7")) == ()
