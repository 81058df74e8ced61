"""The fold of a subscription: each event, each refusal, and snapshots of random logs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from stepwell.core import events as e
from stepwell.core.lifecycle import CorruptHistory
from stepwell.core.records import Guards
from stepwell.core.state import RunState, fold, is_of
from stepwell.core.stream_state import dump_snapshot
from stepwell.core.subscription import Subscription, handling_id
from stepwell.errors import Failure

STARTED = e.RunStarted(at=0, workflow="s/st", version="1", input="{}", seed="x", stream_run="r")
BOOM = Failure(type="Boom", message="x" * 2_000)


def taken(number: int, **more: Any) -> e.SignalTaken:
    if number == 0:
        return e.SignalTaken(at=1, sequence=0, **more)
    return e.SignalTaken(
        at=1,
        sequence=number,
        signal_id=f"sig{number}",
        signal_type="t",
        payload="{}",
        published_at=0,
        **more,
    )


def handled(number: int, status: Any = "waiting", **more: Any) -> e.SignalHandled:
    return e.SignalHandled(at=2, sequence=number, status=status, **more)


def parked(number: int, **more: Any) -> e.SignalParked:
    return e.SignalParked(at=2, sequence=number, attempt=1, error=BOOM, **more)


def known(*events: e.Event) -> Subscription:
    found = fold([STARTED, *events]).subscription
    assert found is not None
    return found


BEGUN = (taken(0), handled(0))


def test_a_subscription_knows_whose_it_is_and_has_not_begun() -> None:
    start = known()
    assert (start.stream, start.stream_run, start.step) == ("s", "r", "st")
    assert (start.begun, start.phase, start.shown) == (False, "at rest", "waiting")


def test_a_run_without_a_step_in_its_name_is_none() -> None:
    assert fold([replace(STARTED, workflow="s")]).subscription is None
    assert fold([replace(STARTED, stream_run=None)]).subscription is None


def test_a_signal_that_is_taken_is_under_way_until_it_is_handled() -> None:
    at_work = known(*BEGUN, taken(1))
    assert at_work.current is not None
    assert (at_work.current.sequence, at_work.current.number) == (1, 4)
    assert (at_work.shown, at_work.cursor) == ("running", 0)
    done = known(*BEGUN, taken(1), handled(1, checkpoint="1", result="2"))
    assert (done.current, done.cursor, done.handled) == (None, 1, 1)
    assert (done.checkpoint, done.result) == ("1", "2")


def test_what_a_handling_does_not_say_stays_as_it_was() -> None:
    done = known(*BEGUN, taken(1), handled(1, checkpoint="1", result="2"), taken(2), handled(2))
    assert (done.checkpoint, done.result, done.handled) == ("1", "2", 2)


def test_records_of_a_handling_are_forgotten_with_its_end() -> None:
    step = e.StepCompleted(
        at=1, step="s1/a:1", name="a", digest="d", attempt=1, result="1", output=0
    )
    emitted = e.SignalEmitted(
        at=1, emit="s1/~emit.s:1", stream="s", stream_run="r", signal_id="i", signal_type="t",
        payload="{}", digest="d",
    )  # fmt: skip
    polled = e.InboxPolled(at=1, poll="s1/~poll:1", signals="[]")
    timer = e.TimerStarted(at=1, timer="s1/sleep:1", name="sleep", due=9)
    marked = e.PatchMarked(at=1, patch="p")
    during = fold([STARTED, *BEGUN, taken(1), step, emitted, polled, timer, marked])
    assert during.steps
    assert during.emits
    assert during.polls
    during.apply(handled(1))
    left = (during.steps, during.emits, during.polls, during.timers, during.patches)
    assert not any(left)


def test_a_suspended_one_holds_and_goes_on_behind_what_it_held() -> None:
    events = (*BEGUN, taken(1), handled(1, "suspended", reason="why", resume=("b",)))
    suspended = known(*events, e.SignalsHeld(at=3, until=3))
    assert (suspended.note, suspended.resume, suspended.held) == ("why", ("b",), 3)
    ahead = known(*events, e.SignalsHeld(at=3, until=3), taken(4, held_from=2), handled(4))
    assert (ahead.cursor, ahead.ahead, ahead.held) == (1, (4,), 0)
    assert (ahead.resume, ahead.reason, ahead.note) == (None, None, None)
    through = known(
        *events, taken(4, held_from=2), handled(4), taken(2), handled(2), taken(3), handled(3)
    )
    assert (through.cursor, through.ahead) == (4, ())


def test_signals_of_other_types_between_held_ones_do_not_stay_ahead() -> None:
    """Number 3 is not the subscription's: that it is passed over is known from what is taken."""
    events = (*BEGUN, handled_with_hold(), taken(4, held_from=2), handled(4), taken(2), handled(2))
    behind = known(*events[:2], *events[2], *events[3:])  # type: ignore[misc]
    assert (behind.cursor, behind.ahead) == (2, (4,))
    further = known(*events[:2], *events[2], *events[3:], taken(5), handled(5))  # type: ignore[misc]
    assert (further.cursor, further.ahead) == (5, ())


