"""What an operator reads in a worker's log: a line for each failure, and for each end of a run.

Said when the event stands, so of each only once. That a run is blocked, the engine says itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from stepwell.core import events as e
from stepwell.core.durations import to_datetime
from stepwell.core.records import Millis
from stepwell.errors import Failure

_LOG = logging.getLogger("stepwell.local")
_LONGEST = 300

_Line = tuple[int, str]


def report(run_id: str, commit: e.Commit) -> None:
    """Log what is worth it of a commit that stands. What a fork copies is no news."""
    told: list[_Line] = []
    for event in commit.events:
        tell = _TELL.get(event.type)
        if tell is not None:
            told.append(tell(event))
        elif event.type == "RunForked":
            told.clear()
    for level, line in told:
        _LOG.log(level, "run %s: %s", run_id, line)


def _step_retry(event: e.StepRetryScheduled) -> _Line:
    failed = f"attempt {event.attempt} of step {event.step} failed: {_short(event.error)}"
    return logging.WARNING, f"{failed}; next attempt at {_time(event.due)}"


def _step_failed(event: e.StepFailed) -> _Line:
    failed = f"attempt {event.attempt} of step {event.step} failed: {_short(event.error)}"
    return logging.WARNING, f"{failed}; it was the last one"


def _notify_failed(event: e.HookNotifyFailed) -> _Line:
    failed = f"attempt {event.attempt} to notify of hook {event.hook} failed"
    return (
        logging.WARNING,
        f"{failed}: {_short(event.error)}; next attempt at {_time(event.due)}",
    )


def _hook_failed(event: e.HookFailed) -> _Line:
    return logging.WARNING, f"notifying of hook {event.hook} failed: {_short(event.error)}"


def _run_completed(_: e.RunCompleted) -> _Line:
    return logging.INFO, "completed"


def _run_failed(event: e.RunFailed) -> _Line:
    return logging.WARNING, f"failed: {_short(event.error)}"


def _run_cancelled(event: e.RunCancelled) -> _Line:
    return logging.INFO, f"cancelled: {_line(event.reason)}" if event.reason else "cancelled"


_TELL: dict[str, Callable[[Any], _Line]] = {
    "StepRetryScheduled": _step_retry,
    "StepFailed": _step_failed,
    "HookNotifyFailed": _notify_failed,
    "HookFailed": _hook_failed,
    "RunCompleted": _run_completed,
    "RunFailed": _run_failed,
    "RunCancelled": _run_cancelled,
}


def _time(at: Millis) -> str:
    return to_datetime(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(failure: Failure) -> str:
    return _line(str(failure))


def _line(text: str) -> str:
    """One line of text without control characters, cut where it is too long."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
