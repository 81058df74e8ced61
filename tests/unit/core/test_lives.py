"""Lives of a run, as the fold sees them: what a retry forgets, and what stays."""

from __future__ import annotations

import pytest

from stepwell.core import events as e
from stepwell.core.ids import again, without_generation
from stepwell.core.lifecycle import CorruptHistory
from stepwell.core.state import fold
from stepwell.core.volume import volume
from stepwell.errors import Failure

STARTED = e.RunStarted(at=5, workflow="w", version="1", input="{}", seed="s")
FAILURE = Failure(type="OSError", message="down")
RETRIED = e.RunRetried(at=100, request_id="r1", actor="Ada")


def completed(step: str, digest: str = "d") -> e.StepCompleted:
    return e.StepCompleted(at=6, step=step, name="s", digest=digest, attempt=2, result="1")


def failed(step: str) -> e.StepFailed:
    return e.StepFailed(at=7, step=step, name="s", digest="d", attempt=3, error=FAILURE)


def ended(*redo: str, at: int = 9) -> e.RunFailed:
    return e.RunFailed(at=at, error=FAILURE, redo=redo or None)


def test_a_retry_forgets_what_it_does_again_and_keeps_other_outcomes() -> None:
    state = fold(
        [
            STARTED,
            completed("a"),
            failed("b"),
            failed("c"),
            completed("u"),
            ended("c", "u"),
            RETRIED,
        ]
    )
    assert sorted(state.steps) == ["a", "b"]
    assert state.status == "running"
    assert (state.error, state.lives.retried) == (None, 7)
    assert state.lives.says_nothing("c", 4)
    assert not state.lives.says_nothing("c", 8)
    assert not state.lives.says_nothing("a", 2)


def test_a_retry_forgets_steps_and_timers_that_had_not_ended() -> None:
    open_ones = [
        e.StepStarted(at=6, step="a", name="s", digest="d", attempt=1, input="{}"),
        e.StepRetryScheduled(
            at=6, step="b", name="s", digest="d", attempt=1, error=FAILURE, due=70
        ),
        e.StepSuspended(at=6, step="c", name="s", digest="d", attempt=1, entry=1),
        e.StepSuspended(at=6, step="x", name="s", digest="d", attempt=1, entry=1),
        e.StepCancelled(at=6, step="x", name="s", digest="d"),
        e.TimerStarted(at=6, timer="t", name="sleep", due=80),
        e.TimerFired(at=8, timer="f", name="sleep", due=8),
    ]
    state = fold([STARTED, *open_ones, ended(), RETRIED])
    assert not state.steps
    assert sorted(state.timers) == ["f"]
    assert not state.waits()


def test_an_answer_stays_and_a_closed_hook_is_asked_anew() -> None:
    log = [
        STARTED,
        e.HookReceived(at=6, hook="kept:1", name="kept", decision_id="d", payload="1"),
        e.HookReceived(at=6, hook="cleanup:1", name="cleanup", decision_id="d", payload="1"),
        e.HookClosed(at=6, hook="closed@k", name="closed"),
        e.HookReceived(at=6, hook="a:1>in:1", name="in", step="a:1", decision_id="d", payload="1"),
        e.HookExpired(at=6, hook="a:1>late:1", name="late", step="a:1"),
        e.HookExpired(at=6, hook="handled:1", name="handled"),
        ended("cleanup:1"),
        RETRIED,
    ]
    lives = fold(log).lives
    assert lives.hook_id("kept:1", None) == "kept:1"
    assert lives.hook_id("handled:1", None) == "handled:1"
    assert lives.hook_id("cleanup:1", None) == "cleanup:1~2"
    assert lives.hook_id("closed@k", None) == "closed~2@k"
    assert lives.hook_id("in:1", "a:1") == "a:1>in:1"
    assert lives.hook_id("late:1", "a:1") == "a:1>late:1~2"