def handled_with_hold() -> tuple[e.Event, e.Event]:
    return (taken(1), handled(1, "suspended", reason="why", resume=("b",)))


def test_acknowledged_ones_are_settled_with_their_handling() -> None:
    done = known(*BEGUN, taken(1), handled(1, acknowledged=(3, 4)))
    assert (done.cursor, done.ahead, done.handled) == (1, (3, 4), 3)
    done = known(*BEGUN, taken(1), handled(1, acknowledged=(3, 4)), taken(2), handled(2))
    assert (done.cursor, done.ahead) == (4, ())


def test_a_retry_is_due_and_its_attempt_counts() -> None:
    retry = e.SignalRetryScheduled(at=2, sequence=1, attempt=1, error=BOOM, due=50)
    state = fold([STARTED, *BEGUN, taken(1), retry])
    assert state.retry_due == 50
    assert [wait.kind for wait in state.waits()] == ["retry"]
    alarm = state.next_alarm()
    assert alarm is not None
    assert (alarm.due, alarm.wait_id) == (50, "s1")
    again = e.TimerStarted(at=50, timer="s1/sleep:1", name="sleep", due=90)
    state.apply(again)
    assert state.retry_due is None
    assert [wait.kind for wait in state.waits()] == ["timer"]
    alarm = state.next_alarm()
    assert alarm is not None
    assert alarm.due == 90


def test_each_retry_has_an_alarm_of_its_own() -> None:
    retries = [
        e.SignalRetryScheduled(at=2 + n, sequence=1, attempt=n, error=BOOM, due=50) for n in (1, 2)
    ]
    first = fold([STARTED, *BEGUN, taken(1), retries[0]]).next_alarm()
    second = fold([STARTED, *BEGUN, taken(1), *retries]).next_alarm()
    assert first is not None
    assert second is not None
    assert first.arm != second.arm


def test_a_parked_signal_is_kept_with_a_short_error_and_is_settled() -> None:
    found = known(*BEGUN, taken(1), parked(1, blocks=True))
    [kept] = found.parked
    assert (kept.sequence, kept.signal_type, kept.blocks) == (1, "t", True)
    assert len(kept.error.message) == 500
    assert (found.cursor, found.parked_total, found.handled) == (1, 1, 0)
    assert found.blocked_by == kept
    [wait] = fold([STARTED, *BEGUN, taken(1), parked(1, blocks=True)]).waits()
    assert wait.reason == "signal 1 is parked"


def test_what_is_redriven_is_taken_again_and_moves_no_cursor() -> None:
    asked = e.SignalRedriven(at=3, sequence=1, request_id="q")
    events = (*BEGUN, taken(1), parked(1), taken(2), handled(2), asked)
    assert known(*events).redrive == (1,)
    again = known(*events, taken(1, redriven=True))
    assert (again.parked, again.redrive) == ((), ())
    done = known(*events, taken(1, redriven=True), handled(1))
    assert (done.cursor, done.ahead, done.handled) == (2, (), 2)


