"""`set_context`: replace the typed value that a run carries along; `current.context` reads it."""

from __future__ import annotations

from typing import Any

from stepwell.authoring.context import RUN, STEP
from stepwell.errors import UsageError


def set_context(value: Any) -> None:
    """Replace the run's context, declared by `@workflow(context=Model)`. No await in any workflow.

    `value` is checked against the declared type, field by field. All branches of the workflow see
    it from here on, and so do steps that are called from here on; a step that was called before
    keeps what it was called with. On replay the code comes to the same value again.

    Raises `PayloadError` on a value that does not fit, `UsageError` in a step or where there is no
    context.
    """
    if STEP.get() is not None:
        raise UsageError("set_context: a step only reads it; return a value and set it from there")
    run = RUN.get()
    if run is None:
        raise UsageError("set_context: there is no run here")
    run.set_context(value)
