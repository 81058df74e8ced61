"""How a command fails: what the exit code says, and how the error is shown.

0 ok · 1 failure · 2 usage · 3 the run ended without a result · 4 not found · 5 AWS does not let us
· 6 the run did not end while we waited · 130 interrupted.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from stepwell.engine.ports import ItemTooLarge
from stepwell.errors import (
    DefinitionError,
    ForkRefused,
    HookNotFound,
    InputRejected,
    InvalidToken,
    PayloadError,
    PayloadRejected,
    ResultTimeout,
    RunCancelled,
    RunFailed,
    RunNotFound,
    SignalNotParked,
    SignalRejected,
    StackNotFound,
    StepwellError,
    SubscriptionNotFound,
    UsageError,
    WorkflowNotFound,
)


class ExitCode(IntEnum):
    """What a process of ours ends with."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    RUN_FAILED = 3
    NOT_FOUND = 4
    NOT_ALLOWED = 5
    TIMED_OUT = 6
    INTERRUPTED = 130


class BadInput(StepwellError):
    """What stands on the command line cannot be used. The message says what to write instead."""


class NotFound(StepwellError):
    """What a command names is not there."""


class NotInstalled(StepwellError):
    """What a command needs is not installed. The message says how to install it."""


class ImportFailed(StepwellError):
    """A module of the user's raised while it was imported. Its error is the cause."""


#: The first line that fits counts.
_CODES: tuple[tuple[tuple[type[Exception], ...], ExitCode], ...] = (
    (
        (
            NotFound,
            RunNotFound,
            HookNotFound,
            InvalidToken,
            WorkflowNotFound,
            StackNotFound,
            SubscriptionNotFound,
            SignalNotParked,
        ),
        ExitCode.NOT_FOUND,
    ),
    (
        (
            BadInput,
            DefinitionError,
            PayloadError,
            PayloadRejected,
            InputRejected,
            SignalRejected,
            ItemTooLarge,
            UsageError,
            ForkRefused,
        ),
        ExitCode.USAGE,
    ),
    ((RunFailed, RunCancelled), ExitCode.RUN_FAILED),
    ((ResultTimeout,), ExitCode.TIMED_OUT),
)

#: Files between a command and the module that it imports.
_IMPORTING = (importlib.__file__, str(Path(__file__).with_name("load.py")))

_EXPECTED = (StepwellError, OSError)

#: Errors of botocore, by name since it may not be installed: it has no credentials that it can use.
_NO_CREDENTIALS = ("Credential", "Token", "SSO", "Login", "MFA")
#: What AWS calls a request that it does not let pass.
_REFUSED = (
    "AccessDenied",
    "Unauthorized",
    "Unrecognized",
    "Expired",
    "AuthFailure",
    "OptInRequired",
)
_REFUSED_TOO = ("InvalidAccessKeyId", "InvalidClientTokenId", "MissingAuthenticationToken")
_UNSIGNED = ("SignatureDoesNotMatch", "InvalidSignature", "IncompleteSignature")


def exit_code(error: Exception) -> ExitCode:
    """The exit code that an error ends the process with."""
    if any(_is_refusal(each) for each in _chain(error)):
        return ExitCode.NOT_ALLOWED
    if type(error).__name__ == "ProfileNotFound" and _is_of_aws(error):
        return ExitCode.USAGE
    for types, code in _CODES:
        if isinstance(error, types):
            return code
    return ExitCode.FAILURE


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _is_of_aws(error: BaseException) -> bool:
    return any(kind.__module__ == "botocore.exceptions" for kind in type(error).__mro__)


def _is_refusal(error: BaseException) -> bool:
    """Whether AWS does not let us, or does not know us."""
    if not _is_of_aws(error):
        return False
    response = getattr(error, "response", None)
    if response is None:
        return any(part in type(error).__name__ for part in _NO_CREDENTIALS)
    code = str(response.get("Error", {}).get("Code", ""))
    return any(part in code for part in (*_REFUSED, *_REFUSED_TOO, *_UNSIGNED))


def show(error: Exception, *, as_json: bool) -> None:
    """Say on stderr what went wrong: for people, or as one line of JSON."""
    message = _told(error)
    if as_json:
        show_json(type(error).__name__, message)
        return
    if isinstance(error, ImportFailed) and error.__cause__ is not None:
        _print_of_user(error.__cause__)
    elif not isinstance(error, _EXPECTED) and not _is_of_aws(error):
        # Nothing that a user can do causes this: what helps is where it comes from.
        traceback.print_exception(error)
    print(f"Error: {message}", file=sys.stderr)


def _print_of_user(error: BaseException) -> None:
    """Show an error of a module that was imported, from its own first line on."""
    frame = error.__traceback__
    while frame is not None and _is_import(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    traceback.print_exception(type(error), error, frame)


def _is_import(file: str) -> bool:
    return file.startswith("<frozen importlib") or file in _IMPORTING


def _told(error: Exception) -> str:
    """The message; of AWS's errors with what to do, in one line."""
    told = str(error)
    if _is_of_aws(error):
        told = "AWS: " + " ".join(told.split())
    if any(_is_refusal(each) for each in _chain(error)):
        told = f"{told.removesuffix('.')}; check your login, --profile and --region, and its policy"
    return told


def show_json(kind: str, message: str) -> None:
    """The JSON form of an error."""
    shown = {"error": {"type": kind, "message": message}}
    print(json.dumps(shown, ensure_ascii=False), file=sys.stderr)
