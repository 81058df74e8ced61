from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.retry import RetryPolicy
from stepwell.errors import (
    DefinitionError,
    FatalError,
    PayloadError,
    RetryableError,
    Suspended,
    UsageError,
)

NOW = 1_000_000
EVEN = RetryPolicy(jitter="none")


def test_delays_grow_by_the_factor_and_stop_growing_at_the_maximum() -> None:
    policy = RetryPolicy(max_attempts=9, initial="1s", factor=3, max_delay="10s", jitter="none")
    dues = [policy.decide(OSError(), n, fraction=0.5, now=NOW) for n in range(1, 5)]
    assert dues == [NOW + 1_000, NOW + 3_000, NOW + 9_000, NOW + 10_000]


def test_no_try_follows_the_last_attempt() -> None:
    assert EVEN.decide(OSError(), 3, fraction=0, now=NOW) == NOW + 4_000
    assert EVEN.decide(OSError(), 4, fraction=0, now=NOW) is None
    assert RetryPolicy(max_attempts=1).decide(OSError(), 1, fraction=0, now=NOW) is None


def test_full_jitter_takes_its_fraction_of_the_delay() -> None:
    policy = RetryPolicy(initial="10s")
    assert policy.decide(OSError(), 1, fraction=0.0, now=NOW) == NOW
    assert policy.decide(OSError(), 1, fraction=0.25, now=NOW) == NOW + 2_500


@given(st.integers(1, 10**12), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_negative_nor_above_the_maximum(attempt: int, fraction: float) -> None:
    policy = RetryPolicy(max_attempts=10**13, factor=1e300, max_delay="1h")
    due = policy.decide(OSError(), attempt, fraction=fraction, now=NOW)
    assert due is not None
    assert NOW <= due <= NOW + 3_600_000


@pytest.mark.parametrize(
    "error",
    [
        FatalError("no"), PayloadError("o", "$", "r"), DefinitionError("d"), UsageError("u"),
        Suspended(), KeyboardInterrupt(),
    ],
)  # fmt: skip
def test_some_errors_are_never_retried(error: BaseException) -> None:
    assert EVEN.decide(error, 1, fraction=0, now=NOW) is None


def test_suspension_is_not_retried_even_when_everything_is() -> None:
    policy = RetryPolicy(retry_on=(BaseException,), jitter="none")
    assert policy.decide(Suspended(), 1, fraction=0, now=NOW) is None
    assert policy.decide(KeyboardInterrupt(), 1, fraction=0, now=NOW) == NOW + 1_000


def test_classes_decide_and_giving_up_wins() -> None:
    policy = RetryPolicy(
        retry_on=(OSError, ValueError), give_up_on=(FileNotFoundError,), jitter="none"
    )
    assert policy.decide(ConnectionError(), 1, fraction=0, now=NOW) == NOW + 1_000
    assert policy.decide(FileNotFoundError(), 1, fraction=0, now=NOW) is None
    assert policy.decide(KeyError(), 1, fraction=0, now=NOW) is None


def test_a_retryable_error_is_retried_whatever_the_classes_say() -> None:
    policy = RetryPolicy(retry_on=(OSError,), give_up_on=(RetryableError,), jitter="none")
    assert policy.decide(RetryableError("x"), 1, fraction=0, now=NOW) == NOW + 1_000
    assert policy.decide(RetryableError("x"), 4, fraction=0, now=NOW) is None


@pytest.mark.parametrize(
    ("retry_after", "due"),
    [
        ("2h", NOW + 7_200_000),
        (0, NOW),
        (datetime(2030, 1, 1, tzinfo=UTC), 1_893_456_000_000),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
    ],
)
def test_retry_after_replaces_the_delay_exactly(retry_after: Any, due: int) -> None:
    error = RetryableError("x", retry_after=retry_after)
    assert RetryPolicy().decide(error, 1, fraction=0.9, now=NOW) == due


@pytest.mark.parametrize("slip", ["soon", -1, datetime(2030, 1, 1)])  # noqa: DTZ001
def test_a_retry_after_that_is_no_duration_is_passed_over(slip: Any) -> None:
    error = RetryableError("x", retry_after=slip)
    assert EVEN.decide(error, 2, fraction=0, now=NOW) == NOW + 2_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", True),
        ("max_attempts", 2.5),
        ("initial", "soon"),
        ("initial", -1),
        ("factor", 0.5),
        ("factor", float("nan")),
        ("factor", float("inf")),
        ("factor", "2"),
        ("max_delay", "5"),
        ("jitter", "some"),
        ("retry_on", OSError),
        ("retry_on", ("OSError",)),
        ("give_up_on", [OSError]),
        ("give_up_on", (int,)),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(DefinitionError, match=f"RetryPolicy {field}"):
        RetryPolicy(**{field: value})


def test_a_policy_is_frozen() -> None:
    with pytest.raises(AttributeError):
        EVEN.max_attempts = 2  # type: ignore[misc]


def test_an_initial_delay_above_the_longest_one_is_kept() -> None:
    policy = RetryPolicy(initial="1h", jitter="none")
    assert policy.decide(ValueError(), 1, fraction=0, now=0) == 3_600_000
    assert policy.decide(ValueError(), 2, fraction=0, now=0) == 3_600_000
