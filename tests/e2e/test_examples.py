"""An order and a trip on the stack: children, polls, sagas and runs that go on as new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from examples.outside import Outside
from tests.e2e.emulator import until
from tests.e2e.stack import Stack
from tests.examples.given import EXAMPLES, LAMPS, TO_THE_OFFER, TRIP

HOUR = 3600
PAID = {"paid": True, "reference": "P-8"}


@contextmanager
def time_passing(stack: Stack, hours: float) -> Iterator[None]:
    """Let waits of up to so many hours end at once."""
    stack.emulator.put_scheduler_ahead(hours * HOUR)
    try:
        yield
    finally:
        stack.emulator.put_scheduler_ahead(None)


def answer(stack: Stack, world: Outside, kind: str, key: str, payload: Any) -> None:
    """Answer with the token that the outside was told."""
    told = until(f"the token of {key} is told", lambda: world.effects(kind).get(key))
    reply = stack.http("POST", f"/hooks/{told.rpartition(' ')[2]}", payload)
    assert reply.status == 200, reply


def child(stack: Stack, run_id: str, name: str) -> str:
    """The run of a child, once it is started."""

    def look() -> str | None:
        events = stack.events(run_id)
        started = (each for each in events if each["type"] == "ChildStarted")
        return next((each["run_id"] for each in started if each["name"] == name), None)

    return until(f"{name} of {run_id} is started", look)


def had(world: Outside, run_ids: tuple[str, ...], kinds: Mapping[str, int]) -> dict[str, int]:
    """How many effects of these kinds the runs have had."""
    return {
        kind: sum(key.startswith(run_ids) for key in world.effects(kind)) for kind in sorted(kinds)
    }


def check_over(stack: Stack, *run_ids: str) -> None:
    """Nothing of the runs is left that could still come."""
    targets = [each["Target"]["Input"] for each in stack.schedules()]
    assert not [each for each in targets for run_id in run_ids if run_id in each]


def test_an_order_is_paid_for_packed_and_delivered(stack: Stack, world: Outside) -> None:
    run_id = stack.start("fulfil_order", order=to_jsonable_python(LAMPS))
    answer(stack, world, "payment asked", run_id, PAID)
    delivery = child(stack, run_id, "deliver")
    with time_passing(stack, hours=5):
        result = stack.ended(run_id)["result"]
    assert (result["status"], result["missing"]) == ("delivered", ["blue lamp"])
    assert result["delivery"]["scans"] == 3
    expected = EXAMPLES["orders"].effects
    assert had(world, (run_id, delivery), expected) == dict(sorted(expected.items()))
    check_over(stack, run_id, delivery)


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "cancelled"])
def test_a_trip_is_booked_or_undone(taken: bool, stack: Stack, world: Outside) -> None:
    run_id = stack.start("book_trip", trip=to_jsonable_python(TRIP))
    watch = child(stack, run_id, "watch_fares")
    with time_passing(stack, hours=3 * 24 + 1):  # a run goes by the times of its timers
        rooms = child(stack, run_id, "find_room")
    assert stack.run(watch)["status"] == "CONTINUED"
    for hook, payload in TO_THE_OFFER.items():
        kind, _, whom = hook.partition("@")
        asked, run = ("hotel", rooms) if kind == "vacancy" else ("company", run_id)
        answer(stack, world, f"{asked} asked", f"{run}/{whom}", payload)
    until("the offer is sent", lambda: world.effects("offer sent").get(run_id))
    if taken:
        answer(stack, world, "offer sent", run_id, {"yes": True})
        ended = stack.ended(run_id)
        assert ended["result"]["status"] == "booked"
    else:
        path = f"/v1/runs/{run_id}/cancel"
        assert stack.http("POST", path, {}, credentials=stack.caller).status == 202
        ended = stack.ended(run_id)
        assert ended["status"] == "CANCELLED"
    example = EXAMPLES["trip" if taken else "cancelled trip"]
    expected = {kind: times for kind, times in example.effects.items() if kind != "fare asked"}
    assert had(world, (run_id, rooms), expected) == dict(sorted(expected.items()))
    check_over(stack, run_id, watch, rooms)
