"""What all errors have in common, and an exception as it is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

#: What a duration may be given as: seconds, a timedelta, or text such as "1h30m" or "500ms".
DurationLike = int | float | timedelta | str


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as it is recorded: enough to explain it, and to raise it alike on every pass.

    `type` is the qualified class name (`builtins` left out), `traceback` the formatted frames of
    user code, shortened; `cause` follows `__cause__`, at most a few levels deep.
    """

    type: str
    message: str
    traceback: str | None = None
    cause: Failure | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class StepwellError(Exception):
    """Root of all errors that Stepwell raises."""

    # Histories record the name of a class: in which module here it stands is no part of that.
    __module__ = "stepwell.errors"

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("stepwell.errors."):
            cls.__module__ = "stepwell.errors"
