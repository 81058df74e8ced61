"""Trips: all of one is booked, or nothing stays; whoever says so, and whenever."""

from __future__ import annotations

from functools import partial

import pytest

from examples.outside import Outside
from examples.trip.cars import hire_car
from examples.trip.fares import FARES, Watch, watch_fares
from examples.trip.room import find_room
from examples.trip.workflow import (
    Booking,
    Trip,
    Yes,
    book_flight,
    book_trip,
    cancel_room,
    send_offer,
)
from stepwell import current, hook, saga, start_child, workflow
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.examples.given import TO_THE_OFFER, TRIP

#: What is taken back of a whole offer, in order.
ALL = ["insurance cancelled", "car cancelled", "room cancelled", "flight cancelled"]


def begun(env: Environment, *, most: int = TRIP.most, days: int = 30) -> RunHandle[Booking]:
    """A trip whose fares are being watched."""
    run = env.start(book_trip, TRIP.model_copy(update={"most": most, "days": days}))
    env.run_until_idle()
    return run


def answer(env: Environment, hook_id: str, payload: object) -> None:
    """Answer the open hook of this id."""
    [hook] = [each for each in env.hooks() if each.hook_id == hook_id]
    env.resume_hook(hook.token, payload)


def offered(env: Environment) -> RunHandle[Booking]:
    """A trip that waits for its traveller."""
    run = begun(env)
    env.advance("3d")
    for hook_id, payload in TO_THE_OFFER.items():
        answer(env, hook_id, payload)
    assert [each.hook_id for each in env.hooks()] == ["offer:1"]
    return run


def undone(world: Outside) -> list[str]:
    """What was taken back, in order."""
    words = ("cancelled", "returned", "voided")
    return [kind for kind in world.done() if kind.endswith(words)]


def runs(env: Environment) -> dict[str, list[RunStatus]]:
    """How the runs of each workflow stand."""
    found: dict[str, list[RunStatus]] = {}
    for each in env.wait_for(env.client.list_runs()).items:
        found.setdefault(each.workflow, []).append(each.status)
    return found


def check_over(env: Environment, run: RunHandle[Booking]) -> None:
    """Nothing waits any more, neither the run nor a child of its."""
    assert env.hooks() == ()
    assert all(status.terminal for each in runs(env).values() for status in each)
    check_run(env, run)


def test_a_trip_is_booked_and_paid(stepwell_env: Environment, world: Outside) -> None:
    run = offered(stepwell_env)
    answer(stepwell_env, "offer:1", {"yes": True})
    booking = stepwell_env.result(run)
    assert (booking.status, booking.offer.fare) == ("booked", 388)
    assert (booking.offer.room.hotel, booking.offer.car.bid.price) == ("Park House", 50)
    assert list(world.effects("trip paid").values()) == ["388 by T-5"]
    assert list(world.effects("traveller told").values()) == ["T-5: booked"]
    assert undone(world) == []
    check_over(stepwell_env, run)


def test_fares_are_watched_by_one_run_after_another(
    stepwell_env: Environment, world: Outside
) -> None:
    begun(stepwell_env, most=FARES[-1])
    stepwell_env.advance("10d")
    assert runs(stepwell_env)["watch_fares"] == [
        RunStatus.COMPLETED,
        RunStatus.CONTINUED,
        RunStatus.CONTINUED,
    ]
    days = [each.rpartition(" ")[2] for each in world.effects("fare asked").values()]
    assert days == ["0", "1", "2", "3", "4"]


def test_no_fare_in_all_those_days_books_nothing(stepwell_env: Environment, world: Outside) -> None:
    run = begun(stepwell_env, most=100, days=5)
    stepwell_env.advance("5d")
    assert stepwell_env.result(run).status == "impossible"
    assert list(world.effects("traveller told").values()) == ["T-5: impossible"]
    assert undone(world) == []
    check_over(stepwell_env, run)


def test_no_room_takes_the_flight_back(stepwell_env: Environment, world: Outside) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("3d")
    answer(stepwell_env, "vacancy@Harbour Inn", {"free": False})
    stepwell_env.advance("2d")
    assert stepwell_env.result(run).status == "impossible"
    assert undone(world) == ["room cancelled", "flight cancelled"]
    check_over(stepwell_env, run)


def test_no_car_in_time_is_no_reason_to_stay(stepwell_env: Environment, world: Outside) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("3d")
    answer(stepwell_env, "vacancy@Harbour Inn", {"free": True})
    stepwell_env.advance("6h")
    answer(stepwell_env, "offer:1", {"yes": True})
    booking = stepwell_env.result(run)
    assert (booking.status, booking.offer.car) == ("booked", None)
    check_over(stepwell_env, run)


