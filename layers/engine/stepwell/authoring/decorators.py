"""`@workflow` and `@step`: bare or with options, on `async def` and `def`.

Outside a run the decorated thing is a plain function. In a run a workflow's steps are recorded.
Inside a step another step is a plain function too: only the outer one is recorded.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Union, overload

from stepwell.authoring.context import RUN, RunContext
from stepwell.authoring.fan_out import AsyncFanOut, SyncFanOut
from stepwell.authoring.inline_steps import compensation_of
from stepwell.authoring.outside import call
from stepwell.authoring.registry import registry
from stepwell.authoring.scripts import Scripted
from stepwell.authoring.step_options import (
    check_semantics,
    checked_dispatch,
    checked_retry,
    checked_timeout,
    colour_of,
    with_options,
)
from stepwell.core.contexts import ContextType
from stepwell.core.definitions import Dispatch, StepCommit, StepDefinition, WorkflowDefinition
from stepwell.core.ids import check_name
from stepwell.core.payload import arguments, codec, returns
from stepwell.core.retry import RetryPolicy
from stepwell.errors import DefinitionError, DurationLike, UsageError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """The last thing a streaming step yields: `yield Result(value)`."""

    value: T


class Workflow(Scripted, Generic[P, R]):
    """A registered workflow. Calling it calls the function; `Client.start` starts a run of it."""

    def __init__(self, definition: WorkflowDefinition, function: Callable[P, R]) -> None:
        self.definition = definition
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it is."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.definition.name!r}>"


class AsyncStep(AsyncFanOut[P, R]):
    """A step made from `async def`: awaited in an `async` workflow, blocking in a `def` one."""

    def __init__(
        self,
        definition: StepDefinition,
        function: Callable[P, Coroutine[Any, Any, R]],
        key: str | None = None,
    ) -> None:
        self.definition = definition
        self.key = key
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the step in the current run; outside a run, call the function."""
        run = RUN.get()
        if run is None:
            here: Coroutine[Any, Any, R] = call(self.definition, self._function, args, kwargs)
            return here
        primitive = run.step(self.definition, args, kwargs, self.key)
        return run.wait(primitive) if run.blocking else primitive

    def with_options(
        self,
        *,
        key: str | None = None,
        timeout: DurationLike | None = None,
        retry: RetryPolicy | None = None,
        dispatch: Dispatch | None = None,
    ) -> AsyncStep[P, R]:
        """The same step with options of its own for the calls made through what is returned.

        `key` names a call in its run, whatever is called before it: the same key with the same
        input gives the outcome that is recorded or under way, and the body runs once. With another
        input, or with another step, it raises `KeyConflict` in the workflow. The other options are
        those of `step`; a timeout above 60 s dispatches the step unless `dispatch` says otherwise.
        Raises `DefinitionError` on a bad option. Outside a run the options mean nothing.
        """
        definition = with_options(
            self.definition, key=key, timeout=timeout, retry=retry, dispatch=dispatch
        )
        return AsyncStep(definition, self._function, self.key if key is None else key)

    def __repr__(self) -> str:
        return f"<step {self.definition.name!r}>"


class SyncStep(SyncFanOut[P, R]):
    """A step made from `def`: called in a `def` workflow, `.aio(...)` in an `async` one."""

    def __init__(
        self, definition: StepDefinition, function: Callable[P, R], key: str | None = None
    ) -> None:
        self.definition = definition
        self.key = key
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the step in the current `def` workflow; outside a run, call the function.

        Raises `UsageError` in an `async` workflow.
        """
        run = RUN.get()
        if run is None:
            here: R = call(self.definition, self._function, args, kwargs)
            return here
        if not run.blocking:
            raise UsageError(
                f"step {self.definition.name!r} is a def step and this workflow is async: "
                f"write await {self.definition.name}.aio(...)"
            )
        result: R = run.wait(run.step(self.definition, args, kwargs, self.key))
        return result

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the step in the current `async` workflow. Raises `UsageError` in a `def` one."""
        run = RUN.get()
        if run is None:
            return _plainly(self, *args, **kwargs)
        _refuse_blocking(run, self.definition.name)
        return run.step(self.definition, args, kwargs, self.key)

    def with_options(
        self,
        *,
        key: str | None = None,
        timeout: DurationLike | None = None,
        retry: RetryPolicy | None = None,
        dispatch: Dispatch | None = None,
    ) -> SyncStep[P, R]:
        """The same step with options of its own for the calls made through what is returned.

        See `AsyncStep.with_options`.
        """
        definition = with_options(
            self.definition, key=key, timeout=timeout, retry=retry, dispatch=dispatch
        )
        return SyncStep(definition, self._function, self.key if key is None else key)

    def __repr__(self) -> str:
        return f"<step {self.definition.name!r}>"


