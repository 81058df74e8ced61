from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.durations import LONGEST, due_at, format_millis, to_datetime, to_millis


@pytest.mark.parametrize(
    ("given_as", "millis"),
    [
        (0, 0),
        (90, 90_000),
        (1.5, 1_500),
        (0.1, 100),
        (8.2, 8_200),
        (1.001, 1_001),
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1), 1),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("1w2d3h4m5s6ms", 788_645_006),
        (" 1h  30 m ", 5_400_000),
        ("0s", 0),
        ("0.1s", 100),
    ],
)
def test_durations_are_read(given_as: object, millis: int) -> None:
    assert to_millis(given_as) == millis


@pytest.mark.parametrize("tiny", [0.0001, 1e-9, "0.2ms", timedelta(microseconds=1)])
def test_a_positive_duration_is_never_zero(tiny: object) -> None:
    assert to_millis(tiny) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        -1, -0.5, float("nan"), float("inf"), float("-inf"), True, False, None, [], timedelta(-1),
        "", " ", "h", "1x", "-1s", "1m1m", "30m1h", "1s1m", "1h 30", "1,5h", "1H", "1e3s", "٣s", "1hour",
        "-1", "-0.5", ".5", "+-1",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_what_is_accepted(wrong: object) -> None:
    with pytest.raises(ValueError, match="1h30m") as caught:
        to_millis(wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize(("bare", "meant"), [("30", "30s"), ("1.5", "1.5s"), (" +30 ", "30s")])
def test_a_bare_number_in_text_is_refused_with_the_right_form(bare: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f'"{meant}"'):
        to_millis(bare)
    assert to_millis(meant)


@pytest.mark.parametrize("long", ["5219w", LONGEST / 1000 + 1, 10**30, timedelta.max])
def test_more_than_a_hundred_years_is_refused(long: object) -> None:
    with pytest.raises(ValueError, match="100 years"):
        to_millis(long)


def test_a_duration_is_due_from_now() -> None:
    assert due_at("2s", 1_000) == 3_000


def test_an_aware_datetime_is_due_at_its_own_time_even_a_past_one() -> None:
    berlin = timezone(timedelta(hours=2))
    assert due_at(datetime(1970, 1, 1, 2, 0, 1, tzinfo=berlin), 99_000) == 1_000


def test_a_datetime_between_two_milliseconds_is_due_at_the_later_one() -> None:
    assert due_at(datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 0) == 1


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        due_at(datetime(2030, 1, 1), 0)  # noqa: DTZ001


def test_milliseconds_become_an_aware_datetime() -> None:
    assert to_datetime(86_400_001) == datetime(1970, 1, 2, 0, 0, 0, 1_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "0ms"),
        (500, "500ms"),
        (5_400_000, "1h30m"),
        (604_800_000, "7d"),
        (61_001, "1m1s1ms"),
        (-1_500, "-1s500ms"),
    ],
)
def test_durations_are_shown(millis: int, text: str) -> None:
    assert format_millis(millis) == text


@given(st.integers(0, LONGEST))
def test_a_shown_duration_reads_back(millis: int) -> None:
    assert to_millis(format_millis(millis)) == millis


@given(st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
def test_a_due_time_is_never_early_and_less_than_a_millisecond_late(when: datetime) -> None:
    late = to_datetime(due_at(when, 0)) - when
    assert timedelta(0) <= late < timedelta(milliseconds=1)
