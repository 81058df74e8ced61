"""Given state, rows and message, when a turn begins, then these events."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from stepwell.core import events as e
from stepwell.core.decide import (
    answer,
    decide,
    decided_event,
    due_decisions,
    expiry,
    first_event,
    reference_time,
)
from stepwell.core.messages import (
    CancelRun,
    Continue,
    HookDecided,
    Message,
    StartRun,
    TimerDue,
    Wake,
)
from stepwell.core.records import Decision, HookRow, HookStatus, RunHeader, RunStatus
from stepwell.core.state import RunState, fold

STARTED = e.RunStarted(at=100, workflow="w", version="1", input="{}", seed="s")
OPENED = e.HookOpened(at=110, hook="ask:1", name="ask", expires_at=500)
TIMER = e.TimerStarted(at=120, timer="sleep:1", name="sleep", due=300)
PENDING = HookRow(
    run_id="r", hook_id="ask:1", name="ask", step=None, key_id="k", created_at=105, expires_at=500
)
ANSWERED = replace(
    PENDING, status=HookStatus.RECEIVED, decision_id="d1", payload='"yes"', decided_at=250,
    actor="eve",
)  # fmt: skip
EXPIRED = replace(PENDING, status=HookStatus.EXPIRED, decision_id="deadline", decided_at=500)
CLOSED = replace(PENDING, status=HookStatus.CLOSED, decision_id="closed", decided_at=250)
WAKE = Wake(run_id="r", cause="c")
ANSWER = HookDecided(
    run_id="r", hook_id="ask:1", decision_id="d1", payload='"yes"', decided_at=250, actor="eve"
)
CANCEL = CancelRun(run_id="r", request_id="q1", reason="no", actor="eve")
DUE = TimerDue(run_id="r", wait_id="sleep:1", arm=0, due=300)
RECEIVED = e.HookReceived(
    at=260, hook="ask:1", name="ask", decision_id="d1", payload='"yes"', actor="eve"
)


def state(*events: e.Event) -> RunState:
    return fold([STARTED, *events])


@pytest.mark.parametrize("message", [WAKE, ANSWER, DUE, Continue(run_id="r", cause="c")])
def test_whatever_wakes_a_run_the_same_is_recorded(message: Message) -> None:
    assert decide(state(OPENED), [ANSWERED], message, 260) == [RECEIVED]


def test_what_is_recorded_is_not_recorded_again() -> None:
    assert decide(state(OPENED, RECEIVED), [ANSWERED], ANSWER, 270) == []


def test_nothing_decided_means_nothing_to_record() -> None:
    assert decide(state(OPENED, TIMER), [PENDING], WAKE, 299) == []


def test_a_decided_row_that_was_never_noted_as_opened_is_recorded() -> None:
    assert decide(state(), [ANSWERED], WAKE, 260) == [RECEIVED]


@pytest.mark.parametrize(
    ("row", "event"),
    [
        (EXPIRED, e.HookExpired(at=510, hook="ask:1", name="ask")),
        (CLOSED, e.HookClosed(at=510, hook="ask:1", name="ask")),
        (replace(ANSWERED, step="a:1"), replace(RECEIVED, at=510, step="a:1")),
        (replace(EXPIRED, step="a:1"), e.HookExpired(at=510, hook="ask:1", name="ask", step="a:1")),
        (PENDING, None),
    ],
)
def test_the_event_of_a_row(row: HookRow, event: e.Event | None) -> None:
    assert decided_event(state(OPENED), row, 510) == event


def test_a_timer_fires_when_it_is_due_and_not_before() -> None:
    assert decide(state(TIMER), [], WAKE, 299) == []
    fired = e.TimerFired(at=300, timer="sleep:1", name="sleep", due=300)
    assert decide(state(TIMER), [], WAKE, 300) == [fired]
    assert decide(state(TIMER, fired), [], WAKE, 400) == []
    cancelled = e.TimerCancelled(at=130, timer="sleep:1", name="sleep")
    assert decide(state(TIMER, cancelled), [], WAKE, 400) == []


def test_a_timer_message_is_due_by_its_own_time() -> None:
    assert reference_time(DUE, 200) == 300
    assert reference_time(DUE, 310) == 310
    assert reference_time(WAKE, 200) == 200


def test_time_does_not_run_backwards_for_a_slow_clock() -> None:
    [event] = decide(state(OPENED, TIMER), [ANSWERED], WAKE, 90)
    assert event.at == 120


def test_a_deadline_that_a_faster_clock_decided_is_recorded_no_earlier_than_it_was_due() -> None:
    other = replace(ANSWERED, hook_id="more:1", name="more", decided_at=600)
    events = decide(state(OPENED), [EXPIRED, other], CANCEL, 480)
    assert [event.type for event in events] == ["HookExpired", "HookReceived", "CancelRequested"]
    assert [event.at for event in events] == [500, 500, 500]


def test_the_earliest_decision_comes_first_whatever_the_order_of_rows() -> None:
    rows = [
        replace(ANSWERED, hook_id="b:1", decided_at=290),
        replace(ANSWERED, hook_id="c:1", decided_at=310),
        replace(ANSWERED, hook_id="a:1", decided_at=290),
    ]
    for order in permutations(rows):
        events: list[Any] = decide(state(TIMER), order, WAKE, 400)
        found = [getattr(event, "hook", None) or event.timer for event in events]
        assert found == ["a:1", "b:1", "sleep:1", "c:1"]


def test_a_cancel_comes_last_and_once() -> None:
    asked = e.CancelRequested(at=260, request_id="q1", reason="no", actor="eve")
    assert decide(state(OPENED), [ANSWERED], CANCEL, 260) == [RECEIVED, asked]
    assert decide(state(asked), [], CANCEL, 270) == []
    other = CancelRun(run_id="r", request_id="q2")
    assert decide(state(asked), [], other, 270) == []


def test_an_answer_decides_its_own_pending_row_only() -> None:
    other = replace(PENDING, hook_id="other:1", expires_at=None)
    decided = due_decisions([PENDING, other], ANSWER, 260)
    assert decided == {
        "ask:1": Decision(
            status=HookStatus.RECEIVED,
            decision_id="d1",
            decided_at=250,
            payload='"yes"',
            actor="eve",
        )
    }
    assert decided["ask:1"] == answer(ANSWER)
    assert due_decisions([ANSWERED, EXPIRED, CLOSED], ANSWER, 9_999) == {}


def test_a_passed_deadline_decides_a_pending_row() -> None:
    expected = Decision(status=HookStatus.EXPIRED, decision_id="deadline", decided_at=500)
    assert due_decisions([PENDING], WAKE, 499) == {}
    assert due_decisions([PENDING], WAKE, 500) == {"ask:1": expected}
    assert expiry(PENDING) == expected


def test_a_deadline_that_only_informs_decides_nothing() -> None:
    row = replace(PENDING, expires_at=None, due_at=400)
    assert due_decisions([row], WAKE, 9_999) == {}


def test_an_answer_on_its_way_goes_before_the_deadline() -> None:
    decided = due_decisions([PENDING], ANSWER, 9_999)
    assert decided["ask:1"].status is HookStatus.RECEIVED


def test_the_first_event_is_a_function_of_the_header() -> None:
    header = RunHeader(
        run_id="r", workflow="w", version="1", status=RunStatus.PENDING, input="{}",
        input_digest="i", seed="s", created_at=100, updated_at=999,
    )  # fmt: skip
    assert first_event(header) == STARTED
    assert first_event(replace(header, updated_at=5, tags=("t",), cancel_requested=True)) == STARTED


def test_a_start_message_records_nothing_by_itself() -> None:
    message = StartRun(
        run_id="r", workflow="w", version="1", input="{}", input_digest="i", seed="s", created_at=1
    )
    assert decide(state(), [], message, 200) == []
