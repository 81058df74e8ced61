"""The fold against a second, plain reading of the same log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core import events as e
from stepwell.core.lifecycle import HOOK, MAP, STEP, TIMER, CorruptHistory
from stepwell.core.parts import Alarm
from stepwell.core.records import Wait
from stepwell.core.state import RunState, fold
from stepwell.errors import Failure
from stepwell.testing.laws import check_folds

STARTED = e.RunStarted(at=5, workflow="w", version="1", input="{}", seed="s")
FAILURE = Failure(type="OSError", message="down")


def step_event(kind: str, step: str, at: int, n: int) -> e.Event:
    common: dict[str, Any] = {"at": at, "step": step, "name": step[0], "digest": "d"}
    if kind == "StepCancelled":
        return e.StepCancelled(**common)
    common["attempt"] = n
    if kind == "StepStarted":
        return e.StepStarted(**common)
    if kind == "StepCompleted":
        return e.StepCompleted(**common, result=str(n), output=n)
    if kind == "StepFailed":
        return e.StepFailed(**common, error=FAILURE)
    if kind == "StepRetryScheduled":
        return e.StepRetryScheduled(**common, error=FAILURE, due=at + 10)
    return e.StepSuspended(**common, entry=n, output=n, save_id=f"save{n}" if n % 2 else None)


def hook_event(kind: str, hook: str, at: int, n: int) -> e.Event:
    step = hook.partition(">")[0] if ">" in hook else None
    common: dict[str, Any] = {"at": at, "hook": hook, "name": "h"}
    if kind == "HookOpened":
        expires = at + 50 if n % 3 == 1 else None
        due = at + 70 if n % 3 == 2 else None
        return e.HookOpened(**common, step=step, expires_at=expires, due_at=due)
    if kind == "HookNotifyFailed":
        return e.HookNotifyFailed(**common, attempt=n, error=FAILURE, due=at + 20)
    if kind == "HookFailed":
        return e.HookFailed(**common, error=FAILURE)
    if kind == "HookReceived":
        return e.HookReceived(**common, step=step, decision_id=str(n), payload=str(n))
    return {"HookExpired": e.HookExpired, "HookClosed": e.HookClosed}[kind](**common, step=step)


def timer_event(kind: str, timer: str, at: int, n: int) -> e.Event:
    common: dict[str, Any] = {"at": at, "timer": timer, "name": "sleep"}
    if kind == "TimerCancelled":
        return e.TimerCancelled(**common)
    return {"TimerStarted": e.TimerStarted, "TimerFired": e.TimerFired}[kind](**common, due=at)


def map_event(kind: str, identity: str, at: int, n: int) -> e.Event:
    common: dict[str, Any] = {"at": at, "map": identity, "name": "m"}
    return e.MapEnded(**common) if kind == "MapEnded" else e.MapStarted(**common, total=n)


THINGS = [
    ("map", MAP, "m*:1"),
    *(("step", STEP, f"{name}:1") for name in "ab"),
    *(("hook", HOOK, name) for name in ("h:1", "h@key", "a:1>h:1", "b:1>h:1")),
    *(("timer", TIMER, f"sleep:{n}") for n in (1, 2)),
]
MAKE = {"map": map_event, "step": step_event, "hook": hook_event, "timer": timer_event}


@st.composite
def logs(draw: st.DrawFn) -> list[e.Event]:
    """A random log that the tables allow."""
    states: dict[str, str | None] = {}
    log: list[e.Event] = [STARTED]
    at = STARTED.at
    for _ in range(draw(st.integers(0, 25))):
        kind, table, identity = draw(st.sampled_from(THINGS))
        legal = sorted(table[states.get(identity)])
        if kind == "hook" and ">" in identity:
            # These two are only written for hooks of the workflow itself.
            legal = [each for each in legal if each not in ("HookNotifyFailed", "HookFailed")]
        if not legal:
            continue
        event = draw(st.sampled_from(legal))
        at += draw(st.integers(0, 3))
        states[identity] = table[states.get(identity)][event]
        log.append(MAKE[kind](event, identity, at, draw(st.integers(1, 6))))
    if draw(st.booleans()):
        log.insert(draw(st.integers(1, len(log))), e.CancelRequested(at=at, request_id="r"))
        log = [log[0], *sorted(log[1:], key=lambda event: event.at)]
    return log


def about(log: list[e.Event], field: str, identity: str) -> list[Any]:
    return [event for event in log if getattr(event, field, None) == identity]


@given(logs())
def test_a_fold_does_not_depend_on_where_it_is_cut(log: list[e.Event]) -> None:
    check_folds(log)
    state = fold(log)
    assert state.last == len(log)
    assert state.at == max(event.at for event in log)
    assert not state.terminal


@given(logs())
def test_steps_say_what_their_events_said(log: list[e.Event]) -> None:
    state = fold(log)
    for identity in ("a:1", "b:1"):
        own = [each for each in about(log, "step", identity) if each.type.startswith("Step")]
        assert (identity in state.steps) == bool(own)
        if not own:
            continue
        step, last = state.steps[identity], own[-1]
        assert step.since == last.at
        entries = [each.entry for each in own if each.type == "StepSuspended"]
        assert step.entries == (entries[-1] if entries else 0)
        assert step.due == (last.due if last.type == "StepRetryScheduled" else None)
        counted = [each for each in own if each.type != "StepCancelled"]
        spent = 0 if not counted else counted[-1].attempt - (counted[-1].type == "StepSuspended")
        assert step.attempts == spent
        saves = {
            each.save_id: each.output
            for each in own
            if each.type == "StepSuspended" and each.save_id
        }
        assert step.saves == saves


@given(logs())
def test_a_suspended_step_is_woken_by_the_decision_of_one_of_its_hooks(
    log: list[e.Event],
) -> None:
    state = fold(log)
    for identity in ("a:1", "b:1"):
        if identity not in state.steps or state.steps[identity].status != "suspended":
            continue
        behind = log[max(n for n, each in enumerate(log) if _is(each, "StepSuspended", identity)) :]
        woken = any(
            each.type in ("HookReceived", "HookExpired", "HookClosed") and each.step == identity
            for each in behind
        )
        assert state.steps[identity].woken == woken


def _is(event: e.Event, kind: str, step: str) -> bool:
    return event.type == kind and getattr(event, "step", None) == step


@given(logs())
def test_what_a_run_waits_for_is_what_is_still_open(log: list[e.Event]) -> None:
    waits: list[Wait] = []
    alarms: set[Alarm] = set()
    for _, _, identity in THINGS:
        if identity == "m*:1":
            own = about(log, "map", identity)
            if own and own[-1].type == "MapStarted":
                waits.append(
                    Wait(
                        kind="map",
                        id=identity,
                        name="m",
                        since=own[-1].at,
                        done=0,
                        total=own[-1].total,
                    )
                )
        elif identity.startswith("sleep"):
            own = about(log, "timer", identity)
            if own and own[-1].type == "TimerStarted":
                due = own[-1].due
                waits.append(
                    Wait(kind="timer", id=identity, name="sleep", since=own[-1].at, until=due)
                )
                alarms.add(Alarm(due, identity, 0))
        elif ">" in identity or identity.startswith("h"):
            own = about(log, "hook", identity)
            if own and own[-1].type in ("HookOpened", "HookNotifyFailed"):
                last = own[-1]
                expires = getattr(last, "expires_at", None)
                tries = [each.attempt for each in own if each.type == "HookNotifyFailed"]
                told = last.type == "HookOpened"
                again = expires if told else last.due
                until = again or getattr(last, "due_at", None)
                kind = "hook" if told else "retry"
                waits.append(Wait(kind=kind, id=identity, name="h", since=own[0].at, until=until))
                if again is not None:
                    alarms.add(Alarm(again, identity, 0 if told else tries[-1]))
        else:
            own = [each for each in about(log, "step", identity) if each.type.startswith("Step")]
            if own and own[-1].type == "StepRetryScheduled":
                last = own[-1]
                waits.append(
                    Wait(kind="retry", id=identity, name=last.name, since=last.at, until=last.due)
                )
                alarms.add(Alarm(last.due, identity, last.attempt))
    state = fold(log)
    assert sorted(state.waits(), key=lambda wait: wait.id) == sorted(waits, key=lambda w: w.id)
    assert set(state.alarms()) == alarms
    assert state.next_alarm() == min(alarms, default=None)
    assert [wait.since for wait in state.waits()] == sorted(wait.since for wait in waits)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (e.RunCompleted(at=9, result="1"), "completed"),
        (e.RunFailed(at=9, error=FAILURE), "failed"),
        (e.RunCancelled(at=9), "cancelled"),
    ],
)
def test_nothing_follows_the_end(end: e.Event, status: str) -> None:
    state = fold([STARTED, end])
    assert (state.status, state.terminal, state.waits()) == (status, True, ())
    for event in (STARTED, end, step_event("StepCompleted", "a:1", 9, 1)):
        with pytest.raises(CorruptHistory):
            state.apply(event)
    assert state.last == 2


def test_nothing_comes_before_the_beginning() -> None:
    for event in (step_event("StepCompleted", "a:1", 9, 1), e.RunCompleted(at=9, result="1")):
        with pytest.raises(CorruptHistory):
            RunState().apply(event)
    with pytest.raises(CorruptHistory):
        fold([STARTED, STARTED])


def test_the_first_request_to_cancel_stands() -> None:
    first = e.CancelRequested(at=6, request_id="one", reason="a")
    state = fold([STARTED, first, e.CancelRequested(at=7, request_id="two", reason="b")])
    assert state.cancel == first


def test_a_late_outcome_of_a_cancelled_step_is_recorded_and_changes_nothing() -> None:
    cancelled = step_event("StepCancelled", "a:1", 6, 1)
    state = fold([STARTED, cancelled, step_event("StepCompleted", "a:1", 7, 1)])
    assert state.steps["a:1"].status == "cancelled"


def dispatched(at: int, attempt: int = 1) -> e.StepStarted:
    return e.StepStarted(at=at, step="a:1", name="a", digest="d", attempt=attempt, input='{"n":1}')


def came_to(kind: str, at: int) -> e.Event:
    return step_event(kind, "a:1", at, 1)


def test_an_attempt_with_input_is_under_way_under_the_number_of_its_event() -> None:
    step = fold([STARTED, dispatched(10)]).steps["a:1"]
    assert (step.order, step.input, step.attempts) == (2, '{"n":1}', 1)


def test_an_attempt_without_input_is_not_under_way_elsewhere() -> None:
    state = fold([STARTED, step_event("StepStarted", "a:1", 10, 1)])
    assert state.steps["a:1"].order == 0
    assert state.waits() == ()


@pytest.mark.parametrize(
    "kind", ["StepCompleted", "StepFailed", "StepRetryScheduled", "StepSuspended", "StepCancelled"]
)
def test_whatever_comes_of_an_attempt_ends_it_and_the_input_stays(kind: str) -> None:
    step = fold([STARTED, dispatched(10), came_to(kind, 20)]).steps["a:1"]
    assert (step.order, step.input) == (0, '{"n":1}')


def test_a_run_waits_for_an_attempt_under_way_and_no_alarm_wakes_it() -> None:
    state = fold([STARTED, dispatched(10)])
    assert state.waits() == (Wait(kind="step", id="a:1", name="a", since=10),)
    assert state.next_alarm() is None


@pytest.mark.parametrize("opened", [True, False])
def test_an_answer_to_an_entry_under_way_is_remembered_when_it_suspends(opened: bool) -> None:
    hook = hook_event("HookOpened", "a:1>h:1", 11, 3)
    log = [STARTED, dispatched(10), *[hook] * opened, hook_event("HookReceived", "a:1>h:1", 12, 1)]
    assert fold([*log, came_to("StepSuspended", 20)]).steps["a:1"].woken


def test_what_was_decided_before_an_entry_began_does_not_wake_it_again() -> None:
    log = [STARTED, dispatched(10), hook_event("HookOpened", "a:1>h:1", 11, 3)]
    log += [came_to("StepSuspended", 12), hook_event("HookReceived", "a:1>h:1", 13, 1)]
    assert fold(log).steps["a:1"].woken
    log.append(dispatched(14))
    assert not fold(log).steps["a:1"].woken
    assert not fold([*log, came_to("StepSuspended", 20)]).steps["a:1"].woken


def test_an_inline_entry_that_suspends_knows_of_what_was_decided_meanwhile() -> None:
    log = [STARTED, step_event("StepStarted", "a:1", 10, 1)]
    log += [hook_event("HookReceived", "a:1>h:1", 11, 1), came_to("StepSuspended", 12)]
    assert not fold(log).steps["a:1"].woken


def test_the_items_of_a_map_are_counted() -> None:
    def item(kind: str, n: str, of: str = "m*:1") -> e.Event:
        return step_event(kind, f"{of}#{n}", 6, 1)

    log = [
        STARTED,
        e.MapStarted(at=6, map="m*:1", name="m", total=4),
        item("StepCompleted", "a"),
        item("StepFailed", "b"),
        item("StepRetryScheduled", "c"),
        item("StepCompleted", "a", "m*:10"),
    ]
    state = fold(log)
    assert state.outcomes(state.maps["m*:1"]) == (1, 1)
    assert [(wait.done, wait.total) for wait in state.waits() if wait.kind == "map"] == [(2, 4)]


def child_started(child: str = "c:1", **more: Any) -> e.ChildStarted:
    return e.ChildStarted(
        at=7, child=child, name="c", run_id="r", digest="d", version="1", input="{}", **more
    )


def test_a_child_is_open_until_it_has_ended() -> None:
    state = fold([STARTED, child_started(), child_started("c:2", on_parent_close="abandon")])
    assert [(each.id, each.order, each.on_parent_close) for each in state.open_children()] == [
        ("c:1", 2, "cancel"),
        ("c:2", 3, "abandon"),
    ]
    assert state.waits()[0] == Wait(kind="child", id="c:1", name="c", since=7)
    state.apply(e.ChildCancelRequested(at=8, child="c:1", name="c", reason="why"))
    assert state.children["c:1"].reason == "why"
    state.apply(e.ChildEnded(at=9, child="c:1", name="c", run_id="r", status="cancelled"))
    assert [each.id for each in state.open_children()] == ["c:2"]


def test_a_child_that_could_not_begin_has_ended_without_a_start() -> None:
    refused = e.ChildEnded(at=7, child="c:1", name="c", run_id="r", status="refused", error=FAILURE)
    state = fold([STARTED, refused])
    assert (state.children["c:1"].order, state.open_children()) == (0, [])


def test_a_retry_forgets_children_that_were_cancelled_with_the_run() -> None:
    ended = e.ChildEnded(at=9, child="c:3", name="c", run_id="r", status="completed", result="1")
    state = fold(
        [
            STARTED,
            child_started(),
            child_started("c:2", on_parent_close="abandon"),
            child_started("c:3"),
            ended,
            e.RunFailed(at=10, error=FAILURE),
            e.RunRetried(at=11, request_id="q"),
        ]
    )
    assert set(state.children) == {"c:2", "c:3"}
    generations = [state.lives.child_generation(child) for child in ("c:1", "c:2", "c:3")]
    assert generations == [2, 1, 1]


def test_a_run_that_goes_on_has_ended() -> None:
    state = fold([STARTED, e.RunContinued(at=9, next="n", version="2", input="{}", digest="d")])
    assert (state.status, state.terminal) == ("continued", True)
    with pytest.raises(CorruptHistory):
        state.apply(e.RunRetried(at=10, request_id="q"))
