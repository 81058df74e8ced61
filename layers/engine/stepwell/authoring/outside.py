"""Steps that are called outside of a run: plain functions, which a saga still undoes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from stepwell.authoring.context import SAGA, SagaContext
from stepwell.core.definitions import StepDefinition


def call(
    definition: StepDefinition,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Call a step's function as it is."""
    outcome = function(*args, **kwargs)
    saga = None if definition.compensate is None else SAGA.get()
    if saga is None:
        return outcome
    if inspect.iscoroutine(outcome):
        return _awaited(saga, definition, args, kwargs, outcome)
    saga.completed(None, definition, args, kwargs, outcome)
    return outcome


async def _awaited(
    saga: SagaContext,
    definition: StepDefinition,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    outcome: Coroutine[Any, Any, Any],
) -> Any:
    result = await outcome
    saga.completed(None, definition, args, kwargs, result)
    return result
