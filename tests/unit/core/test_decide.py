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
    lost_cancel,
    reference_time,
)
from stepwell.core.messages import (
    CancelRun,
    ChildNoted,
    Continue,
    HookDecided,
    Message,
    StartRun,
    StepReported,
    TimerDue,
    Wake,
    dump_message,
)
from stepwell.core.records import (
    Attention,
    Decision,
    HookRow,
    HookStatus,
    RunHeader,
    RunStatus,
    StepRow,
)
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


DISPATCHED = e.StepStarted(at=110, step="s:1", name="s", digest="d", attempt=1, input="{}")
COMPLETED = e.StepCompleted(
    at=210, step="s:1", name="s", digest="d", attempt=1, result="1", output=0
)
IN_STEP = e.HookOpened(at=200, hook="s:1>ask:1", name="ask", step="s:1")
SUSPENDED = e.StepSuspended(
    at=210, step="s:1", name="s", digest="d", attempt=1, entry=1, output=0, save_id=None
)
ANSWERED_IN_STEP = replace(ANSWERED, hook_id="s:1>ask:1", step="s:1")


def came_of(*events: e.Event, order: int = 2, **changes: Any) -> StepRow:
    row = StepRow(run_id="r", step="s:1", revision=2, order=order, claim="m#1#n")
    return replace(row, outcome=e.dump_events(events).decode(), **changes)


def test_what_came_of_an_attempt_is_recorded_whatever_woke_the_run() -> None:
    row = came_of(COMPLETED)
    for message in (WAKE, DUE, StepReported(run_id="r", step="s:1", order=2, claim="m#1#n")):
        assert decide(state(DISPATCHED), [], message, 260, [row]) == [replace(COMPLETED, at=260)]


def test_an_attempt_that_is_not_over_comes_to_nothing_yet() -> None:
    row = StepRow(run_id="r", step="s:1", revision=1, order=2, claim="m#1#n", until=500)
    assert decide(state(DISPATCHED), [], WAKE, 260, [row]) == []


def test_what_came_of_an_attempt_is_recorded_once() -> None:
    assert decide(state(DISPATCHED, COMPLETED), [], WAKE, 260, [came_of(COMPLETED)]) == []


@pytest.mark.parametrize("order", [1, 3])
def test_what_came_of_another_attempt_is_not_recorded(order: int) -> None:
    assert decide(state(DISPATCHED), [], WAKE, 260, [came_of(COMPLETED, order=order)]) == []


def test_what_came_of_a_step_that_was_cancelled_is_not_recorded() -> None:
    cancelled = e.StepCancelled(at=150, step="s:1", name="s", digest="d")
    assert decide(state(DISPATCHED, cancelled), [], WAKE, 260, [came_of(COMPLETED)]) == []


def test_the_events_of_an_outcome_stay_in_their_order() -> None:
    events = decide(state(DISPATCHED), [], WAKE, 260, [came_of(IN_STEP, SUSPENDED)])
    assert events == [replace(IN_STEP, at=260), replace(SUSPENDED, at=260)]


@pytest.mark.parametrize("decided_at", [100, 200, 205, 210, 250])
def test_an_answer_and_the_outcome_it_overtook_are_both_recorded_once(decided_at: int) -> None:
    """Whatever the clocks of the answering process and of the step's say."""
    rows = [replace(ANSWERED_IN_STEP, decided_at=decided_at)]
    told = replace(RECEIVED, at=206, hook="s:1>ask:1", step="s:1")
    for outcome in (came_of(IN_STEP, SUSPENDED), came_of(told, SUSPENDED)):
        events = decide(state(DISPATCHED), rows, WAKE, 260, [outcome])
        kinds = [event.type for event in events]
        assert kinds.count("HookReceived") == kinds.count("StepSuspended") == 1
        assert fold([STARTED, DISPATCHED, *events]).steps["s:1"].woken


def test_outcomes_of_a_slow_clock_do_not_make_time_run_backwards() -> None:
    late = replace(COMPLETED, at=90)
    assert decide(state(DISPATCHED), [], WAKE, 80, [came_of(late)]) == [replace(late, at=110)]


def _flagged(note: Attention | None, *, cancel_requested: bool = True) -> RunHeader:
    return RunHeader(
        run_id="r",
        workflow="w",
        version="1",
        status=RunStatus.SUSPENDED,
        input="{}",
        input_digest="d",
        seed="s",
        created_at=1,
        updated_at=1,
        attention=note,
        cancel_requested=cancel_requested,
    )


def _stuck(message: str | None = None) -> Attention:
    return Attention(kind="STUCK", reason="r", since=1, message=message)


def test_a_stuck_run_that_was_to_be_cancelled_is_cancelled_without_the_message() -> None:
    lost = lost_cancel(RunState(), _flagged(_stuck()), 5)
    assert lost == e.CancelRequested(at=5, request_id="lost", reason=None, actor=None)
    assert lost_cancel(RunState(), _flagged(_stuck("no json")), 5) == lost


def test_a_cancel_on_the_mark_says_who_asked_and_why() -> None:
    message = CancelRun(run_id="r", request_id="q", reason="enough", actor="ann")
    lost = lost_cancel(RunState(), _flagged(_stuck(dump_message(message))), 5)
    assert lost == e.CancelRequested(at=5, request_id="q", reason="enough", actor="ann")


@pytest.mark.parametrize(
    ("note", "flag"),
    [(None, True), (Attention(kind="BLOCKED", reason="r", since=1), True), (_stuck(), False)],
)
def test_otherwise_a_cancel_comes_by_its_message(note: Attention | None, flag: bool) -> None:
    assert lost_cancel(RunState(), _flagged(note, cancel_requested=flag), 5) is None


def test_a_cancel_is_recorded_once() -> None:
    state = RunState()
    state.cancel = e.CancelRequested(at=1, request_id="q", reason=None, actor=None)
    assert lost_cancel(state, _flagged(_stuck()), 5) is None


def test_ends_of_children_are_recorded_in_the_order_in_which_they_came() -> None:
    ends = [
        e.ChildEnded(at=at, child=f"c:{at}", name="c", run_id=f"r{at}", status="completed")
        for at in (240, 210)
    ]
    decided = decide(state(OPENED), [ANSWERED], WAKE, 260, children=ends)
    told = [getattr(each, "child", each.type) for each in decided]
    assert sorted(told) == ["HookReceived", "c:210", "c:240"]
    assert told.index("c:210") < told.index("c:240")
    assert {each.at for each in decided} == {260}


CHILD = e.ChildStarted(
    at=120, child="c:1", name="c", run_id="rc", digest="d", version="1", input="{}"
)
NOTED = ChildNoted(run_id="r", child="c:1", child_run="rc", order=7, reason="a person")


def test_what_a_child_waits_for_is_recorded() -> None:
    [waits] = decide(state(CHILD), [], NOTED, 260)
    assert waits == e.ChildWaits(at=260, child="c:1", name="c", order=7, reason="a person")


def test_what_a_child_waited_for_is_old_once_its_end_is_known() -> None:
    end = e.ChildEnded(at=250, child="c:1", name="c", run_id="rc", status="completed")
    decided = decide(state(CHILD), [], NOTED, 260, children=[end])
    assert [each.type for each in decided] == ["ChildEnded"]
    fold([STARTED, CHILD, *decided])
