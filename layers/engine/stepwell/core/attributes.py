"""Attributes: what a workflow says of its run, for people and programs that look for runs.

A name and one plain JSON value: text, a number, true or false. They are kept as the JSON text of
each value, so that 1, 1.0 and true stay apart. Small and few: each header carries them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from stepwell.core.records import Payload
from stepwell.errors import UsageError

#: What an attribute can be. None takes it away.
Scalar = str | int | float | bool | None
#: The JSON that takes an attribute away.
NOTHING = "null"
#: How many attributes a run may have, how long their names and texts may be, in characters, and how
#: many bytes all of them together may take.
MOST = 50
_LONGEST_NAME = 64
_LONGEST_TEXT = 1_000
LARGEST = 8_192
#: Whole numbers that every reader of JSON gets back as they were.
_LARGEST_NUMBER = 2**53


def attribute_texts(given: Mapping[str, Scalar]) -> dict[str, str]:
    """The JSON of each value. Raises `UsageError` on what is no attribute."""
    if not isinstance(given, Mapping):
        raise UsageError(f"attributes: give names and values as a dict, not {given!r}")
    return {_checked_name(name): _text_of(name, value) for name, value in given.items()}


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise UsageError(f"attribute {name!r}: a name is text of 1 to {_LONGEST_NAME} characters")
    return name


def _text_of(name: str, value: Scalar) -> str:
    if not _is_attribute(value):
        raise UsageError(
            f"attribute {name!r}: give text of at most {_LONGEST_TEXT:,} characters, a finite "
            f"number, True or False, or None to take it away, not {str(value)[:100]!r}"
        )
    return json.dumps(value, ensure_ascii=False)


def _is_attribute(value: object) -> bool:
    # Exact types: a subclass, such as an enum, would not come back as one.
    if value is None or type(value) is bool:
        return True
    if type(value) is str:
        return len(value) <= _LONGEST_TEXT and _is_encodable(value)
    if type(value) is int:
        return abs(value) <= _LARGEST_NUMBER
    return type(value) is float and math.isfinite(value)


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def read_wanted(text: str) -> tuple[str, Scalar]:
    """A name and a value, from `name=value`. What is no JSON number, true or false, is text.

    Text that looks like one of those is given in quotes: `zip="01234"`. Raises `UsageError`.
    """
    name, equals, given = text.partition("=")
    if not equals:
        raise UsageError(f"attribute {text!r}: write name=value")
    try:
        value = json.loads(given)
    except ValueError:
        value = given
    if not isinstance(value, str | int | float | bool):
        value = given
    return _checked_name(name), value


def check_extent(texts: Mapping[str, str]) -> None:
    """Raise `UsageError` if these are more attributes than a run may have."""
    kept = {name: text for name, text in texts.items() if text != NOTHING}
    if len(kept) > MOST:
        raise UsageError(f"attributes: at most {MOST} for a run, not {len(kept)}")
    size = len(write_attributes(kept).encode())
    if size > LARGEST:
        raise UsageError(f"attributes: {size:,} bytes together, at most {LARGEST:,} for a run")


def write_attributes(texts: Mapping[str, str]) -> Payload:
    """Attributes as one JSON object, sorted by name."""
    parts = (f"{json.dumps(n, ensure_ascii=False)}:{text}" for n, text in sorted(texts.items()))
    return f"{{{','.join(parts)}}}"


def read_attributes(payload: Payload) -> dict[str, str]:
    """The JSON of each value in such an object."""
    found: dict[str, Scalar] = json.loads(payload)
    return {name: json.dumps(value, ensure_ascii=False) for name, value in found.items()}
