"""The sweep: no run is left behind by a message that got lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from stepwell import RetryPolicy, hook, sleep, step, workflow
from stepwell.core.messages import (
    StepAttempt,
)
from stepwell.core.records import UNHEARD, Attention, RunStatus, StepRow
from stepwell.engine.headers import header_of
from stepwell.engine.sweep import GRACE, Found
from tests.integration.sweep.given import MINUTE, START, Given


def test_a_run_whose_timer_got_lost_is_woken_and_goes_on(given: Given, nap: Any) -> None:
    run_id = given.start(nap)
    given.lose("timers")
    given.clock.advance(10 * MINUTE + GRACE)
    assert given.sweep() == Found(oldest=0, woken=0)
    given.clock.advance(1)
    assert given.sweep() == Found(oldest=GRACE + 1, woken=1)
    given.work()
    assert given.header(run_id).result == '"rested"'
    assert given.sweep() == Found()


def test_a_retry_whose_timer_got_lost_is_made(given: Given) -> None:
    failures = [ValueError("not yet")]

    @step(retry=RetryPolicy(max_attempts=2, initial="10m", max_delay="1h", jitter="none"))
    async def flaky() -> str:
        if failures:
            raise failures.pop()
        return "done"

    @workflow
    async def tries() -> str:
        return await flaky()

    run_id = given.start(tries)
    given.lose("timers")
    given.clock.advance(13 * MINUTE)
    assert given.sweep().woken == 1
    given.work()
    assert given.header(run_id).result == '"done"'


def test_a_hook_whose_deadline_got_lost_ends_its_wait(given: Given, ask: Any) -> None:
    run_id = given.start(ask)
    given.lose("timers")
    given.clock.advance(60 * MINUTE + GRACE)
    assert given.sweep().woken == 0
    given.clock.advance(MINUTE)
    assert given.sweep() == Found(oldest=GRACE + MINUTE, woken=1)
    given.work()
    assert given.header(run_id).status is RunStatus.COMPLETED


def test_an_attempt_that_got_lost_is_dispatched_again(given: Given, far: Any) -> None:
    run_id = given.start(far)
    given.lose("step_messages")
    given.clock.advance(UNHEARD + GRACE)
    assert given.sweep().woken == 0
    given.clock.advance(1)
    assert given.sweep().woken == 1
    given.work()
    assert given.header(run_id).result == "7"


def test_the_report_of_an_attempt_that_got_lost_is_found_in_its_row(given: Given, far: Any) -> None:
    run_id = given.start(far)
    assert given.run(given.engine.take_turn())  # the attempt
    given.lose("messages")
    given.clock.advance(UNHEARD + GRACE + 1)
    assert given.sweep().woken == 1
    given.work()
    assert given.header(run_id).result == "7"


def test_an_attempt_whose_process_and_message_got_lost_is_followed_by_another(
    given: Given, far: Any
) -> None:
    run_id = given.start(far)
    (row,) = given.run(given.local.step_queue.attempts_of(run_id))
    claimed = replace(_unclaimed(row), claim="m#1#n", until=given.clock.now() + MINUTE)
    assert given.run(given.local.store.put_step(claimed)) == claimed
    given.lose("step_messages")
    given.clock.advance(UNHEARD + GRACE + 1)
    assert given.sweep().woken == 1
    given.work()
    given.clock.advance(MINUTE)
    given.work()
    assert given.header(run_id).result == "7"


def test_a_run_whose_next_turn_got_lost_is_woken(given: Given) -> None:
    run_id = "run"
    given.run(given.local.store.put_header(header_of(START)))
    handed_over = replace(
        given.header(run_id), status=RunStatus.SUSPENDED, updated_at=given.clock.now()
    )
    assert given.run(given.local.store.update_header(handed_over))
    given.clock.advance(UNHEARD + GRACE)
    assert given.sweep().woken == 0
    given.clock.advance(1)
    assert given.sweep().woken == 1


def test_a_run_is_woken_once_for_all_that_is_overdue(given: Given) -> None:
    @workflow
    async def two() -> None:
        await asyncio.gather(
            hook("one", timeout="10m", on_timeout="return"),
            hook("two", timeout="11m", on_timeout="return"),
            sleep("12m"),
        )

    given.start(two)
    given.lose("timers")
    given.clock.advance(20 * MINUTE)
    assert given.sweep() == Found(oldest=10 * MINUTE, woken=1)
    assert given.run(given.local.queue.depth()) == 1


@pytest.mark.parametrize("kind", ["ask", "nap", "far"])
def test_what_is_stuck_is_not_woken(
    given: Given, request: pytest.FixtureRequest, kind: str
) -> None:
    run_id = given.start(request.getfixturevalue(kind))
    given.mark(run_id, Attention(kind="STUCK", reason="poison", since=1))
    given.clock.advance(UNHEARD + 5 * MINUTE)
    assert given.sweep() == Found()


@pytest.mark.parametrize(("kind", "after"), [("ask", 60 * MINUTE), ("nap", 10 * MINUTE)])
def test_the_longer_a_wait_is_overdue_the_more_seldom_its_run_is_woken(
    given: Given, request: pytest.FixtureRequest, kind: str, after: int
) -> None:
    given.start(request.getfixturevalue(kind))
    given.clock.advance(after + GRACE)
    woken = []
    for minute in range(3, 200):
        given.clock.advance(MINUTE)
        found = given.sweep()
        assert found.oldest == minute * MINUTE
        woken += [minute] * found.woken
    assert woken[:9] == [3, 4, 5, 6, 7, 8, 10, 12, 14]
    assert woken[9:] == [16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192]


def test_a_run_that_waits_for_an_attempt_is_woken_seldom(given: Given, far: Any) -> None:
    given.start(far)
    given.clock.advance(UNHEARD + GRACE + 30_000)
    woken = []
    for minute in range(2, 200):
        woken += [minute] * given.sweep().woken
        given.clock.advance(MINUTE)
    assert woken == [2, 3, 66, 67, 130, 131, 194, 195]


def test_an_overdue_timer_is_seen_to_also_in_a_run_that_waits_for_an_attempt(given: Given) -> None:
    @step(dispatch="worker")
    async def slow() -> None:
        pass

    @workflow
    async def both() -> None:
        await asyncio.gather(slow(), sleep("2h"))

    given.start(both)
    given.clock.advance(2 * UNHEARD + 6 * MINUTE)
    assert given.sweep() == Found(oldest=UNHEARD + 6 * MINUTE, woken=1)


@pytest.mark.parametrize("kind", ["ask", "nap"])
def test_without_time_the_sweep_is_left_to_the_next_one(
    given: Given, request: pytest.FixtureRequest, kind: str
) -> None:
    given.start(request.getfixturevalue(kind))
    given.clock.advance(UNHEARD + 5 * MINUTE)
    assert given.sweep(left=9_999) == Found()
    assert given.sweep(left=10_000).oldest > 0


def test_a_header_that_cannot_be_read_keeps_nobody_else_from_being_woken(
    given: Given, ask: Any, nap: Any, caplog: pytest.LogCaptureFixture
) -> None:
    change = "UPDATE runs SET body = json_set(body, '$.status', ?) WHERE run_id = ?"
    spoilt = [given.start(each) for each in (ask, nap)]
    for run_id in spoilt:
        given.local.database.change(change, "of-a-later-version", run_id)
    others = [given.start(each) for each in (ask, nap)]
    given.clock.advance(64 * MINUTE)
    given.lose("timers")
    assert given.sweep() == Found(oldest=54 * MINUTE, woken=1)
    assert "of-a-later-version" not in caplog.text
    for run_id in spoilt:
        given.local.database.change(change, "SUSPENDED", run_id)
    for run_id in (*spoilt, *others):
        given.wake(run_id)
        assert given.header(run_id).status is RunStatus.COMPLETED


def _unclaimed(attempt: StepAttempt) -> StepRow:
    return StepRow(run_id=attempt.run_id, step=attempt.step, revision=1, order=attempt.order)
