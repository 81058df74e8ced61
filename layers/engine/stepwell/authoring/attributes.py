"""`set_attributes`: what a run shows of itself to those who look for runs."""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.authoring.context import RUN, STEP
from stepwell.core.attributes import Scalar, attribute_texts
from stepwell.errors import UsageError


def set_attributes(changes: Mapping[str, Scalar]) -> None:
    """Set attributes of the run, such as `{"customer": "c-7", "amount": 40}`; None takes one away.

    Others stay as they are. A value is text, a finite number, True or False; a run has at most 50,
    of 8 KiB together. They are recorded before the next thing that the run does and shown on its
    header. No await in any workflow. A replay sets them again, which records nothing.

    Raises `UsageError` on what is no attribute, or in a step. Outside a run it only checks.
    """
    if STEP.get() is not None:
        raise UsageError("set_attributes: call it in the workflow; a step may run more than once")
    run = RUN.get()
    if run is None:
        attribute_texts(changes)
    else:
        run.set_attributes(changes)
