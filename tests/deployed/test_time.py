"""Deadlines and naps, short and long, with a clock that is moved on."""

from __future__ import annotations

import pytest

from examples.outside import Outside
from stepwell.core.records import RunStatus
from tests.deployed.driving import (
    answer,
    answer_all,
    header,
    history,
    open_hooks,
    result,
    start,
    start_example,
)
from tests.deployed.pump import Deployment

MINUTE = 60
DAY = 24 * 60 * MINUTE


def test_a_day_without_an_answer_ends_by_a_schedule(aws: Deployment, world: Outside) -> None:
    run_id = start_example(aws, "approval")
    aws.run_until_idle()
    [schedule] = aws.schedules()
    assert schedule["at"] - aws.clock.now() == pytest.approx(DAY, abs=30)
    aws.advance(DAY - MINUTE)
    assert header(aws, run_id).status is RunStatus.SUSPENDED
    aws.advance(2 * MINUTE)
    assert result(aws, run_id)["status"] == "unanswered"
    assert world.effects("payment") == {}
    assert aws.schedules() == []


def test_an_answer_takes_back_the_schedule(aws: Deployment) -> None:
    run_id = start_example(aws, "approval")
    aws.run_until_idle()
    answer_all(aws, run_id, {"approval:1": {"approved": False, "reviewer": "the reviewer"}})
    assert result(aws, run_id)["status"] == "declined"
    assert aws.schedules() == []


def test_a_quarter_of_an_hour_goes_through_the_inbox(aws: Deployment) -> None:
    run_id = start_example(aws, "agent")
    aws.run_until_idle()
    assert aws.schedules() == []
    assert len(aws.waiting("InboxQueue")) == 1
    aws.advance(16 * MINUTE)
    [second] = open_hooks(aws, run_id)
    assert second.hook_id.endswith("visitor@call-4")
    aws.advance(16 * MINUTE)
    texts = [each.get("text") for each in result(aws, run_id)["transcript"]]
    assert texts.count("the visitor did not respond") == 2


@pytest.mark.parametrize("duration", ["1s", "10m", "20m", "45d"])
def test_a_nap_takes_as_long_as_it_says(duration: str, aws: Deployment) -> None:
    run_id = start(aws, "nap", duration=duration)
    aws.run_until_idle()
    seconds = int(duration[:-1]) * {"s": 1, "m": MINUTE, "d": DAY}[duration[-1]]
    if seconds > 5:
        aws.advance(seconds - 5)
        assert header(aws, run_id).status is RunStatus.SUSPENDED
    aws.advance(10)
    assert result(aws, run_id) == "awake"


@pytest.mark.parametrize("lag", [-120, 120])
def test_a_timer_is_due_by_its_own_time_whatever_the_functions_clocks_say(
    lag: int, aws: Deployment
) -> None:
    run_id = start(aws, "nap", duration="20m")
    aws.run_until_idle()
    aws.lag = lag
    aws.advance(20 * MINUTE + 1)
    assert result(aws, run_id) == "awake"


def test_the_inbox_lets_nothing_go_early(aws: Deployment) -> None:
    run_id = start(aws, "nap", duration="10m")
    aws.run_until_idle()
    aws.lag = 120
    aws.advance(11 * MINUTE)
    assert header(aws, run_id).status is RunStatus.SUSPENDED
    aws.advance(2 * MINUTE)
    assert result(aws, run_id) == "awake"


def test_an_answer_after_the_deadline_is_told_so_whether_or_not_the_timer_came(
    aws: Deployment,
) -> None:
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.run_until_idle()
    [hook] = open_hooks(aws, run_id)
    aws.clock.move_to(aws.clock.now() + 2 * DAY / 24)
    reply = answer(aws, hook, "yes")
    assert (reply.status, reply.json["code"]) == (410, "hook_expired")
    aws.run_until_idle()
    assert result(aws, run_id) == "nobody answered"
    assert answer(aws, hook, "yes").status == 410


def test_a_timer_that_fires_twice_or_late_changes_nothing(aws: Deployment) -> None:
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.run_until_idle()
    [schedule] = aws.schedules()
    [hook] = open_hooks(aws, run_id)
    assert answer(aws, hook, "yes").status == 200
    aws.run_until_idle()
    before = history(aws, run_id)
    for _ in range(2):
        aws.clock.move_to(schedule["at"] + DAY)
        aws.queues.put("RunQueue", schedule["Target"]["Input"], run_id)
        aws.run_until_idle()
    assert history(aws, run_id) == before
    assert result(aws, run_id) == "ready? yes"


def test_retries_wait_and_come_again(aws: Deployment) -> None:
    run_id = start(aws, "stumble", times=3)
    aws.advance(5 * MINUTE)
    assert result(aws, run_id) == "done at attempt 4"


def test_the_sweeper_wakes_a_run_whose_timer_was_lost(aws: Deployment) -> None:
    run_id = start(aws, "nap", duration="10m")
    aws.run_until_idle()
    aws.queues.clear()
    aws.advance(11 * MINUTE)
    assert aws.sweep()["woken"] == 0  # within the grace that a timer may be late
    aws.advance(5 * MINUTE)
    assert header(aws, run_id).status is RunStatus.SUSPENDED
    assert aws.sweep()["woken"] == 1
    aws.run_until_idle()
    assert result(aws, run_id) == "awake"


def test_the_sweeper_wakes_a_run_whose_hook_is_overdue(aws: Deployment) -> None:
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.run_until_idle()
    [schedule] = aws.schedules()
    aws.scheduler.delete_schedule(GroupName=schedule["GroupName"], Name=schedule["Name"])
    aws.advance(70 * MINUTE)
    assert aws.sweep()["woken"] == 1
    aws.run_until_idle()
    assert result(aws, run_id) == "nobody answered"
