"""What unwinds code and is no error."""

from __future__ import annotations


class Suspended(BaseException):
    """Unwinds user code when its run or step has to wait. Never catch it; never raise it."""


class Continued(BaseException):
    """Unwinds the code of a run that goes on as a new one. Never catch it; never raise it."""
