"""Attributes: what can be one, and how they are written."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import pytest

from stepwell.core.attributes import (
    LARGEST,
    MOST,
    attribute_texts,
    check_extent,
    read_attributes,
    read_wanted,
    write_attributes,
)
from stepwell.errors import UsageError


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize("value", ["", "é", "x" * 1000, True, False, 0, -(2**53), 2**53, 1.5, None])
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    texts = attribute_texts({"name": value})
    assert read_attributes(write_attributes(texts)) == texts


def test_equal_numbers_of_other_types_stay_apart() -> None:
    texts = attribute_texts({"a": 1, "b": 1.0, "c": True})
    assert write_attributes(texts) == '{"a":1,"b":1.0,"c":true}'
    assert read_attributes('{"a":1,"b":1.0,"c":true}') == texts


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        2**53 + 1,
        "x" * 1001,
        "\ud800",
        [1],
        {"a": 1},
        b"x",
        Colour.RED,
        object(),
    ],
)
def test_anything_else_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match="attribute 'name'"):
        attribute_texts({"name": value})


@pytest.mark.parametrize("name", ["", "x" * 65, "new\nline", 7])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="a name is text"):
        attribute_texts({name: 1})


def test_no_dict_is_refused() -> None:
    with pytest.raises(UsageError, match="as a dict"):
        attribute_texts([("a", 1)])  # type: ignore[arg-type]


def test_too_many_are_refused_and_those_taken_away_do_not_count() -> None:
    texts = attribute_texts({f"a{n}": n for n in range(MOST)})
    check_extent({**texts, "gone": "null"})
    with pytest.raises(UsageError, match="at most 50"):
        check_extent({**texts, "more": "1"})


def test_too_large_ones_are_refused() -> None:
    texts = attribute_texts({f"a{n}": "x" * 1000 for n in range(8)})
    check_extent(texts)
    with pytest.raises(UsageError, match=f"{LARGEST:,}"):
        check_extent({**texts, **attribute_texts({"last": "x" * 300})})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zone=eu", ("zone", "eu")),
        ("zone=", ("zone", "")),
        ("a=b=c", ("a", "b=c")),
        ("n=1", ("n", 1)),
        ("n=1.5", ("n", 1.5)),
        ("n=true", ("n", True)),
        ('n="1"', ("n", "1")),
        ("n=null", ("n", "null")),
        ("n=[1]", ("n", "[1]")),
    ],
)
def test_what_is_wanted_is_read_as_a_value_or_as_text(text: str, expected: Any) -> None:
    assert read_wanted(text) == expected


@pytest.mark.parametrize("text", ["", "zone", "=1"])
def test_what_is_no_name_and_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_wanted(text)
