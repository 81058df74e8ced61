"""How a command fails: what the exit code says, and how the error is shown.

0 ok · 1 failure · 2 usage · 3 the run ended without a result · 4 not found · 6 the run did not end
while we waited · 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import traceback
from enum import IntEnum

from stepwell.engine.ports import ItemTooLarge
from stepwell.errors import (
    HookNotFound,
    InvalidToken,
    PayloadError,
    PayloadRejected,
    ResultTimeout,
    RunCancelled,
    RunFailed,
    RunNotFound,
    StepwellError,
)


class ExitCode(IntEnum):
    """What a process of ours ends with."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    RUN_FAILED = 3
    NOT_FOUND = 4
    TIMED_OUT = 6
    INTERRUPTED = 130


class BadInput(StepwellError):
    """What stands on the command line cannot be used. The message says what to write instead."""


class NotFound(StepwellError):
    """What a command names is not there."""


class ImportFailed(StepwellError):
    """A module of the user's raised while it was imported. Its error is the cause."""


_CODES: tuple[tuple[tuple[type[Exception], ...], ExitCode], ...] = (
    ((BadInput, PayloadError, PayloadRejected, ItemTooLarge), ExitCode.USAGE),
    ((NotFound, RunNotFound, HookNotFound, InvalidToken), ExitCode.NOT_FOUND),
    ((RunFailed, RunCancelled), ExitCode.RUN_FAILED),
    ((ResultTimeout,), ExitCode.TIMED_OUT),
)

_EXPECTED = (StepwellError, OSError)


def exit_code(error: Exception) -> ExitCode:
    """The exit code that an error ends the process with."""
    for types, code in _CODES:
        if isinstance(error, types):
            return code
    return ExitCode.FAILURE


def show(error: Exception, *, as_json: bool) -> None:
    """Say on stderr what went wrong: for people, or as one line of JSON."""
    if as_json:
        show_json(type(error).__name__, str(error))
        return
    if isinstance(error, ImportFailed) and error.__cause__ is not None:
        traceback.print_exception(error.__cause__)
    elif not isinstance(error, _EXPECTED):
        # Nothing that a user can do causes this: what helps is where it comes from.
        traceback.print_exception(error)
    print(f"Error: {error}", file=sys.stderr)


def show_json(kind: str, message: str) -> None:
    """The JSON form of an error."""
    shown = {"error": {"type": kind, "message": message}}
    print(json.dumps(shown, ensure_ascii=False), file=sys.stderr)
