"""How many bytes an event takes in its log, without writing it.

Exact for text without rare control characters; what a store adds for each commit is left out.
"""

from __future__ import annotations

from stepwell.core import events as e
from stepwell.core.records import Guards
from stepwell.errors import Failure

#: Braces of an object, and one of two commas: that of its last field is none, one follows itself.
_FRAME = 2
#: Quotes, colon and comma around a field's name.
_NAME = 4
_QUOTES = 2


def volume(event: e.Event) -> int:
    """Bytes of the event's JSON as `core.events.dump_events` writes it."""
    if isinstance(event, e.StepCompleted) and event.guard is None:
        # The one event of most steps: without looking at each field. Ids, names and digests are
        # taken for plain text.
        return (
            _STEP_COMPLETED
            + len(event.step)
            + len(event.name)
            + len(event.digest)
            + _written(event.result)
        )
    return _FRAME + _fields(event)


def _fields(record: e.Event | Failure | Guards) -> int:
    size = 0
    for name in record.__slots__:
        value = getattr(record, name)
        if value is None:
            continue
        size += _NAME + len(name)
        if isinstance(value, str):
            size += _QUOTES + _written(value)
        elif isinstance(value, Failure | Guards):
            size += _FRAME - 1 + _fields(value)
        elif isinstance(value, tuple):
            size += 1 + sum(_QUOTES + 1 + _written(str(each)) for each in value) + (not value)
        else:
            size += len(str(value))
    return size


def _written(text: str) -> int:
    """Bytes of a text within quotes: JSON in JSON escapes each quote once more."""
    size = len(text) if text.isascii() else len(text.encode())
    return size + text.count('"') + text.count("\\") + text.count("\n")


# `at` has thirteen digits until 2286; `attempt` and `output` one, as a rule.
_STEP_COMPLETED = _FRAME + _fields(
    e.StepCompleted(at=10**12, step="", name="", digest="", attempt=1, result="")
)
