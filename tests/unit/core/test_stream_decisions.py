"""What messages about signals and children lead to, and when they are old."""

from __future__ import annotations

import pytest

from stepwell.core import events as e
from stepwell.core.decide import decide
from stepwell.core.messages import ChildNoted, MendSignal, Message
from stepwell.core.state import RunState, fold
from stepwell.errors import Failure

_OWNER = e.RunStarted(at=0, workflow="s", version="1", input="{}", seed="x", stream_run="r")
_CHILD = e.ChildStarted(
    at=1, child="c:1", name="c", run_id="c1", digest="d", version="1", input="{}"
)
_STEP = e.RunStarted(at=0, workflow="s/st", version="1", input="{}", seed="x", stream_run="r")
_PARKED = (
    e.SignalTaken(at=1, sequence=0),
    e.SignalParked(at=1, sequence=0, attempt=1, error=Failure("Boom", "down")),
)


def noted(order: int, reason: str | None, run: str = "c1") -> ChildNoted:
    return ChildNoted(run_id="p", child="c:1", child_run=run, order=order, reason=reason)


def decided(state: RunState, message: Message) -> list[e.Event]:
    return decide(state, [], message, 9)


def test_what_a_child_waits_for_is_recorded() -> None:
    [event] = decided(fold([_OWNER, _CHILD]), noted(3, "a person"))
    assert event == e.ChildWaits(at=9, child="c:1", name="c", order=3, reason="a person")


@pytest.mark.parametrize(
    "message", [noted(3, "a person"), noted(2, None), noted(5, "other", run="c0")]
)
def test_an_old_word_of_a_child_and_one_of_another_run_change_nothing(message: Message) -> None:
    told = e.ChildWaits(at=2, child="c:1", name="c", order=3, reason="a person")
    assert decided(fold([_OWNER, _CHILD, told]), message) == []


def test_a_newer_word_counts_also_when_it_says_the_same() -> None:
    """Else one that was said in between, and comes last, would be taken for the newest."""
    state = fold([_OWNER, _CHILD, *decided(fold([_OWNER, _CHILD]), noted(3, "a person"))])
    [again] = decided(state, noted(7, "a person"))
    state.apply(again)
    assert decided(state, noted(5, None)) == []
    assert [wait.reason for wait in state.waits()] == ["a person"]


def test_a_child_that_is_unknown_or_has_ended_says_nothing() -> None:
    ended = e.ChildEnded(at=2, child="c:1", name="c", run_id="c1", status="completed")
    assert decided(fold([_OWNER]), noted(3, "a person")) == []
    assert decided(fold([_OWNER, _CHILD, ended]), noted(3, "a person")) == []


def mend(action: str, sequence: int = 0, request: str = "q") -> MendSignal:
    return MendSignal.model_validate(
        {"run_id": "r", "request_id": request, "sequence": sequence, "action": action}
    )


def test_a_parked_signal_is_redriven_or_discarded() -> None:
    state = fold([_STEP, *_PARKED])
    [redriven] = decided(state, mend("redrive"))
    assert redriven == e.SignalRedriven(at=9, sequence=0, request_id="q")
    [discarded] = decided(state, mend("discard"))
    assert discarded == e.SignalDiscarded(at=9, sequence=0, request_id="q")


def test_a_request_that_comes_twice_is_one() -> None:
    """Also when its signal has been handled and parked again meanwhile."""
    again = (
        e.SignalRedriven(at=2, sequence=0, request_id="q"),
        e.SignalTaken(at=2, sequence=0, redriven=True),
        e.SignalParked(at=2, sequence=0, attempt=1, error=Failure("Boom", "down")),
    )
    state = fold([_STEP, *_PARKED, *again])
    assert decided(state, mend("redrive")) == []
    assert len(decided(state, mend("redrive", request="p"))) == 1


def test_what_is_not_parked_is_not_mended() -> None:
    assert decided(fold([_STEP, *_PARKED]), mend("redrive", sequence=4)) == []
    assert decided(fold([_OWNER]), mend("redrive")) == []
