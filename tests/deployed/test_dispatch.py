"""Dispatched steps: the step queue, the step function, and what becomes of killed attempts."""

from __future__ import annotations

import pytest

from examples.outside import Outside
from stepwell.core.records import RunStatus
from tests.deployed.driving import Final, final, forget, header, result, start
from tests.deployed.pump import Deployment, Kill


def driven(aws: Deployment, world: Outside) -> Final:
    """What a run with a dispatched step comes to."""
    forget(aws)
    run_id = start(aws, "hand_over", "one", item="stone")
    aws.settle()
    aws.advance(10)  # an attempt that died is made again after a second or two
    assert header(aws, run_id).status is RunStatus.COMPLETED
    return final(aws, run_id, world)


def test_a_dispatched_step_is_done_by_the_step_function(aws: Deployment, world: Outside) -> None:
    before = aws.functions["step"].invocations
    run_id = start(aws, "hand_over", item="stone")
    aws.settle()
    assert result(aws, run_id) == "crushed stone"
    assert aws.functions["step"].invocations == before + 1
    assert world.requests("crush") == 1


def test_every_message_delivered_twice_changes_nothing(aws: Deployment, world: Outside) -> None:
    once = driven(aws, world)
    aws.doubled = True
    assert driven(aws, world) == once
    assert world.requests("crush") == 1


@pytest.mark.parametrize("function", ["step", "worker"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_function_killed_at_any_request_is_taken_over_by_another(
    function: str, done: bool, aws: Deployment, world: Outside
) -> None:
    without = driven(aws, world)
    for number in range(1, 200):
        with aws.killing(Kill(function=function, request=number, done=done)) as kill:
            assert driven(aws, world) == without, kill
        if kill.happened is None:
            break
    assert number > 3
