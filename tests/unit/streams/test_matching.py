"""Which signal a subscription takes next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwell.core.signals import NumberedSignal, SentSignal
from stepwell.core.subscription import Subscription
from stepwell.streams.matching import next_signal, start_of

START = Subscription(stream="s", stream_run="r", step="st", begun=True)


def signals(kinds: str, first: int = 1) -> list[NumberedSignal]:
    """One signal for each letter, of that type."""
    return [
        NumberedSignal(n, SentSignal(signal_id=f"{n}", type=kind, payload="{}", published_at=0))
        for n, kind in enumerate(kinds, first)
    ]


def found(known: Subscription, kinds: str) -> tuple[int | None, int | None, bool, int]:
    result = next_signal(known, "ab", signals(kinds))
    number = None if result.signal is None else result.signal.sequence
    return number, result.held_from, result.held, result.seen


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("", (None, None, False, 0)),
        ("a", (1, None, False, 1)),
        ("xxb", (3, None, False, 3)),
        ("xx", (None, None, False, 2)),
    ],
)
def test_a_waiting_one_takes_the_first_of_its_types(
    kinds: str, expected: tuple[object, ...]
) -> None:
    assert found(START, kinds) == expected


def test_what_is_settled_is_passed_over() -> None:
    assert found(replace(START, cursor=2, ahead=(4,)), "aaaaa") == (3, None, False, 3)
    assert found(replace(START, cursor=3, ahead=(5, 6)), "aaaxaab") == (7, None, False, 7)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("b", (1, None, False, 1)),
        ("ab", (2, 1, True, 2)),
        ("xb", (2, None, False, 2)),
        ("axab", (4, 1, True, 4)),
        ("aax", (None, None, True, 3)),
        ("xx", (None, None, False, 2)),
    ],
)
def test_a_suspended_one_takes_what_resumes_it_ahead_of_those_that_it_holds(
    kinds: str, expected: tuple[object, ...]
) -> None:
    suspended = replace(START, status="suspended", resume=("b",))
    assert found(suspended, kinds) == expected


def test_any_signal_resumes_one_that_did_not_say_which() -> None:
    assert found(replace(START, status="suspended"), "xab") == (2, None, False, 2)


def test_it_does_not_look_again_at_what_it_holds_but_knows_of_it() -> None:
    known = replace(START, status="suspended", resume=("b",), cursor=1, held=4)
    assert start_of(known) == 4
    result = next_signal(known, "ab", signals("b", first=5))
    assert (result.held_from, result.held) == (2, True)


def test_once_it_goes_on_it_looks_from_the_first_that_it_held() -> None:
    assert start_of(replace(START, cursor=1, held=0, ahead=(5,))) == 1


@pytest.mark.parametrize(
    ("cursor", "ahead", "sequence", "held_from", "expected"),
    [
        (0, (), 1, None, (1, ())),
        (0, (), 4, None, (4, ())),
        (1, (), 4, 2, (1, (4,))),
        (1, (4,), 2, None, (2, (4,))),
        (2, (4,), 3, None, (4, ())),
        (1, (3, 4), 2, None, (4, ())),
        (1, (6,), 4, 2, (1, (4, 6))),
        (1, (4, 6), 8, None, (8, ())),
        (0, (), 3, 3, (3, ())),
    ],
)
def test_what_is_settled_moves_the_cursor_as_far_as_nothing_is_held(
    cursor: int,
    ahead: tuple[int, ...],
    sequence: int,
    held_from: int | None,
    expected: tuple[int, tuple[int, ...]],
) -> None:
    known = replace(START, cursor=cursor, ahead=ahead)
    assert known.settled(sequence, held_from) == expected
