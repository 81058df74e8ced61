"""The examples on what was built: to their ends, twice over, and through killed functions."""

from __future__ import annotations

import pytest

from examples.outside import Outside
from stepwell.core.records import RunStatus
from stepwell.testing.laws import check_history, check_numbers
from tests.deployed.driving import (
    Final,
    drive_example,
    final,
    forget,
    header,
    history,
    start_example,
)
from tests.deployed.pump import Deployment, Kill
from tests.examples.given import EXAMPLES, SOMETIMES

#: How many requests lie between two at which a worker is killed. "approval" is killed at each.
STRIDES = {
    "agent": 5,
    "briefing": 3,
    "orders": 11,
    "trip": 13,
    "cancelled trip": 17,
    "review": 17,
    "pipeline": 19,
    "chat": 23,
}


def driven(aws: Deployment, name: str, world: Outside) -> Final:
    """What an example comes to, driven from nothing."""
    forget(aws)
    run_id = drive_example(aws, name)
    recorded = history(aws, run_id)
    check_numbers(recorded)
    events = [each.event for each in recorded]
    example = EXAMPLES[name]
    check_history(events, header(aws, run_id), example.workflow.definition)
    for kind in {*SOMETIMES, *example.effects}:
        assert len(world.effects(kind)) == example.effects.get(kind, 0), kind
    return final(aws, run_id, world, *example.streams)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_goes_to_its_end(name: str, aws: Deployment, world: Outside) -> None:
    run_id = drive_example(aws, name)
    cancelled = EXAMPLES[name].cancelled_at is not None
    ended = RunStatus.CANCELLED if cancelled else RunStatus.COMPLETED
    assert header(aws, run_id).status is ended
    assert aws.raised == []
    assert aws.waiting() == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_message_delivered_twice_changes_nothing(
    name: str, aws: Deployment, world: Outside
) -> None:
    once = driven(aws, name, world)
    aws.doubled = True
    assert driven(aws, name, world) == once


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_worker_killed_at_any_request_is_taken_over_by_another(
    name: str, done: bool, aws: Deployment, world: Outside
) -> None:
    without = driven(aws, name, world)
    stride = STRIDES.get(name, 1)
    for number in range(1 + done * (stride // 2), 500, stride):
        with aws.killing(Kill(function="worker", request=number, done=done)) as kill:
            assert driven(aws, name, world) == without, kill
        if kill.happened is None:
            break
    assert number > 10


@pytest.mark.parametrize("name", EXAMPLES)
def test_starting_twice_with_a_key_is_one_run(name: str, aws: Deployment, world: Outside) -> None:
    assert start_example(aws, name) == start_example(aws, name)
    aws.run_until_idle()
    assert start_example(aws, name) == start_example(aws, name)
    runs = aws.http("GET", "/v1/runs").json["runs"]
    workflow = EXAMPLES[name].workflow.definition.name
    assert [each["workflow"] for each in runs].count(workflow) == 1
