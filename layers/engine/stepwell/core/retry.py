"""Whether a failed step is tried again, and when. Chance and time are arguments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from stepwell.core.backoff import Backoff, is_number
from stepwell.core.durations import due_at
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
class RetryPolicy(Backoff):
    """How often and how long apart a failing step is tried.

    `max_attempts` counts all attempts, the first included; the delays between them are those of
    `Backoff`. `retry_on` and `give_up_on` are exception classes; `give_up_on` wins. Raises
    `DefinitionError` naming the field that is wrong.
    """

    max_attempts: int = 4
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not is_number(self.max_attempts, int) or self.max_attempts < 1:
            raise self._wrong("max_attempts", self.max_attempts, "a whole number from 1 up")
        Backoff.__post_init__(
            self
        )  # a class with slots is made anew, and super() finds the old one
        self._check_classes("retry_on", self.retry_on)
        self._check_classes("give_up_on", self.give_up_on)

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
        return now + self.delay(attempt, fraction=fraction)

    def _retryable(self, error: BaseException) -> bool:
        if isinstance(error, _NEVER):
            return False
        if isinstance(error, RetryableError):
            return True
        return isinstance(error, self.retry_on) and not isinstance(error, self.give_up_on)

    def _check_classes(self, field: str, classes: object) -> None:
        fits = isinstance(classes, tuple) and all(
            isinstance(each, type) and issubclass(each, BaseException) for each in classes
        )
        if not fits:
            raise self._wrong(field, classes, "a tuple of exception classes")


def _stated(when: DurationLike | datetime, now: Millis) -> Millis | None:
    # The author asked for another attempt; a slip in the delay must not cost it, nor the turn.
    try:
        return due_at(when, now)
    except ValueError:
        return None