async def _plainly(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return function(*args, **kwargs)


def _refuse_blocking(run: RunContext, name: str) -> None:
    if run.blocking:
        raise UsageError(
            f"step {name!r}: this workflow is a def function, where steps block; "
            f"write {name}(...) without .aio and await"
        )


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *, name: str | None = None, version: str = "1", context: Any = None
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    context: Any = None,
) -> Any:
    """Declare a workflow: code that is replayed from the record of what it waited for.

    `name` is what runs record, by default the function's own; `version` is recorded by new runs.
    `context` is the type of a value that a run carries along, for `current.context`; without one in
    the start, it is what the type makes without arguments.
    Raises `DefinitionError` on a bad or taken name.
    """
    if function is None:
        return functools.partial(_make_workflow, name=name, version=version, context=context)
    return _make_workflow(function, name=name, version=version, context=context)


def _make_workflow(
    function: Callable[P, R], *, name: str | None, version: str, context: Any
) -> Workflow[P, R]:
    name = check_name("workflow", name or str(getattr(function, "__name__", "")))
    colour = colour_of(f"workflow {name!r}", function)
    if colour == "stream":
        raise DefinitionError(f"workflow {name!r}: a workflow cannot be a generator")
    owner = f"workflow {name!r}"
    definition = WorkflowDefinition(
        name=name,
        version=version,
        function=function,
        colour=colour,
        arguments=arguments(function, owner),
        result=returns(function, owner),
        context=None if context is None else _context(context, owner),
    )
    registry.add_workflow(definition)
    return Workflow(definition, function)


def _context(declared: Any, owner: str) -> ContextType:
    if not callable(declared):
        raise DefinitionError(f"{owner}: context takes a type, such as a model, not {declared!r}")
    return ContextType(codec(declared, f"context of {owner}"), declared)


@overload
def step(  # type: ignore[overload-overlap]  # a coroutine function is the narrower case
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncStep[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> SyncStep[P, R]: ...
@overload
def step(
    *,
    stream: Literal[True],
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: DurationLike | None = None,
    identity: Literal["input", "name"] = "input",
    dispatch: Dispatch | None = None,
    at_most_once: bool = False,
    commit: StepCommit = "sync",
    compensate: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, AsyncIterator[Any]]], AsyncStep[P, Any]]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: DurationLike | None = None,
    identity: Literal["input", "name"] = "input",
    dispatch: Dispatch | None = None,
    at_most_once: bool = False,
    commit: StepCommit = "sync",
    compensate: Callable[..., Any] | None = None,
    stream: Literal[False] = False,
) -> _StepDecorator: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: DurationLike | None = None,
    identity: Literal["input", "name"] = "input",
    dispatch: Dispatch | None = None,
    at_most_once: bool = False,
    commit: StepCommit = "sync",
    compensate: Callable[..., Any] | None = None,
    stream: bool = False,
) -> Any:
    """Declare a step: work whose outcome is recorded once and never done again after that.

    `name` is what runs record, by default the function's own. `retry` says which failures are tried
    again and when (default: `RetryPolicy()`, four attempts). `timeout` bounds each attempt: an
    async body is cancelled, a sync one abandoned. `identity="name"` leaves the input out of the
    step's identity. `dispatch="worker"` has each attempt made outside of the turn, by the step
    queue, with a time limit and memory of its own; it is the default for a timeout above 60 s.
    `stream=True` takes an async generator, whose chunks are stored as they come and whose result is
    its final `yield Result(value)`.

    `at_most_once=True` makes it durable that an attempt begins before it does, which costs a write:
    an attempt whose process dies is never made again, and raises `StepInterrupted` in the workflow
    unless `retry_on` of the policy names that error. `commit="lazy"` saves a write: the outcome is
    made durable along with the next thing that must be. A crash before that runs the step again,
    perhaps after steps that have seen its outcome; it goes with neither `at_most_once` nor
    `dispatch="worker"`.

    `compensate` undoes the step in a `saga()` block that fails: a step, or a plain function, that
    is given the step's result and then its arguments.

    The body may run more than once (a crash before its outcome is recorded, a retry, a hook in its
    middle): make it idempotent, with `current.idempotency_key` where the outside offers that.
    Raises `DefinitionError` on a bad option or a taken name.
    """
    make = functools.partial(
        _make_step,
        name=name,
        retry=retry,
        timeout=timeout,
        identity=identity,
        dispatch=dispatch,
        at_most_once=at_most_once,
        commit=commit,
        compensate=compensate,
        stream=stream,
    )
    return make if function is None else make(function)


