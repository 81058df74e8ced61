"""The context that a run is started with, and what it means for the identity of a start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepwell.core.contexts import checked_context
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.payload import codec, digest
from stepwell.core.records import Payload
from stepwell.engine.catalogue import NamedStart
from stepwell.errors import UsageError


def started_with(start: NamedStart, definition: WorkflowDefinition, context: Any) -> NamedStart:
    """A start with the code, and with a context: the given one, or the one its type makes.

    Raises `PayloadError` on one that does not fit, `UsageError` where the workflow has none.
    """
    declared = definition.context
    if declared is None:
        if context is not None:
            raise UsageError(
                f"workflow {definition.name!r} has no context: declare @workflow(context=YourModel)"
            )
        return start
    if context is None:
        # Recorded, so that another default in later code changes nothing; not given, so no part of
        # what the start is known by.
        return replace(start, context=declared.initial(None))
    return _identified(start, declared.encode(context))


def named_with(start: NamedStart, workflow: str, context: Any) -> NamedStart:
    """A start without the code, and with a context as JSON; the worker sees whether it fits.

    Raises `PayloadError` on what is no JSON, or too large.
    """
    if context is None:
        return start
    owner = f"context of workflow {workflow!r}"
    return _identified(start, checked_context(codec(Any, owner).encode(context), owner))


def _identified(start: NamedStart, context: Payload) -> NamedStart:
    """With one key, another context is another start."""
    return replace(start, context=context, digest=digest(f"{start.digest} {context}"))