def test_what_was_parked_ahead_of_held_ones_settles_none_of_them_when_it_is_redriven() -> None:
    asked = e.SignalRedriven(at=3, sequence=4, request_id="q")
    suspended = handled(1, "suspended", reason="why", resume=("b",))
    events = (*BEGUN, taken(1), suspended, taken(4, held_from=2), parked(4), asked)
    found = known(*events, taken(4, redriven=True), handled(4))
    assert (found.cursor, found.ahead) == (1, (4,))


def test_a_redriven_one_that_is_parked_again_is_kept_once() -> None:
    asked = e.SignalRedriven(at=3, sequence=1, request_id="q")
    found = known(*BEGUN, taken(1), parked(1), asked, taken(1, redriven=True), parked(1))
    assert [each.sequence for each in found.parked] == [1]
    assert found.parked_total == 2


def test_asking_twice_for_a_redrive_is_asking_once() -> None:
    asked = [e.SignalRedriven(at=3, sequence=1, request_id=each) for each in ("q", "p")]
    found = known(*BEGUN, taken(1), parked(1), *asked)
    assert (found.redrive, found.requests) == ((1,), ("q", "p"))


def test_what_is_discarded_is_counted_and_gone() -> None:
    given_up = [e.SignalDiscarded(at=3, sequence=1, request_id=each) for each in ("q", "p")]
    found = known(*BEGUN, taken(1), parked(1), *given_up)
    assert (found.parked, found.discarded) == ((), 1)


def test_hooks_and_children_of_a_parked_signal_are_begun_anew() -> None:
    opened = e.HookOpened(at=1, hook="s1/ask:1", name="ask")
    closed = e.HookClosed(at=1, hook="s1/ask:1", name="ask")
    child = e.ChildStarted(
        at=1, child="s1/c:1", name="c", run_id="c1", digest="d", version="1", input="{}"
    )
    asked = e.SignalRedriven(at=3, sequence=1, request_id="q")
    events = [STARTED, *BEGUN, taken(1), opened, child, closed, parked(1), asked]
    state = fold([*events, taken(1, redriven=True)])
    assert (state.lives.generations, state.lives.children) == ({"s1/ask:1": 2}, {"s1/c:1": 2})


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ((taken(1), taken(2)), "SignalTaken cannot follow"),
        ((handled(1),), "SignalHandled cannot follow"),
        ((parked(1),), "SignalParked cannot follow"),
        ((taken(1), handled(2)), "1 is under way"),
        ((taken(1), parked(2)), "1 is under way"),
        ((taken(1), e.SignalsHeld(at=2, until=3)), "SignalsHeld cannot follow"),
        ((taken(1, redriven=True),), "signal 1 is not parked"),
        ((taken(1), handled(1, "terminated"), taken(2)), "the subscription is ended"),
        ((taken(1), handled(1, "cancelled"), taken(2)), "the subscription is ended"),
        ((e.InboxPolled(at=2, poll="p", signals="[]"),), "InboxPolled cannot follow"),
    ],
)
def test_what_cannot_follow_is_refused(events: tuple[e.Event, ...], what: str) -> None:
    with pytest.raises(CorruptHistory, match=what):
        known(*BEGUN, *events)


def test_a_run_that_is_no_subscription_takes_no_signals() -> None:
    with pytest.raises(CorruptHistory, match="the subscription is unknown"):
        fold([replace(STARTED, workflow="s"), taken(0)])


def test_only_a_known_child_that_is_open_waits() -> None:
    child = e.ChildStarted(
        at=1, child="c:1", name="c", run_id="c1", digest="d", version="1", input="{}"
    )
    waits = e.ChildWaits(at=2, child="c:1", name="c", order=7, reason="a person")
    state = fold([STARTED, child, waits])
    assert [wait.reason for wait in state.waits() if wait.kind == "child"] == ["a person"]
    with pytest.raises(CorruptHistory, match="ChildWaits"):
        fold([STARTED, waits])
    ended = e.ChildEnded(at=3, child="c:1", name="c", run_id="c1", status="completed")
    with pytest.raises(CorruptHistory, match="ChildWaits"):
        fold([STARTED, child, ended, waits])


