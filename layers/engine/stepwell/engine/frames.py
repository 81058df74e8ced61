"""Where in an author's code something was asked for, or went wrong."""

from __future__ import annotations

import inspect
import logging
import sys
from types import FrameType

from stepwell.errors import Suspended

_LOG = logging.getLogger("stepwell.workflow")
_ASYNC_CODE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def place_of_author() -> str:
    """Where the author's code asks, as far as this thread's stack shows it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    # A task that is nothing but a primitive has only our loop's callers above it.
    if frame is None or not frame.f_code.co_flags & _ASYNC_CODE:
        return ""
    return f", {frame.f_code.co_qualname} line {frame.f_lineno}"


def warn_of_swallower(run_id: str, mark: Suspended) -> None:
    """Name in the log the code that caught a suspension."""
    # The traceback begins where the mark got to: in the code that caught it.
    trace = mark.__traceback__
    while trace is not None and _is_ours(trace.tb_frame):
        trace = trace.tb_next
    if trace is None:
        return
    code = trace.tb_frame.f_code
    _LOG.warning(
        "run %s is suspended all the same: %s (%s:%d) swallowed the suspension; "
        "catch Exception instead of BaseException",
        run_id,
        code.co_qualname,
        code.co_filename,
        trace.tb_lineno,
    )


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    return name.startswith(("stepwell.", "asyncio.", "contextlib"))