@pytest.mark.parametrize("how", ["declined", "unanswered", "cancelled"])
def test_an_offer_that_is_not_taken_is_undone_last_first(
    how: str, stepwell_env: Environment, world: Outside
) -> None:
    run = offered(stepwell_env)
    if how == "declined":
        answer(stepwell_env, "offer:1", {"yes": False})
    elif how == "unanswered":
        stepwell_env.advance("2d")
    else:
        stepwell_env.cancel(run, "ill")
    assert undone(world) == ALL
    assert list(world.effects("traveller told").values()) == [f"T-5: {how}"]
    ended = RunStatus.CANCELLED if how == "cancelled" else RunStatus.COMPLETED
    assert stepwell_env.get(run).status is ended
    check_over(stepwell_env, run)


def test_a_cancel_is_passed_on_to_the_run_that_it_waits_for(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("1d")
    stepwell_env.cancel(run)
    assert runs(stepwell_env) == {
        "book_trip": [RunStatus.CANCELLED],
        "watch_fares": [RunStatus.CANCELLED],
    }
    stepwell_env.advance("10d")
    assert len(world.effects("fare asked")) == 2
    assert undone(world) == []
    check_over(stepwell_env, run)


def test_a_cancel_finds_the_next_link_of_a_watch(stepwell_env: Environment, world: Outside) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("2d")
    stepwell_env.cancel(run)
    assert sorted(runs(stepwell_env)["watch_fares"]) == [RunStatus.CANCELLED, RunStatus.CONTINUED]
    stepwell_env.advance("10d")
    assert len(world.effects("fare asked")) == 3
    check_over(stepwell_env, run)


def test_a_cancel_while_hotels_are_asked_takes_the_flight_back(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("3d")
    stepwell_env.cancel(run)
    assert undone(world) == ["room cancelled", "flight cancelled"]
    check_over(stepwell_env, run)


def test_a_cancel_while_companies_are_asked_closes_both_questions(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("3d")
    answer(stepwell_env, "vacancy@Harbour Inn", {"free": True})
    assert len(stepwell_env.hooks()) == 2
    stepwell_env.cancel(run)
    assert undone(world) == ["room cancelled", "flight cancelled"]
    check_over(stepwell_env, run)


def test_a_cancel_between_payment_and_tickets_waits_for_the_tickets_and_takes_back_both(
    stepwell_env: Environment, world: Outside
) -> None:
    run = offered(stepwell_env)
    world.fail("tickets issued", times=2)
    answer(stepwell_env, "offer:1", {"yes": True})
    stepwell_env.cancel(run)
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    assert undone(world) == []
    stepwell_env.advance("1m")
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    assert len(world.effects("tickets issued")) == 1
    assert undone(world) == ["tickets voided", "money returned", *ALL]
    check_over(stepwell_env, run)


def test_what_cannot_be_taken_back_at_once_is_tried_again_while_cancelled_twice(
    stepwell_env: Environment, world: Outside
) -> None:
    run = offered(stepwell_env)
    for kind in (*ALL, "traveller told"):
        world.fail(kind, times=2)
    stepwell_env.cancel(run)
    stepwell_env.cancel(run, "again")
    stepwell_env.advance("1h")
    assert undone(world) == ALL
    assert list(world.effects("traveller told").values()) == ["T-5: cancelled"]
    check_over(stepwell_env, run)


async def without_insurance(trip: Trip) -> Booking:
    """The workflow up to its offer, as it was before there was insurance."""
    async with saga() as done:
        fare = await start_child(watch_fares, Watch(place=trip.place, most=trip.most, days=30))
        await book_flight(trip, fare)
        done.add(cancel_room, trip.traveller)
        await start_child(find_room, trip.traveller, trip.place)
        await hire_car(trip.traveller)
        tell = partial(send_offer, current.run_id)
        await hook("offer", timeout="2d", on_created=tell, payload_schema=Yes)
    raise AssertionError("the code has changed before the answer came")


@pytest.mark.breaks_laws("the code that is replayed is newer than the history's beginning")
@pytest.mark.parametrize("yes", [True, False])
def test_a_trip_from_before_there_was_insurance_ends_without(
    stepwell_env: Environment, world: Outside, yes: bool
) -> None:
    with registry.isolated():
        workflow(name="book_trip")(without_insurance)
        run = offered(stepwell_env)
    answer(stepwell_env, "offer:1", {"yes": yes})
    assert stepwell_env.result(run).status == ("booked" if yes else "declined")
    assert world.effects("insured") == {}
    assert undone(world) == ([] if yes else ALL[1:])
