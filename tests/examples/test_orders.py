"""Orders: every way that one can end, and what is given back on it."""

from __future__ import annotations

import pytest

from examples.orders.delivery import MOST_PIECES, deliver
from examples.orders.workflow import Line, Order, fulfil_order
from examples.outside import Outside
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.errors import PayloadRejected, RunFailed
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.examples.given import LAMPS

PAID = {"paid": True, "reference": "P-8"}


def asked(env: Environment, order: Order = LAMPS) -> RunHandle[object]:
    """An order that waits for its payment."""
    run = env.start(fulfil_order, order)
    env.run_until_idle()
    return run


def answer(env: Environment, payload: object) -> None:
    """Answer as the payment provider does, with the token that it was given."""
    [hook] = env.hooks()
    env.resume_hook(hook.token, payload)


def lines(*articles: str, quantity: int = 2) -> Order:
    """An order of these articles."""
    ordered = tuple(
        Line(order="B-2", article=each, quantity=quantity, price=LAMPS.lines[0].price)
        for each in articles
    )
    return Order(number="B-2", customer="C-18", lines=ordered)


def test_an_order_is_paid_for_packed_and_delivered(
    stepwell_env: Environment, world: Outside
) -> None:
    run = asked(stepwell_env)
    [told] = world.effects("payment asked").values()
    amount, _, token = told.partition(" ")
    stepwell_env.resume_hook(token, PAID)
    result = stepwell_env.run_to_end(run)
    assert amount == "38.00"
    assert result.model_dump(mode="json") | {"delivery": None} == {
        "status": "delivered",
        "missing": ["blue lamp"],
        "paid": "38.00",
        "delivery": None,
    }
    assert list(world.effects("stock reserved").values()) == ["2 red lamp", "2 chair"]
    assert list(world.effects("customer told").values()) == ["B-1: delivered"]
    assert "stock released" not in world.done()
    check_run(stepwell_env, run)


def test_the_carrier_is_asked_after_an_hour_and_then_less_often(
    stepwell_env: Environment, world: Outside
) -> None:
    run = asked(stepwell_env)
    answer(stepwell_env, PAID)
    for hours, scans in ((0, 1), (0.9, 1), (0.2, 2), (3.8, 2), (0.2, 3)):
        stepwell_env.advance(hours * 3600)
        assert len(world.effects("scan asked")) == scans
    assert stepwell_env.get(run).status is RunStatus.COMPLETED


def test_the_delivery_is_a_run_of_its_own(stepwell_env: Environment, world: Outside) -> None:
    run = asked(stepwell_env)
    answer(stepwell_env, PAID)
    [child] = [
        each.event for each in stepwell_env.history(run) if each.event.type == "ChildStarted"
    ]
    found = stepwell_env.wait_for(stepwell_env.client.get(child.run_id))
    assert (found.workflow, found.status) == (deliver.definition.name, RunStatus.SUSPENDED)
    stepwell_env.run_to_end(run)


@pytest.mark.parametrize("kind", ["stock reserved", "carrier booked", "customer told"])
def test_who_does_not_answer_is_asked_again(
    stepwell_env: Environment, world: Outside, kind: str
) -> None:
    world.fail(kind, times=2)
    run = asked(stepwell_env)
    stepwell_env.advance("1m")
    answer(stepwell_env, PAID)
    assert stepwell_env.run_to_end(run).status == "delivered"
    assert world.requests(kind) == len(world.effects(kind)) + 2


def test_too_many_articles_missing_give_back_what_was_put_aside(
    stepwell_env: Environment, world: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.orders.workflow.SOLD_OUT", ("blue lamp", "chair"))
    run = asked(stepwell_env)
    assert stepwell_env.result(run).status == "sold out"
    assert "2 red lamp" in world.effects("stock released").values()
    assert world.effects("payment asked") == {}
    check_run(stepwell_env, run)


def test_no_payment_within_half_an_hour_gives_the_stock_back(
    stepwell_env: Environment, world: Outside
) -> None:
    run = asked(stepwell_env)
    stepwell_env.advance("29m")
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    stepwell_env.advance("1m")
    assert stepwell_env.result(run).status == "unpaid"
    assert list(world.effects("stock released").values()) == ["2 red lamp", "2 chair"]
    assert list(world.effects("customer told").values()) == ["B-1: unpaid"]


def test_a_payment_that_is_refused_gives_the_stock_back(
    stepwell_env: Environment, world: Outside
) -> None:
    run = asked(stepwell_env)
    answer(stepwell_env, {"paid": False, "reference": "P-9"})
    assert stepwell_env.result(run).status == "unpaid"
    assert len(world.effects("stock released")) == 2


def test_an_answer_that_is_no_payment_is_refused(stepwell_env: Environment, world: Outside) -> None:
    run = asked(stepwell_env)
    with pytest.raises(PayloadRejected):
        answer(stepwell_env, {"paid": "maybe"})
    answer(stepwell_env, PAID)
    assert stepwell_env.run_to_end(run).status == "delivered"


def test_a_parcel_that_is_lost_is_paid_back(stepwell_env: Environment, world: Outside) -> None:
    run = asked(stepwell_env, lines("red lamp", quantity=MOST_PIECES + 1))
    answer(stepwell_env, PAID)
    stepwell_env.advance("13d")
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    stepwell_env.advance("2d")
    assert stepwell_env.result(run).status == "lost"
    assert list(world.effects("money refunded").values()) == ["B-2"]
    assert list(world.effects("customer told").values()) == ["B-2: lost"]
    check_run(stepwell_env, run)


@pytest.mark.parametrize("waits", ["payment", "warehouse", "carrier", "scan"])
def test_cancelling_an_order_gives_back_whatever_there_may_be(
    waits: str, stepwell_env: Environment, world: Outside
) -> None:
    world.fail({"warehouse": "stock reserved", "carrier": "carrier booked"}.get(waits, ""), times=4)
    run = asked(stepwell_env)
    if waits in ("carrier", "scan"):
        answer(stepwell_env, PAID)
    stepwell_env.cancel(run, "not wanted any more")
    stepwell_env.advance("20d")
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    assert len(world.effects("stock released")) == len(LAMPS.lines)
    assert len(world.effects("money refunded")) == 1
    assert list(world.effects("customer told").values()) == ["B-1: cancelled"]
    assert world.requests("scan asked") == (waits == "scan")
    assert stepwell_env.hooks() == ()
    check_run(stepwell_env, run)


def test_stock_is_given_back_though_the_warehouse_is_out_when_the_order_is_cancelled(
    stepwell_env: Environment, world: Outside
) -> None:
    run = asked(stepwell_env)
    world.fail("stock released", times=3)
    stepwell_env.cancel(run)
    stepwell_env.cancel(run, "again")
    stepwell_env.advance("1m")
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    assert len(world.effects("stock released")) == len(LAMPS.lines)


@pytest.mark.parametrize("order", [lines(), lines("chair", "chair"), lines("chair", quantity=0)])
def test_an_order_that_can_come_to_nothing_fails_at_once(
    stepwell_env: Environment, world: Outside, order: Order
) -> None:
    run = asked(stepwell_env, order)
    with pytest.raises(RunFailed, match="B-2"):
        stepwell_env.result(run)
    assert world.done() == []
