"""`Suspend`: code that cannot go on without somebody's input says so, and unwinds."""

from __future__ import annotations

from stepwell.authoring.context import RUN, STEP
from stepwell.core.ids import check_note
from stepwell.errors import UsageError


class Suspend(BaseException):
    """Raise this in a step or a workflow, or in what they call, to wait for input.

    The run is then SUSPENDED and shows `reason`. A step has no outcome; it is entered again, in the
    same attempt, once an entry has come into the run's inbox or the run is resumed. A workflow
    begins again from its top, with the recorded outcomes of its steps and the inbox of that moment.

    Making one is enough: whoever swallows it is suspended all the same, and what he returns is
    dropped. It is no `Exception`, and outside a run nothing catches it. Raises `UsageError` on a
    reason that is no text, empty, or too long for a record.
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str) or not reason:
            raise UsageError(f"Suspend: say as text what is waited for, not {reason!r}")
        check_note("the reason of a Suspend", reason)
        super().__init__(reason)
        self.reason = reason
        context = STEP.get() or RUN.get()
        if context is not None:
            context.suspend(reason)


def suspension_in(error: BaseException) -> Suspend | None:
    """The `Suspend` that an error is, or that a group of errors holds.

    One that a thread without our context has made, or that was made before, is only raised; and a
    `TaskGroup` wraps what is raised in it.
    """
    if isinstance(error, Suspend):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(suspension_in, error.exceptions)), None)
    return None
