"""Durations and points in time, as people give them, in whole milliseconds.

Fractions of a millisecond round up: a positive duration is never 0, nothing is due too early.
Text is exact: "0.1s" is 100 ms, whatever binary fractions make of it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from itertools import pairwise

from stepwell.core.records import Millis
from stepwell.errors import DurationLike

_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SHOWN = ("d", "h", "m", "s", "ms")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|[smhdw])")
_TEXT = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")
_BARE_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_ACCEPTED = (
    "seconds (1.5), a timedelta, or text with the units w d h m s ms, each once and from large to "
    'small, such as "1h30m" or "500ms"'
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

#: A hundred years. What is longer is a slip of the unit, and would leave the range of datetimes.
LONGEST: Millis = 36_525 * _UNITS["d"]


def to_millis(value: DurationLike) -> Millis:
    """A duration in milliseconds, rounded up; 0 to `LONGEST`.

    Raises `ValueError` saying what was given and what is accepted.
    """
    if isinstance(value, str):
        millis = _from_text(value)
    elif isinstance(value, timedelta):
        millis = Decimal(value // _MILLISECOND + bool(value % _MILLISECOND))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # The shortest text of a float is what its author wrote; its binary value is not.
        exact = float.__repr__(value) if isinstance(value, float) else value
        millis = Decimal(exact) * 1000
    else:
        raise _refusal(value)
    if not millis.is_finite() or millis < 0:
        raise _refusal(value)
    if millis > LONGEST:
        raise ValueError(f"duration {value!r} is longer than 100 years")
    return int(millis.to_integral_value(ROUND_CEILING))


def due_at(when: DurationLike | datetime, now: Millis) -> Millis:
    """When a wait ends: `now` plus a duration, or the time of an aware datetime, even a past one.

    Raises `ValueError` for a naive datetime and for what is no duration.
    """
    if not isinstance(when, datetime):
        return now + to_millis(when)
    if when.utcoffset() is None:
        raise ValueError(
            f"datetime {when.isoformat()} has no time zone; give it one, "
            "such as datetime(..., tzinfo=UTC)"
        )
    return -((_EPOCH - when) // _MILLISECOND)


def to_datetime(at: Millis) -> datetime:
    """The point in time as an aware datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=at)


def format_millis(ms: Millis) -> str:
    """A duration for people: "1h30m", "2d", "500ms", "0ms". `to_millis` reads it back."""
    if ms < 0:
        return f"-{format_millis(-ms)}"
    parts = []
    for unit in _SHOWN:
        count, ms = divmod(ms, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0ms"


def _from_text(text: str) -> Decimal:
    bare = text.strip().removeprefix("+")
    if _BARE_NUMBER.fullmatch(bare):
        raise ValueError(
            f'duration {text!r} has no unit; write "{bare}s" for seconds, or pass the number itself'
        )
    if not _TEXT.fullmatch(text):
        raise _refusal(text)
    parts = _PART.findall(text)
    sizes = [_UNITS[unit] for _, unit in parts]
    if any(left <= right for left, right in pairwise(sizes)):
        raise _refusal(text)
    return sum((Decimal(n) * size for (n, _), size in zip(parts, sizes, strict=True)), Decimal(0))


def _refusal(value: object) -> ValueError:
    return ValueError(f"{value!r} is not a duration; accepted: {_ACCEPTED}")