def test_what_belongs_to_the_signal_under_way_is_known_by_its_scope() -> None:
    state = fold([STARTED, *BEGUN, taken(1)])
    assert is_of(state, "s1/ask:1")
    assert is_of(state, "s1.2/ask:1")
    assert not is_of(state, "s12/ask:1")
    assert not is_of(state, "s0/ask:1")
    assert not is_of(fold([STARTED, *BEGUN]), "s0/ask:1")
    assert is_of(fold([replace(STARTED, workflow="w")]), "ask:1")


def random_log(seed: int) -> list[e.Event]:
    """A log of a subscription that goes on between two signals, as an engine could leave it."""
    draw = random.Random(seed)
    state = fold([STARTED])
    log: list[e.Event] = [STARTED]

    def put(event: e.Event) -> None:
        state.apply(event)
        log.append(event)

    put(taken(0))
    put(handled(0))
    highest = 0
    for number in range(draw.randrange(5, 25)):
        known = state.subscription
        assert known is not None
        place = draw.random()
        if known.parked and place < 0.3:
            chosen = draw.choice(known.parked).sequence
            request = f"q{number}"
            if place < 0.1:
                put(e.SignalDiscarded(at=state.at, sequence=chosen, request_id=request))
                continue
            put(e.SignalRedriven(at=state.at, sequence=chosen, request_id=request))
            sequence, more = chosen, {"redriven": True}
        else:
            ahead = known.status == "suspended" and place < 0.6
            unsettled = [n for n in range(known.cursor + 1, highest + 5) if n not in known.ahead]
            sequence = unsettled[draw.randrange(1, 3)] if ahead else unsettled[0]
            more = {"held_from": unsettled[0]} if ahead else {}
        highest = max(highest, sequence)
        put(taken(sequence, **more))
        scope = handling_id(sequence)
        if draw.random() < 0.5:
            put(
                e.StepCompleted(
                    at=state.at, step=f"{scope}/a:1", name="a", digest="d", attempt=1,
                    result="1", output=0,
                )
            )  # fmt: skip
        if draw.random() < 0.2:
            put(e.HookOpened(at=state.at, hook=f"{scope}/h:1", name="h"))
            put(e.HookClosed(at=state.at, hook=f"{scope}/h:1", name="h"))
        if draw.random() < 0.3:
            put(e.AttributesSet(at=state.at, attributes=f'{{"n":{number}}}'))
        if draw.random() < 0.3:
            put(e.InboxReceived(at=state.at, entry=f"e{number}", key="k", payload=f"{number}"))
        if draw.random() < 0.2:
            put(e.LookRequested(at=state.at, request_id=f"look{number}"))
        if draw.random() < 0.2:
            guards = Guards(before=(f"guard{number}",))
            put(e.GuardsReplaced(at=state.at, request_id=f"g{number}", guards=guards))
        end = draw.random()
        if end < 0.2:
            put(
                e.SignalRetryScheduled(
                    at=state.at, sequence=sequence, attempt=1, error=BOOM, due=state.at
                )
            )
        if end < 0.4:
            put(parked(sequence, blocks=True if draw.random() < 0.2 else None))
        else:
            suspended = draw.random() < 0.4
            put(
                handled(
                    sequence,
                    "suspended" if suspended else "waiting",
                    reason="why" if suspended else None,
                    resume=("b",) if suspended and draw.random() < 0.5 else None,
                    checkpoint=str(number) if draw.random() < 0.5 else None,
                    result=str(number) if draw.random() < 0.3 else None,
                )
            )
    return log


def facts(state: RunState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in RunState.__slots__}


@pytest.mark.parametrize("seed", range(60))
def test_who_reads_from_a_snapshot_comes_to_what_he_comes_to_who_reads_all(seed: int) -> None:
    log = random_log(seed)
    rests = [
        n
        for n in range(3, len(log) + 1)
        if (at := fold(log[:n]).subscription) is not None and at.phase == "at rest"
    ]
    for cut in rests:
        snapshot = e.SubscriptionSnapshot(at=log[cut - 1].at, state=dump_snapshot(fold(log[:cut])))
        whole = fold([*log[:cut], snapshot, *log[cut:]])
        later = fold([snapshot, *log[cut:]], before=cut)
        assert facts(later) == facts(whole)
        assert dump_snapshot(later) == dump_snapshot(whole)
