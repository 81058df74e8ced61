"""Steps of plain functions: `current.step("fetch", fetch, url)`, with no decorator.

Their functions are not registered, so they are always made within the turn. Arguments and result
are carried by the function's annotations, as those of any step.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.authoring.context import RUN
from stepwell.authoring.step_options import checked_retry, checked_timeout, colour_of
from stepwell.core.definitions import StepDefinition
from stepwell.core.ids import check_key, check_name, is_name
from stepwell.core.payload import arguments, returns
from stepwell.core.records import Millis
from stepwell.core.retry import RetryPolicy
from stepwell.errors import DefinitionError, DurationLike

_DECORATED = "definition"


def run_inline(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    key: str | None,
    timeout: DurationLike | None,
    retry: RetryPolicy | None,
) -> Any:
    """What `current.step` does. To be awaited in `async` code; the value itself in `def` code."""
    if key is not None:
        check_key("step", key)
    definition = inline_step(name, function, timeout=timeout, retry=retry)
    run = RUN.get()
    if run is None:
        return _plainly(function, args, kwargs)
    primitive = run.step(definition, args, kwargs, key)
    return run.wait(primitive) if run.blocking else primitive


def inline_step(
    name: str,
    function: Callable[..., Any],
    *,
    timeout: DurationLike | None = None,
    retry: RetryPolicy | None = None,
) -> StepDefinition:
    """A step of a plain function. Raises `DefinitionError` for what cannot be one."""
    owner = f"step {check_name('step', name)!r}"
    if hasattr(function, _DECORATED):
        raise DefinitionError(
            f"{owner}: {function!r} is declared with a decorator: call it as it is"
        )
    limit, policy = checked_timeout(owner, timeout), checked_retry(owner, retry)
    try:
        return _compiled(name, function, limit, policy)
    except TypeError:  # not everything that can be called can be hashed
        return _compiled.__wrapped__(name, function, limit, policy)


def compensation_of(
    name: str, step: Callable[..., Any], compensate: Callable[..., Any]
) -> StepDefinition:
    """The step that undoes another one. Raises `DefinitionError` for what cannot."""
    owner = f"compensation of step {name!r}"
    try:
        positional = [
            parameter
            for parameter in inspect.signature(step).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        inspect.signature(compensate).bind(None, *(None for _ in positional))
    except TypeError as error:
        raise DefinitionError(
            f"{owner}: it is given the step's result and then its arguments, as in "
            f"def undo(result, *args, **kwargs): {error}"
        ) from None
    declared = getattr(compensate, _DECORATED, None)
    if isinstance(declared, StepDefinition):
        return declared
    own = str(getattr(compensate, "__name__", ""))
    return inline_step(own if is_name(own) else f"{name}.undo", compensate)


# A step is asked for again on every replay: its types are compiled once.
@functools.lru_cache(maxsize=256)
def _compiled(
    name: str, function: Callable[..., Any], timeout: Millis | None, retry: RetryPolicy
) -> StepDefinition:
    owner = f"step {name!r}"
    colour = colour_of(owner, function)
    if colour == "stream":
        raise DefinitionError(f"{owner}: a generator streams: declare it with @step(stream=True)")
    return StepDefinition(
        name=name,
        function=function,
        colour=colour,
        retry=retry,
        timeout=timeout,
        identity="input",
        arguments=arguments(function, owner),
        result=returns(function, owner),
    )


def _plainly(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function) or not _in_async_code():
        return function(*args, **kwargs)
    return _later(function, args, kwargs)


async def _later(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    return function(*args, **kwargs)


def _in_async_code() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
