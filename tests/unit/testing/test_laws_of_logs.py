"""Each law of a log lets good ones pass, and is seen to fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell.client import Recorded
from stepwell.core import events as e
from stepwell.errors import Failure
from stepwell.testing import laws
from stepwell.testing.laws.log import cuts

START = e.RunStarted(at=1, workflow="w", version="1", input="{}", seed="s")
FAILURE = Failure(type="X", message="m")
STEP: Any = {"at": 1, "step": "a:1", "name": "a", "digest": "d"}
HOOK: Any = {"at": 1, "hook": "h:1", "name": "h"}
TIMER: Any = {"at": 5, "timer": "t:1", "name": "t"}


def begun(attempt: int, **more: Any) -> e.StepStarted:
    return e.StepStarted(**{**STEP, "attempt": attempt, **more})


def sent(attempt: int) -> e.StepStarted:
    return begun(attempt, input="{}")


def done(attempt: int, **more: Any) -> e.StepCompleted:
    return e.StepCompleted(**{**STEP, "attempt": attempt, "result": "1", **more})


def failed(attempt: int) -> e.StepFailed:
    return e.StepFailed(**STEP, attempt=attempt, error=FAILURE)


def retry(attempt: int) -> e.StepRetryScheduled:
    return e.StepRetryScheduled(**STEP, attempt=attempt, error=FAILURE, due=1)


def asleep(attempt: int, entry: int) -> e.StepSuspended:
    return e.StepSuspended(**STEP, attempt=attempt, entry=entry)


CANCELLED = e.StepCancelled(**STEP)
OPENED = e.HookOpened(**HOOK)
ANSWER = e.HookReceived(**HOOK, decision_id="x", payload="1")
CLOSED = e.HookClosed(**HOOK)
EXPIRED = e.HookExpired(**HOOK)
UNTOLD = e.HookFailed(**HOOK, error=FAILURE)
SET = e.TimerStarted(**TIMER, due=5)
FIRED = e.TimerFired(**TIMER, due=5)
DROPPED = e.TimerCancelled(**TIMER)


def not_told(attempt: int) -> e.HookNotifyFailed:
    return e.HookNotifyFailed(**HOOK, attempt=attempt, error=FAILURE, due=1)


@pytest.mark.parametrize(
    "line",
    [
        [done(1)],
        [retry(1), retry(2), failed(3)],
        [begun(1), done(1)],
        [begun(1), begun(2), done(2)],
        # The message of the second attempt was not delivered again, so its start is not written.
        [begun(1), done(2)],
        [asleep(1, 1), asleep(1, 2), retry(1), asleep(2, 3), done(2)],
        [sent(1), asleep(1, 1), sent(1), retry(1), sent(2), done(2)],
        [sent(1), CANCELLED],
        [failed(1)],
    ],
)
def test_steps_may_go_on_like_this(line: list[e.Event]) -> None:
    laws.check_steps([START, *line])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([done(2)], "attempt 2, not one of {1}"),
        ([begun(2)], "attempt 2, not one of {1}"),
        ([retry(1), retry(1)], "attempt 1, not one of {2}"),
        ([retry(2)], "attempt 2, not one of"),
        ([retry(1), asleep(2, 1), retry(1)], "attempt 1 after 2"),
        ([begun(1), begun(2), done(1)], "attempt 1 after 2"),
        ([begun(1), done(3)], "attempt 3, not one of {1, 2}"),
        ([sent(1), done(2)], "attempt 2, not one of {1}"),
        ([sent(1), retry(1), done(2)], "attempt 2 was never dispatched"),
        ([sent(1), asleep(1, 1), done(1)], "attempt 1 was never dispatched"),
        ([asleep(1, 2)], "entry 2 after 0"),
        ([asleep(1, 1), asleep(1, 1)], "entry 1 after 1"),
        ([asleep(1, 1), asleep(1, 3)], "entry 3 after 1"),
        ([done(1), done(1)], "after its StepCompleted"),
        ([failed(1), begun(2)], "after its StepFailed"),
        ([begun(1), CANCELLED, done(1)], "after its StepCancelled"),
        ([CANCELLED], "nobody knew of it"),
        ([retry(1), done(2, name="b")], "'b' of d, was 'a' of d"),
        ([retry(1), done(2, digest="other")], "'a' of other, was 'a' of d"),
    ],
)
def test_steps_may_not_go_on_like_that(line: list[e.Event], says: str) -> None:
    with pytest.raises(AssertionError, match=r"event .*'a:1'") as broken:
        laws.check_steps([START, *line])
    assert says in str(broken.value)


def test_dispatched_attempts_come_one_at_a_time_and_with_one_input() -> None:
    laws.check_dispatches([sent(1), retry(1), sent(2)])
    with pytest.raises(AssertionError, match=r"event 2: .*two attempts at a time"):
        laws.check_dispatches([sent(1), sent(2)])
    with pytest.raises(AssertionError, match=r"event 3: .*the input has changed"):
        laws.check_dispatches([sent(1), retry(1), replace(sent(2), input="1")])


@pytest.mark.parametrize(
    "line",
    [
        [OPENED, ANSWER],
        [ANSWER],
        [CLOSED],
        [not_told(1), not_told(2), UNTOLD],
        [not_told(1), OPENED],
    ],
)
def test_hooks_may_go_on_like_this(line: list[e.Event]) -> None:
    laws.check_hooks([START, *line])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([OPENED, OPENED], "opened before"),
        ([OPENED, not_told(1)], "has been told of it"),
        ([OPENED, UNTOLD], "has been told of it"),
        ([not_told(2)], "2 after 0"),
        ([not_told(1), not_told(1)], "1 after 1"),
        ([ANSWER, ANSWER], "after its HookReceived"),
        ([ANSWER, EXPIRED], "after its HookReceived"),
        ([CLOSED, OPENED], "after its HookClosed"),
        ([UNTOLD, CLOSED], "after its HookFailed"),
        ([OPENED, replace(ANSWER, name="other")], "'other' in None, was 'h' in None"),
        ([OPENED, replace(ANSWER, step="a:1")], "'h' in a:1, was 'h' in None"),
    ],
)
def test_hooks_may_not_go_on_like_that(line: list[e.Event], says: str) -> None:
    with pytest.raises(AssertionError, match=r"event .*'h:1'") as broken:
        laws.check_hooks([START, *line])
    assert says in str(broken.value)


@pytest.mark.parametrize("line", [[SET, FIRED], [FIRED], [SET, DROPPED], [SET]])
def test_timers_may_go_on_like_this(line: list[e.Event]) -> None:
    laws.check_timers([START, *line])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([SET, SET], "started before"),
        ([FIRED, SET], "after its TimerFired"),
        ([SET, FIRED, FIRED], "after its TimerFired"),
        ([SET, DROPPED, FIRED], "after its TimerCancelled"),
        ([DROPPED], "never started"),
        ([SET, replace(FIRED, due=4)], "due 4, was 5"),
        ([SET, replace(FIRED, name="other")], "'other', was 't'"),
    ],
)
def test_timers_may_not_go_on_like_that(line: list[e.Event], says: str) -> None:
    with pytest.raises(AssertionError, match=r"event .*'t:1'") as broken:
        laws.check_timers([START, *line])
    assert says in str(broken.value)


def test_a_run_is_told_once_of_its_cancellation_and_ends_cancelled_only_then() -> None:
    asked, ended = e.CancelRequested(at=1, request_id="r"), e.RunCancelled(at=1)
    laws.check_cancels([START, asked, ended])
    with pytest.raises(AssertionError, match="event 3: cancelled again, by request 'r'"):
        laws.check_cancels([START, asked, asked])
    with pytest.raises(AssertionError, match="event 2: it ended cancelled"):
        laws.check_cancels([START, ended])


def commit(first: int, turn: str, number: int, *events: e.Event) -> e.Commit:
    return e.Commit(first=first, turn=turn, number=number, events=events)


FIRST, SECOND = commit(1, "t", 1, START), commit(2, "t", 2, SET, FIRED)


@pytest.mark.parametrize(
    ("commits", "says"),
    [
        ([SECOND], "event 2: a commit after event 0"),
        ([FIRST, commit(3, "t", 2, SET)], "event 3: a commit after event 1"),
        ([FIRST, SECOND, commit(3, "t", 3, SET)], "event 3: a commit after event 3"),
        ([FIRST, commit(2, "t", 2)], "event 2: a commit without events"),
        ([FIRST, commit(2, "t", 1, SET)], "event 2: commit 1 of turn 't', which has written 2"),
        ([FIRST, commit(2, "u", 1, SET), commit(3, "t", 2, SET)], "writes after another turn"),
    ],
)
def test_commits_follow_each_other(commits: list[e.Commit], says: str) -> None:
    laws.check_commits([FIRST, SECOND, commit(4, "u", 1, SET)])
    with pytest.raises(AssertionError) as broken:
        laws.check_commits(commits)
    assert says in str(broken.value)


def test_numbers_are_told_where_they_go_wrong() -> None:
    with pytest.raises(AssertionError, match="event 2 is numbered 3"):
        laws.check_numbers([Recorded(1, START), Recorded(3, SET)])


def test_short_logs_are_cut_everywhere_and_long_ones_not() -> None:
    assert list(cuts(3)) == [0, 1, 2, 3]
    assert list(cuts(60)) == list(range(61))
    for count in (61, 600, 6_000, 100_000):
        places = list(cuts(count))
        assert (places[0], places[-1]) == (0, count)
        assert 5 <= len(places) <= 61


MAP: Any = {"at": 1, "map": "a*:1", "name": "a"}


def over(total: int) -> e.MapStarted:
    return e.MapStarted(**MAP, total=total)


MAP_ENDED = e.MapEnded(**MAP)


def item(n: int) -> e.StepCompleted:
    return done(1, step=f"a*:1#{n}")


@pytest.mark.parametrize(
    "line",
    [
        [over(1), item(0)],
        [over(2), item(0), MAP_ENDED],
        [
            over(1),
            e.StepRetryScheduled(**{**STEP, "step": "a*:1#0"}, attempt=1, error=FAILURE, due=1),
            MAP_ENDED,
            done(2, step="a*:1#0"),
        ],
        [done(1, step="a@a*:1#0")],
    ],
)
def test_maps_may_go_on_like_this(line: list[e.Event]) -> None:
    laws.check_maps([START, *line])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([over(1), over(1)], "starts again"),
        ([MAP_ENDED], "does not go on"),
        ([over(1), MAP_ENDED, MAP_ENDED], "does not go on"),
        ([item(0)], "has not started"),
        ([over(1), item(0), item(1)], "2 items of 1"),
        ([over(2), MAP_ENDED, item(0)], "begins after the end"),
    ],
)
def test_maps_do_not_go_on_like_this(line: list[e.Event], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        laws.check_maps([START, *line])
