"""Delays that grow: between the attempts of a step, and between looks at a condition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stepwell.core.durations import to_millis
from stepwell.core.records import Millis
from stepwell.errors import DefinitionError, DurationLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait after try 1, 2, 3 …

    The delay after try n is `initial * factor**(n-1)`, at most `max_delay` and never below
    `initial`; full jitter takes a random part of it. Raises `DefinitionError` naming the field that
    is wrong.
    """

    initial: DurationLike = "1s"
    factor: float = 2.0
    max_delay: DurationLike = "5m"
    jitter: Literal["full", "none"] = "full"

    def __post_init__(self) -> None:
        if not is_number(self.factor, int | float) or not 1 <= self.factor < math.inf:
            raise self._wrong("factor", self.factor, "a number from 1 up")
        if self.jitter not in ("full", "none"):
            raise self._wrong("jitter", self.jitter, "'full' or 'none'")
        self._check_duration("initial", self.initial)
        self._check_duration("max_delay", self.max_delay)

    def delay(self, tries: int, *, fraction: float) -> Millis:
        """The delay after so many tries, in ms. `fraction` in [0, 1) is what full jitter takes."""
        whole = self._whole(tries)
        return int(whole * fraction) if self.jitter == "full" else whole

    def _whole(self, tries: int) -> Millis:
        initial = to_millis(self.initial)
        longest = max(to_millis(self.max_delay), initial)
        try:
            delay = initial * float(self.factor) ** (tries - 1)
        except OverflowError:
            return longest
        return int(min(delay, longest))

    def _check_duration(self, field: str, value: DurationLike) -> None:
        try:
            to_millis(value)
        except ValueError as error:
            raise DefinitionError(f"{type(self).__name__} {field}: {error}") from None

    def _wrong(self, field: str, value: object, expected: str) -> DefinitionError:
        return DefinitionError(f"{type(self).__name__} {field}: expected {expected}, got {value!r}")


def is_number(value: object, kind: type | object) -> bool:
    """Whether a value is a number of this kind; `True` is none."""
    return isinstance(value, kind) and not isinstance(value, bool)  # type: ignore[arg-type]
