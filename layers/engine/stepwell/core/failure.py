"""Exceptions as values: what is recorded of an error, bounded in size whatever the error holds.

Nothing here raises: an exception whose own methods fail is described all the same.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Final

from stepwell.errors import Failure

MAX_MESSAGE: Final = 2_000
MAX_TYPE: Final = 300
MAX_TRACEBACK: Final = 4_000
#: Causes below the exception itself.
MAX_DEPTH: Final = 3

_MAX_FRAMES = 40
_SHOWN_ERRORS = 3


def describe(error: BaseException) -> Failure:
    """The exception as a value: type, message, frames of user code, and its causes.

    A cause is `__cause__`, else the failure that one of our errors carries (`StepFailed.failure`),
    else `__context__` unless it is suppressed.
    """
    try:
        return _describe(error, MAX_DEPTH)
    except BaseException:  # an attribute, a property or a metaclass of it that raises
        return Failure(
            _bounded(str(type.__getattribute__(type(error), "__name__")), MAX_TYPE),
            "cannot be described",
        )


def redact(failure: Failure, secrets: Collection[str]) -> Failure:
    """The failure without these texts: a notifier's error likes to quote what it had to send."""
    if not secrets:
        return failure
    return replace(
        failure,
        message=_without(failure.message, secrets),
        traceback=None if failure.traceback is None else _without(failure.traceback, secrets),
        cause=None if failure.cause is None else redact(failure.cause, secrets),
    )


def _without(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "<token>")
    return text


def type_name(error: BaseException) -> str:
    """Qualified class name, without `builtins`."""
    kind = type(error)
    module, name = kind.__module__, kind.__qualname__
    return _bounded(name if module == "builtins" else f"{module}.{name}", MAX_TYPE)


def _describe(error: BaseException, depth: int) -> Failure:
    return Failure(
        type=type_name(error),
        message=_bounded(_message(error), MAX_MESSAGE),
        traceback=_frames(error.__traceback__),
        cause=_cause(error, depth) if depth else None,
    )


def _cause(error: BaseException, depth: int) -> Failure | None:
    if error.__cause__ is not None:
        return _describe(error.__cause__, depth - 1)
    carried = getattr(error, "failure", None)
    if isinstance(carried, Failure):
        return _cut(carried, depth)
    if error.__context__ is not None and not error.__suppress_context__:
        return _describe(error.__context__, depth - 1)
    return None


def _cut(failure: Failure, depth: int) -> Failure:
    # A failure that travels up through many runs would otherwise grow by one level in each.
    cause = _cut(failure.cause, depth - 1) if failure.cause and depth > 1 else None
    return Failure(failure.type, failure.message, failure.traceback, cause)


def _message(error: BaseException) -> str:
    text = _text(error)
    if isinstance(error, BaseExceptionGroup):
        shown = [
            f"{type_name(e)}: {_limit(_text(e), 200)}" for e in error.exceptions[:_SHOWN_ERRORS]
        ]
        more = len(error.exceptions) - len(shown)
        text = f"{text}: {'; '.join(shown)}" + (f"; and {more} more" if more else "")
    notes = getattr(error, "__notes__", ())
    if isinstance(notes, list | tuple) and notes:
        text = "\n".join([text, *(note for note in notes if isinstance(note, str))])
    return text


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as broken:  # also one that exits: it is only asked what it says
        return f"<no message: str() raised {type_name(broken)}>"
    return text


def _bounded(text: str, limit: int) -> str:
    """Text that can be recorded: short, and encodable though users' may hold lone surrogates."""
    return _limit(text.encode("utf-8", "backslashreplace").decode(), limit)


def _limit(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _frames(trace: TracebackType | None) -> str | None:
    frames = [(frame, line) for frame, line in traceback.walk_tb(trace) if not _ours(frame)]
    if not frames:
        return None
    try:
        shown = traceback.StackSummary.extract(iter(frames[-_MAX_FRAMES:])).format()
    except Exception:
        return None
    return _last(shown, cut=len(frames) > _MAX_FRAMES)


def _last(shown: list[str], *, cut: bool) -> str:
    """The last entries that fit the limit; a line of dots stands for what is left out."""
    dots = "  ...\n"
    room = MAX_TRACEBACK - len(dots)
    kept: list[str] = []
    for entry in reversed(shown):
        if len(entry) > room:
            cut = True
            if not kept:
                kept.append(_limit(entry, room))
            break
        room -= len(entry)
        kept.append(entry)
    text = "".join(_encodable(reversed(kept)))
    return f"{dots}{text}" if cut else text


def _encodable(entries: Iterable[str]) -> Iterable[str]:
    return (entry.encode("utf-8", "replace").decode() for entry in entries)


def _ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and (name == "stepwell" or name.startswith("stepwell."))
