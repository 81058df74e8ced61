"""Whether a failed step is tried again, and when. Chance and time are arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from stepwell.core.durations import due_at, to_millis
from stepwell.core.records import Millis
from stepwell.errors import (
    DefinitionError,
    DurationLike,
    FatalError,
    HookError,
    PayloadError,
    RetryableError,
    Suspended,
    UsageError,
)

#: Another attempt cannot help: the author said so, the code has to change first, or the end of a
#: hook is recorded and would be found again.
_NEVER = (FatalError, PayloadError, DefinitionError, UsageError, HookError, Suspended)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long apart a failing step is tried.

    `max_attempts` counts all attempts, the first included. The delay after attempt n is
    `initial * factor**(n-1)`, at most `max_delay` and never below `initial`; full jitter takes a
    random part of it. `retry_on` and `give_up_on` are exception classes; `give_up_on` wins. Raises
    `DefinitionError` naming the field that is wrong.
    """

    max_attempts: int = 4
    initial: DurationLike = "1s"
    factor: float = 2.0
    max_delay: DurationLike = "5m"
    jitter: Literal["full", "none"] = "full"
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not _is_number(self.max_attempts, int) or self.max_attempts < 1:
            raise _wrong("max_attempts", self.max_attempts, "a whole number from 1 up")
        if not _is_number(self.factor, int | float) or not 1 <= self.factor < math.inf:
            raise _wrong("factor", self.factor, "a number from 1 up")
        if self.jitter not in ("full", "none"):
            raise _wrong("jitter", self.jitter, "'full' or 'none'")
        _millis("initial", self.initial)
        _millis("max_delay", self.max_delay)
        _check_classes("retry_on", self.retry_on)
        _check_classes("give_up_on", self.give_up_on)

    def decide(
        self, error: BaseException, attempt: int, *, fraction: float, now: Millis
    ) -> Millis | None:
        """When the next attempt is due after attempt 1, 2, 3 … has failed; None: there is none.

        `fraction` in [0, 1) is the chance that full jitter uses. The `retry_after` of a
        `RetryableError` replaces the delay exactly; one that is no duration is passed over.
        """
        if attempt >= self.max_attempts or not self._retryable(error):
            return None
        if isinstance(error, RetryableError) and error.retry_after is not None:
            due = _stated(error.retry_after, now)
            if due is not None:
                return due
        delay = self._delay(attempt)
        return now + (int(delay * fraction) if self.jitter == "full" else delay)

    def _retryable(self, error: BaseException) -> bool:
        if isinstance(error, _NEVER):
            return False
        if isinstance(error, RetryableError):
            return True
        return isinstance(error, self.retry_on) and not isinstance(error, self.give_up_on)

    def _delay(self, attempt: int) -> Millis:
        initial = to_millis(self.initial)
        longest = max(to_millis(self.max_delay), initial)
        try:
            delay = initial * float(self.factor) ** (attempt - 1)
        except OverflowError:
            return longest
        return int(min(delay, longest))


def _stated(when: DurationLike | datetime, now: Millis) -> Millis | None:
    # The author asked for another attempt; a slip in the delay must not cost it, nor the turn.
    try:
        return due_at(when, now)
    except ValueError:
        return None


def _is_number(value: object, kind: type | object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # type: ignore[arg-type]


def _millis(field: str, value: DurationLike) -> Millis:
    try:
        return to_millis(value)
    except ValueError as error:
        raise DefinitionError(f"RetryPolicy {field}: {error}") from None


def _check_classes(field: str, classes: object) -> None:
    fits = isinstance(classes, tuple) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in classes
    )
    if not fits:
        raise _wrong(field, classes, "a tuple of exception classes")


def _wrong(field: str, value: object, expected: str) -> DefinitionError:
    return DefinitionError(f"RetryPolicy {field}: expected {expected}, got {value!r}")
