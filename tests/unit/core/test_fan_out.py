"""When a map has ended, and what it came to."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.fan_out import Board, MapOptions
from stepwell.errors import MapFailed, UsageError


@pytest.mark.parametrize(
    ("options", "outcomes", "verdict"),
    [
        ({}, "", "enough"),
        ({}, "__", None),
        ({}, "+_", None),
        ({}, "++", "enough"),
        ({}, "-_", "failed"),
        ({"on_error": "collect"}, "-_", None),
        ({"on_error": "collect"}, "--", "enough"),
        ({"min_successful": 1}, "+__", "enough"),
        ({"min_successful": 1}, "--_", None),
        ({"min_successful": 1}, "---", "failed"),
        ({"min_successful": 2}, "-+-", "failed"),
        ({"min_successful": 2}, "+", "failed"),
        ({"tolerated_failures": 1}, "-__", None),
        ({"tolerated_failures": 1}, "--_", "failed"),
        ({"tolerated_failures": 1}, "-++", "enough"),
        ({"min_successful": 1, "tolerated_failures": 0}, "+-_", "enough"),
        ({"min_successful": 2, "tolerated_failures": 0}, "+-__", "failed"),
    ],
)
def test_the_verdict_on_a_map(options: dict[str, Any], outcomes: str, verdict: str | None) -> None:
    counts = (len(outcomes), outcomes.count("+"), outcomes.count("-"))
    assert MapOptions(**options).verdict(*counts) == verdict


OPTIONS = [
    MapOptions(on_error=on_error, min_successful=enough, tolerated_failures=tolerated)
    for on_error, enough, tolerated in product((None, "collect"), (None, 1, 3), (None, 0, 2))
]


@given(st.sampled_from(OPTIONS), st.lists(st.booleans(), max_size=6), st.integers(0, 6))
def test_what_has_ended_stays_as_it_is(
    options: MapOptions, outcomes: list[bool], more: int
) -> None:
    board: Board[int] = Board(options, len(outcomes))
    told: list[str] = []

    def outcome() -> str:
        try:
            return repr([*board.result("m*:1", "m")])
        except MapFailed as failed:
            return f"{failed} {[*failed.result]}"
        except ValueError as error:
            return f"first {error}"

    for index, completed in enumerate(outcomes):
        if completed:
            board.complete(index, index)
        else:
            board.fail(index, ValueError(str(index)))
        if board.verdict is not None:
            told.append(outcome())
    assert board.verdict is not None, "with all outcomes there is a verdict"
    assert len(set(told)) <= 1


def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match="goes neither with"):
        MapOptions(on_error="fail", tolerated_failures=1)
    assert not MapOptions(on_error="fail").collects
    assert MapOptions(min_successful=1).collects


def test_a_map_result_is_a_sequence() -> None:
    board: Board[str] = Board(MapOptions(min_successful=1), 3)
    board.fail(2, ValueError("no"))
    board.complete(1, "yes")
    result = board.result("m*:1", "m")
    assert [each.status for each in result] == ["cancelled", "completed", "failed"]  # type: ignore[union-attr]
    assert repr(result) == "<map of 3 items: 1 completed, 1 failed>"
    assert result[1].index == 1  # type: ignore[union-attr]
    assert len(result[1:]) == 2
