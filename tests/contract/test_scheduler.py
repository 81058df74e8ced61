"""The AWS timers: three ways to be woken, and schedules that the service would take."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.adapters.aws.batches import BODY_LIMIT
from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.adapters.aws.clock import SystemClock, SystemIds
from stepwell.adapters.aws.schedules import ROUNDS, ScheduleTarget, at_expression
from stepwell.adapters.aws.timers import AwsTimers, schedule_name, schedule_of
from stepwell.core.messages import TimerDue, load_message
from stepwell.engine.ports import Consumer, TransientError
from tests.contract import test_timers as laws
from tests.contract.given import MINUTE, NASTY_IDS, START, Deployment, run
from tests.contract.messaging import ACCOUNT, GROUP, TARGET, Messaging, at_ms, open_messaging

HOUR = 60 * MINUTE
LAST = 253_402_300_799_000  # 9999-12-31T23:59:59Z
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAME = re.compile(r"[0-9a-zA-Z-_.]{1,64}")  # the service's own pattern


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Messaging]:
    with open_messaging(monkeypatch) as made:
        yield made


def start(aws: Messaging, after: int, arm: int = 1) -> None:
    run(aws.timers.start("run", "wait", arm, START + after))


def due(after: int, arm: int = 1) -> TimerDue:
    return TimerDue(run_id="run", wait_id="wait", arm=arm, due=START + after)


# The contract of the port


def _deployment(aws: Messaging) -> Deployment:
    """What the laws of timers need."""
    nothing: Any = None
    return Deployment(
        maps=nothing,
        streams=nothing,
        store=nothing,
        blobs=nothing,
        queue=aws.queue,
        consumer=cast("Consumer", aws),
        step_queue=nothing,
        timers=aws.timers,
        clock=aws.clock,
        fire_due=aws.fire_due,
        dead_letters=nothing,
        close=nothing,
    )


@pytest.mark.parametrize(
    "law",
    [
        laws.test_a_timer_sends_its_message_when_due_and_not_before,
        laws.test_a_late_timer_carries_the_time_it_was_due,
        laws.test_a_timer_started_after_its_time_fires_at_once,
        laws.test_a_timer_fires_once,
        laws.test_cancelling_what_is_not_there_is_harmless,
    ],
)
def test_timers_keep_the_contract(aws: Messaging, law: Callable[[Deployment], None]) -> None:
    """The laws that SQS can keep: it delays by whole seconds, and calls nothing back."""
    law(_deployment(aws))


# Which way


@pytest.mark.parametrize("after", [-(10**9), -1, 0])
def test_a_time_that_has_passed_goes_to_the_run_queue(aws: Messaging, after: int) -> None:
    start(aws, after)
    assert [load_message(message.body) for message in aws.sent()] == [due(after)]
    assert [message.group_id for message in aws.sent()] == ["run"]
    assert (aws.sent("inbox"), aws.schedules()) == ([], [])


@pytest.mark.parametrize(
    ("after", "delay"), [(1, 1), (999, 1), (1000, 1), (1001, 2), (899_001, 900), (900_000, 900)]
)
def test_up_to_fifteen_minutes_the_inbox_keeps_it_back(
    aws: Messaging, after: int, delay: int
) -> None:
    start(aws, after)
    assert [load_message(message.body) for message in aws.sent("inbox")] == [due(after)]
    assert aws.delays() == [delay]
    assert (aws.sent(), aws.schedules()) == ([], [])


@pytest.mark.parametrize("after", [900_001, HOUR, 400 * 24 * HOUR])
def test_beyond_that_a_schedule_sends_it(aws: Messaging, after: int) -> None:
    start(aws, after)
    (schedule,) = aws.schedules()
    assert 0 <= at_ms(schedule["ScheduleExpression"]) - (START + after) < 1000
    assert schedule["ScheduleExpressionTimezone"] == "UTC"
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["State"] == "ENABLED"
    target = schedule["Target"]
    assert target["Arn"] == TARGET.queue_arn
    assert target["RoleArn"] == TARGET.role_arn
    assert target["DeadLetterConfig"] == {"Arn": TARGET.dead_letter_arn}
    assert target["SqsParameters"] == {"MessageGroupId": "run"}
    assert load_message(target["Input"]) == due(after)
    assert (aws.sent(), aws.sent("inbox")) == ([], [])


# Starting again, cancelling


def test_starting_a_scheduled_timer_again_changes_nothing(aws: Messaging) -> None:
    updates = aws.count("UpdateSchedule")
    start(aws, HOUR)
    (before,) = aws.schedules()
    start(aws, HOUR)
    (after,) = aws.schedules()
    before.pop("ResponseMetadata")
    after.pop("ResponseMetadata")
    assert after == before
    assert updates == []


def test_a_schedule_that_says_something_else_is_replaced(aws: Messaging) -> None:
    start(aws, HOUR)
    start(aws, 2 * HOUR)
    (schedule,) = aws.schedules()
    assert at_ms(schedule["ScheduleExpression"]) == START + 2 * HOUR
    assert load_message(schedule["Target"]["Input"]) == due(2 * HOUR)


def test_a_timer_that_is_moved_nearer_comes_at_the_new_time_and_again_at_the_old(
    aws: Messaging,
) -> None:
    start(aws, HOUR)
    start(aws, 60_000)
    assert [load_message(message.body) for message in aws.sent("inbox")] == [due(60_000)]
    (schedule,) = aws.schedules()
    assert load_message(schedule["Target"]["Input"]) == due(HOUR)


@pytest.mark.parametrize("moved", [START + 1000, START + 9000])
def test_a_timer_fires_at_the_time_that_it_was_last_started_with(
    aws: Messaging, moved: int
) -> None:
    laws.test_a_timer_fires_at_the_time_that_it_was_last_started_with(_deployment(aws), moved)


def test_a_schedule_of_an_older_deployment_is_replaced(aws: Messaging) -> None:
    start(aws, HOUR)
    role = f"arn:aws:iam::{ACCOUNT}:role/new"
    newer = AwsTimers(
        aws.clients,
        aws.clock,
        queue=aws.queue,
        inbox=aws.inbox,
        target=replace(TARGET, role_arn=role),
    )
    run(newer.start("run", "wait", 1, START + HOUR))
    (schedule,) = aws.schedules()
    assert schedule["Target"]["RoleArn"] == role


def test_a_cancelled_schedule_is_gone_and_others_stay(aws: Messaging) -> None:
    start(aws, HOUR, arm=1)
    start(aws, HOUR, arm=2)
    run(aws.timers.cancel("run", "wait", 1))
    (schedule,) = aws.schedules()
    assert load_message(schedule["Target"]["Input"]) == due(HOUR, arm=2)
    run(aws.timers.cancel("run", "wait", 1))
    assert len(aws.schedules()) == 1


def test_schedules_of_odd_ids_do_not_touch_each_other(aws: Messaging) -> None:
    pairs = {(one, other) for one in NASTY_IDS for other in NASTY_IDS[:5]}

    async def scenario() -> None:
        for one, other in pairs:
            await aws.timers.start(one, other, 1, START + HOUR)
        await aws.timers.cancel("a#b", "a", 1)

    run(scenario())
    stand = [load_message(s["Target"]["Input"]) for s in _all(aws)]
    found = {(m.run_id, m.wait_id) for m in stand if isinstance(m, TimerDue)}
    assert len(stand) == len(found)
    assert found == pairs - {("a#b", "a")}


def _all(aws: Messaging) -> list[dict[str, Any]]:
    scheduler = aws.clients.scheduler
    pages = scheduler.get_paginator("list_schedules").paginate(GroupName=GROUP)
    names = [item["Name"] for page in pages for item in page["Schedules"]]
    return [dict(scheduler.get_schedule(GroupName=GROUP, Name=name)) for name in names]


# Names, expressions, inputs


@given(TEXT, TEXT, st.integers(min_value=0))
def test_a_name_is_one_that_scheduler_takes(run_id: str, wait_id: str, arm: int) -> None:
    name = schedule_name(run_id, wait_id, arm)
    assert NAME.fullmatch(name)
    assert name == schedule_name(run_id, wait_id, arm)


@given(st.lists(st.tuples(TEXT, TEXT, st.integers(0, 3)), unique=True, max_size=20))
@example([("run", "wait:1", 1), ("run", "wait:", 11)])
@example([("x" * 33 + "a", "b", 1), ("x" * 33, "ab", 1)])
def test_names_of_different_timers_differ(timers: list[tuple[str, str, int]]) -> None:
    assert len({schedule_name(*timer) for timer in timers}) == len(timers)


def test_schedules_of_a_run_are_found_by_its_id() -> None:
    run_id = "0123456789abcdef" * 2
    assert schedule_name(run_id, "wait", 1).startswith(f"{run_id}.")


@given(st.integers(min_value=-62_135_596_800_000, max_value=LAST))
def test_an_expression_is_valid_and_never_early(time: int) -> None:
    assert 0 <= at_ms(at_expression(time)) - time < 1000


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "at(1970-01-01T00:00:00)"),
        (1, "at(1970-01-01T00:00:01)"),
        (951_782_399_001, "at(2000-02-29T00:00:00)"),
        (START, "at(2023-11-14T22:13:20)"),
        (LAST, "at(9999-12-31T23:59:59)"),
    ],
)
def test_expressions_as_the_calendar_has_them(time: int, text: str) -> None:
    assert at_expression(time) == text


@pytest.mark.parametrize("time", [LAST + 1, 10**20, -(10**14), -(10**30)])
def test_a_time_without_an_expression_is_refused(time: int) -> None:
    with pytest.raises(ValueError, match="year"):
        at_expression(time)


@given(TEXT, TEXT)
def test_scheduler_finds_nothing_to_replace_in_an_input(run_id: str, key: str) -> None:
    message = TimerDue(
        run_id=run_id, wait_id=f"{key}<aws.scheduler.execution-id>", arm=1, due=START
    )
    text = schedule_of(message, TARGET)["Target"].get("Input", "")
    assert "<" not in text
    assert load_message(text) == message
    assert json.loads(text)["type"] == "timer_due"
    assert len(text.encode()) <= BODY_LIMIT


QUEUE = TARGET.queue_arn
DEAD = TARGET.dead_letter_arn


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("group", ""),
        ("group", "a/b"),
        ("group", "x" * 65),
        ("group", "a\n"),
        ("queue_arn", ""),
        ("queue_arn", QUEUE.removesuffix(".fifo")),
        ("queue_arn", "https://sqs.eu-central-1.amazonaws.com/123456789012/run.fifo"),
        ("role_arn", "stepwell-schedules"),
        ("role_arn", QUEUE),
        ("dead_letter_arn", ""),
        ("dead_letter_arn", QUEUE),
    ],
)
def test_a_target_that_aws_would_refuse_is_refused(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"take|FIFO"):
        replace(TARGET, **{field: value})


def test_targets_of_other_partitions_are_taken() -> None:
    assert ScheduleTarget(
        group="default",
        queue_arn=QUEUE.replace("arn:aws:", "arn:aws-us-gov:"),
        role_arn=TARGET.role_arn.replace("arn:aws:", "arn:aws-cn:"),
        dead_letter_arn=DEAD,
    )


# Faults


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "lost", "timeout"])
@pytest.mark.parametrize("operation", ["CreateSchedule", "DeleteSchedule"])
def test_a_fault_in_passing_is_passed_over(aws: Messaging, operation: str, kind: str) -> None:
    left = aws.fault(operation, *[kind] * (ATTEMPTS - 1))
    start(aws, HOUR)
    assert len(aws.schedules()) == 1
    run(aws.timers.cancel("run", "wait", 1))
    assert left == []
    assert aws.schedules() == []


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "lost", "timeout"])
def test_attempts_are_bounded_and_the_turn_may_try_again(aws: Messaging, kind: str) -> None:
    seen = aws.count("CreateSchedule")
    aws.fault("CreateSchedule", *[kind] * ATTEMPTS)
    with pytest.raises(TransientError):
        start(aws, HOUR)
    assert len(seen) == ATTEMPTS
    assert len(aws.schedules()) == (1 if kind in ("lost", "timeout") else 0)
    start(aws, HOUR)
    assert len(aws.schedules()) == 1


@pytest.mark.parametrize("after", [0, 1000])
def test_a_message_whose_sending_fails_is_transient(aws: Messaging, after: int) -> None:
    aws.fault("SendMessage", *["throttle"] * ATTEMPTS)
    with pytest.raises(TransientError):
        start(aws, after)


def test_a_full_account_is_transient(aws: Messaging) -> None:
    aws.fault("CreateSchedule", "quota")
    with pytest.raises(TransientError):
        start(aws, HOUR)


def test_a_schedule_that_is_gone_when_looked_at_is_created(aws: Messaging) -> None:
    aws.fault("CreateSchedule", "conflict")  # and yet there is none
    start(aws, HOUR)
    assert len(aws.schedules()) == 1


def test_a_schedule_that_somebody_changes_all_the_time_is_transient(aws: Messaging) -> None:
    start(aws, HOUR)
    aws.fault("UpdateSchedule", *["conflict"] * ROUNDS)
    with pytest.raises(TransientError, match="somebody else"):
        start(aws, 2 * HOUR)


def test_a_cancel_that_meets_a_change_lets_the_timer_fire(aws: Messaging) -> None:
    start(aws, HOUR)
    aws.fault("DeleteSchedule", "conflict")
    run(aws.timers.cancel("run", "wait", 1))
    assert len(aws.schedules()) == 1


def test_a_missing_permission_is_no_fault_in_passing(aws: Messaging) -> None:
    for operation in ("CreateSchedule", "DeleteSchedule"):
        aws.fault(operation, "denied")
    with pytest.raises(ClientError, match="AccessDenied"):
        start(aws, HOUR)
    with pytest.raises(ClientError, match="AccessDenied"):
        run(aws.timers.cancel("run", "wait", 1))


# The clock and the ids


def test_the_clock_sleeps_until_a_time_and_not_beyond_one_that_passed() -> None:
    clock = SystemClock()

    async def scenario() -> int:
        await clock.sleep_until(clock.now() - 1000)
        wanted = clock.now() + 20
        await asyncio.wait_for(clock.sleep_until(wanted), 5)
        return clock.now() - wanted

    assert run(scenario()) >= 0


def test_ids_are_128_bits_and_differ() -> None:
    ids = [SystemIds().new_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(re.fullmatch(r"[0-9a-f]{32}", id) for id in ids)
