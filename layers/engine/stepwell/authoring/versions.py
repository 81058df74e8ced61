"""`patched`: let one function serve runs that began before a change, and those that come later."""

from __future__ import annotations

from stepwell.authoring.context import RUN, STEP
from stepwell.errors import UsageError


def patched(patch: str) -> bool:
    """Whether this run takes the new way at a change that `patch` names; no await in any workflow.

    True for a run that first comes here with nothing recorded ahead of it; that is recorded, so it
    is True on every replay. False for one that has gone past this place by older code. The first
    answer holds for the whole run, also in loops and branches. Outside a run it is True.

    Keep the old way until no run needs it any more; then the call can go, whatever was recorded.
    Raises `UsageError` in a step, `DefinitionError` on a name that is empty or too long.
    """
    if STEP.get() is not None:
        raise UsageError("patched: a step is not replayed; ask in the workflow and pass the answer")
    run = RUN.get()
    return True if run is None else run.patched(patch)