def test_each_life_opens_one_more_generation() -> None:
    again_closed = e.HookClosed(at=101, hook="closed:1~2", name="closed")
    log = [STARTED, e.HookClosed(at=6, hook="closed:1", name="closed"), ended(), RETRIED]
    log += [again_closed, ended(at=102), e.RunRetried(at=103, request_id="r2")]
    assert fold(log).lives.hook_id("closed:1", None) == "closed:1~3"


def test_a_row_closed_after_the_end_is_not_taken_for_the_new_life() -> None:
    late = e.HookClosed(at=101, hook="late:1", name="late")
    state = fold([STARTED, ended(), RETRIED, late])
    assert state.lives.hook_id("late:1", None) == "late:1~2"


def test_no_time_passes_between_two_lives() -> None:
    lives = fold(
        [STARTED, ended(at=9), RETRIED, ended(at=110), e.RunRetried(at=200, request_id="r")]
    )
    assert lives.lives.moved("t", 50, asked=5) == 50 + 91 + 90
    assert lives.lives.moved("t", 50, asked=105) == 50 + 90
    assert lives.lives.moved("t", 300, asked=201) == 300


def test_a_timer_that_had_fired_and_is_done_again_begins_with_the_retry() -> None:
    fired = e.TimerFired(at=8, timer="t", name="timer", due=8)
    again = e.RunRetried(at=200, request_id="r")
    lives = fold([STARTED, fired, ended("t"), RETRIED, ended(at=110), again]).lives
    assert lives.moved("t", 8, asked=5) == 100 + 3 + 90
    assert lives.moved("other", 8, asked=5) == 8 + 91 + 90


def test_a_cancel_is_about_one_life() -> None:
    asked = e.CancelRequested(at=6, request_id="c")
    log = [STARTED, asked, e.RunCancelled(at=7), RETRIED]
    assert fold(log).cancel is None


def test_an_outcome_that_is_superseded_is_forgotten() -> None:
    log = [STARTED, completed("a"), ended(), RETRIED]
    log += [e.StepSuperseded(at=101, step="a", name="s"), completed("a", "other")]
    state = fold(log)
    assert state.steps["a"].digest == "other"
    assert state.lives.says_nothing("a", 2)
    assert not state.lives.says_nothing("a", 6)


@pytest.mark.parametrize(
    "end", [e.RunCompleted(at=9, result="1"), completed("a")], ids=["completed", "running"]
)
def test_only_a_run_that_failed_or_was_cancelled_is_retried(end: e.Event) -> None:
    with pytest.raises(CorruptHistory, match="RunRetried"):
        fold([STARTED, end, RETRIED])


def test_nothing_else_follows_an_end() -> None:
    with pytest.raises(CorruptHistory):
        fold([STARTED, ended(), completed("a")])


@pytest.mark.parametrize("identity", ["h:1", "1.2/h:3", "h@key", "h@key~7", "1/h:2"])
@pytest.mark.parametrize("generation", [1, 2, 12])
def test_a_generation_is_read_back_from_an_id(identity: str, generation: int) -> None:
    assert without_generation(again(identity, generation)) == (identity, generation)


def test_ends_without_anything_to_do_again_are_written_as_before() -> None:
    assert b"redo" not in e.dump_events([ended()])
    assert b"forced" not in e.dump_events([e.RunCancelled(at=1)])


def test_the_volume_of_an_end_counts_what_is_done_again() -> None:
    event = ended("charge:1", "1/refund:1")
    assert volume(event) == len(e.dump_events([event])) - 1


def test_what_waits_under_one_id_in_two_lives_has_an_arm_of_its_own_in_each() -> None:
    """Times may be equal, and then equal messages would be taken for one."""
    first = [
        STARTED,
        e.TimerStarted(at=6, timer="sleep:1", name="sleep", due=90),
        e.StepRetryScheduled(
            at=6, step="a:1", name="a", digest="d", attempt=1, due=90, error=FAILURE
        ),
    ]
    second = [*first, e.RunCancelled(at=7), RETRIED, *first[1:]]
    before, after = set(fold(first).alarms()), set(fold(second).alarms())
    assert {(alarm.wait_id, alarm.due) for alarm in before | after} == {
        ("sleep:1", 90),
        ("a:1", 90),
    }
    assert not before & after