class _StepDecorator(typing.Protocol):
    """What `@step(...)` returns: it keeps the colour and the signature of the function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # as above
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStep[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncStep[P, R]: ...


def _make_step(
    function: Callable[..., Any],
    *,
    name: str | None,
    retry: RetryPolicy | None,
    timeout: DurationLike | None,
    identity: Literal["input", "name"],
    dispatch: Dispatch | None,
    at_most_once: bool,
    commit: StepCommit,
    compensate: Callable[..., Any] | None,
    stream: bool,
) -> AsyncStep[..., Any] | SyncStep[..., Any]:
    name = check_name("step", name or str(getattr(function, "__name__", "")))
    owner = f"step {name!r}"
    colour = colour_of(owner, function)
    if stream != (colour == "stream"):
        raise DefinitionError(
            f"{owner}: stream=True takes an async generator function (async def with yield)"
            if stream
            else f"{owner}: this is an async generator function; declare it with stream=True"
        )
    if identity not in ("input", "name"):
        raise DefinitionError(f'{owner}: identity is "input" or "name", not {identity!r}')
    limit = checked_timeout(owner, timeout)
    where = checked_dispatch(owner, dispatch, limit)
    check_semantics(owner, at_most_once=at_most_once, commit=commit, dispatch=where)
    definition = StepDefinition(
        name=name,
        function=function,
        colour=colour,
        retry=checked_retry(owner, retry),
        timeout=limit,
        identity=identity,
        arguments=arguments(function, owner),
        result=returns(function, owner, _result_part if stream else None),
        chunk=returns(function, f"output of {owner}", _chunk_part) if stream else None,
        dispatch=where,
        at_most_once=at_most_once,
        commit=commit,
        compensate=None if compensate is None else compensation_of(name, function, compensate),
    )
    registry.add_step(definition)
    if colour == "sync":
        return SyncStep(definition, function)
    return AsyncStep(definition, function)


def _result_part(annotation: Any) -> Any:
    """T in `AsyncIterator[Chunk | Result[T]]`; anything without such an annotation."""
    for item in _yielded(annotation):
        if typing.get_origin(item) is Result:
            return typing.get_args(item)[0]
    return Any


def _chunk_part(annotation: Any) -> Any:
    """The other members of the union in `AsyncIterator[Chunk | Result[T]]`."""
    chunks = [
        i for i in _yielded(annotation) if i is not Result and typing.get_origin(i) is not Result
    ]
    return Union[tuple(chunks)] if chunks else Any  # noqa: UP007 - the members are data here


def _yielded(annotation: Any) -> tuple[Any, ...]:
    inside = typing.get_args(annotation)
    if not inside:
        return ()
    if typing.get_origin(inside[0]) in (Union, types.UnionType):
        return typing.get_args(inside[0])
    return (inside[0],)
