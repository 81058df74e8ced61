"""`@stream_workflow` and `@stream_step`: what a stream is, and who takes its signals."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, get_args, overload

from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.authoring.step_options import checked_retry, colour_of
from stepwell.core.definitions import OnSignal, StreamStepDefinition, WorkflowDefinition
from stepwell.core.ids import check_name
from stepwell.core.payload import Codec, arguments, codec
from stepwell.core.retry import RetryPolicy
from stepwell.core.subscription import OnFailure
from stepwell.errors import DefinitionError, UsageError
from stepwell.streams.result import StreamWorkflowResult
from stepwell.streams.running import coordinator

P = ParamSpec("P")
R = TypeVar("R")


class StreamWorkflow(Workflow[P, R]):
    """A registered stream. Starting it starts a stream run: `Client.start`, `run_stream_workflow`.

    Its result is a `StreamWorkflowResult`, once all its steps have ended.
    """

    @property
    def stream_id(self) -> str:
        """The stream's name."""
        return self.definition.name

    def __repr__(self) -> str:
        return f"<stream workflow {self.definition.name!r}>"


class StreamStep(Generic[R]):
    """A registered stream step. It is called for the signals of its stream, and by nobody else."""

    def __init__(self, definition: StreamStepDefinition, function: Callable[[], R]) -> None:
        self.definition = definition
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self) -> R:
        """Not to be called. Raises `UsageError`."""
        raise UsageError(
            f"stream step {self.definition.name!r} is called for signals of stream "
            f"{self.definition.stream!r}: emit one"
        )

    def __repr__(self) -> str:
        return f"<stream step {self.definition.full_name!r}>"


@overload
def stream_workflow(
    function: Callable[P, Coroutine[Any, Any, None]], /
) -> StreamWorkflow[P, Coroutine[Any, Any, StreamWorkflowResult]]: ...
@overload
def stream_workflow(
    *, name: str | None = None, version: str = "1"
) -> Callable[
    [Callable[P, Coroutine[Any, Any, None]]],
    StreamWorkflow[P, Coroutine[Any, Any, StreamWorkflowResult]],
]: ...
def stream_workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
) -> Any:
    """Declare a stream; the `async` function is its body, run once when its steps have subscribed.

    `name` is the stream's, by default the function's own; `version` is recorded by new runs. What
    the body returns is of no account: a stream run's result is what its steps have come to.
    Raises `DefinitionError` on a bad or taken name.
    """
    if function is None:
        return functools.partial(_make_stream, name=name, version=version)
    return _make_stream(function, name=name, version=version)


def _make_stream(
    function: Callable[..., Any], *, name: str | None, version: str
) -> StreamWorkflow[..., Any]:
    name = check_name("stream", name or str(getattr(function, "__name__", "")))
    owner = f"stream workflow {name!r}"
    if colour_of(owner, function) != "async":
        raise DefinitionError(f"{owner}: its body has to be an async function")
    definition = WorkflowDefinition(
        name=name,
        version=version,
        function=coordinator(name, function),
        colour="async",
        arguments=arguments(function, owner),
        result=codec(StreamWorkflowResult, f"result of {owner}"),
        steps=lambda: registry.stream_steps(name),
    )
    registry.add_workflow(definition)
    return StreamWorkflow(definition, function)


def stream_step(
    *,
    stream: str | StreamWorkflow[..., Any],
    signals: Iterable[str] | Mapping[str, Any],
    on_signal: OnSignal | None = None,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    on_failure: OnFailure = "skip",
) -> Callable[[Callable[[], R]], StreamStep[R]]:
    """Declare a step of a stream: state that signals wake, one at a time, in their order.

    The function takes no arguments. It is called once at the start, without a signal, then for each
    signal of the types in `signals`; with models as values there, a payload that does not fit is
    not delivered. `on_signal(signal, ctx)` may decide otherwise, before it. `name` is unique in its
    stream, by default the function's own. `retry` says how often a failing call is made again, by
    default as a step's; then the signal is parked, and `on_failure` says whether later ones wait
    for it to be redriven or discarded ("block") or go on ("skip").

    Inside it everything works that does in a workflow. Raises `DefinitionError` on a bad option.
    """
    stream_id = stream.stream_id if isinstance(stream, StreamWorkflow) else stream
    check_name("stream", stream_id)

    def declare(function: Callable[[], R]) -> StreamStep[R]:
        own = check_name("stream step", name or str(getattr(function, "__name__", "")))
        owner = f"stream step {own!r}"
        colour = colour_of(owner, function)
        if colour == "stream":
            raise DefinitionError(f"{owner}: it cannot be a generator")
        if inspect.signature(function).parameters:
            raise DefinitionError(f"{owner}: it takes no arguments; use get_current_signal()")
        if on_failure not in get_args(OnFailure):
            raise DefinitionError(f'{owner}: on_failure is "skip" or "block", not {on_failure!r}')
        if colour == "sync" and inspect.iscoroutinefunction(on_signal):
            raise DefinitionError(f"{owner}: it is a def function, so on_signal has to be one")
        definition = StreamStepDefinition(
            name=own,
            stream=stream_id,
            function=function,
            colour=colour,
            signals=_signals(owner, signals),
            on_signal=on_signal,
            retry=checked_retry(owner, retry),
            on_failure=on_failure,
        )
        registry.add_stream_step(definition)
        return StreamStep(definition, function)

    return declare


def _signals(owner: str, signals: Iterable[str] | Mapping[str, Any]) -> Mapping[str, Codec | None]:
    if isinstance(signals, str) or not signals:
        raise DefinitionError(f"{owner}: signals are types, such as ['order.placed']")
    models = signals if isinstance(signals, Mapping) else dict.fromkeys(signals)
    return {
        check_name("signal", kind): None
        if model is None
        else codec(model, f"payload of signal {kind!r} for {owner}")
        for kind, model in models.items()
    }
