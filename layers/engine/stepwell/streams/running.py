"""Stream runs: the code of the run that owns one, and starting one from a workflow.

It starts a child for each step of the stream, which subscribes, then runs the body, then waits
until all of them have ended.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from stepwell.authoring.children import ChildHandle
from stepwell.authoring.context import RUN, STEP, STREAM_RUN, RunContext
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.inline_steps import run_inline
from stepwell.authoring.registry import registry
from stepwell.core.definitions import ChildDefinition, ChildOptions, WorkflowDefinition
from stepwell.core.ids import check_key
from stepwell.core.payload import codec
from stepwell.errors import ChildCancelled, UsageError
from stepwell.streams.result import StreamWorkflowResult

_ENDED = codec(dict[str, Any], "end of a subscription")


def coordinator(
    stream: str, body: Callable[..., Coroutine[Any, Any, Any]]
) -> Callable[..., Coroutine[Any, Any, StreamWorkflowResult]]:
    """The code of the run that owns a stream run."""

    @functools.wraps(body)
    async def own(*args: Any, **kwargs: Any) -> StreamWorkflowResult:
        run = RUN.get()
        if run is None or run.stream_run is None:
            raise UsageError(f"stream workflow {stream!r}: start it with a client")
        # Recorded: steps that later code adds or takes away are none of this run's.
        steps: list[str] = await run_inline(
            "stream_steps", _step_names, (stream,), {}, key=None, timeout=None, retry=None
        )
        handles = await asyncio.gather(*(_subscribe(run, stream, step) for step in steps))
        await body(*args, **kwargs)
        ends = dict(zip(steps, [await _end_of(handle) for handle in handles], strict=True))
        return StreamWorkflowResult(
            step_states={step: end["status"] for step, end in ends.items()},
            step_results={step: end["result"] for step, end in ends.items() if "result" in end},
        )

    return own


async def _step_names(stream: str) -> list[str]:
    return list(registry.stream_steps(stream))


async def _subscribe(run: RunContext, stream: str, step: str) -> ChildHandle[Any]:
    full_name = f"{stream}/{step}"
    child = ChildDefinition(name=full_name, version="1", result=_ENDED, stream_run=run.stream_run)
    handle: ChildHandle[Any] = await run.child(child, "{}", "", ChildOptions(key=step), wait=False)
    return handle


async def _end_of(handle: ChildHandle[Any]) -> dict[str, Any]:
    try:
        ended: dict[str, Any] = await handle.result()
    except ChildCancelled:
        return {"status": "cancelled"}
    return ended


def run_stream_workflow(
    stream: Workflow[..., Any],
    /,
    *args: Any,
    stream_run_id: str,
    init: Callable[[], Coroutine[Any, Any, Any]] | None = None,
    **kwargs: Any,
) -> Coroutine[Any, Any, StreamWorkflowResult]:
    """Run a stream run from a workflow, and wait until all its steps have ended; await it.

    `init` is called first, in this workflow: what it emits is on the new stream run, and waits for
    its steps. While they wait for a person, this run shows the reason. On replay nothing is
    started again. Raises `StreamRunTaken` when another run owns `stream_run_id`, and what waiting
    for a child raises; `UsageError` outside a workflow, or in a `def` one.
    """
    run = RUN.get()
    if STEP.get() is not None or run is None or run.blocking:
        raise UsageError(
            "run_stream_workflow: call it in an async workflow; elsewhere, client.start"
        )
    check_key("stream run", stream_run_id)
    definition = stream.definition
    if not definition.stream:
        raise UsageError(f"run_stream_workflow takes a @stream_workflow, not {stream!r}")
    work = _run_stream(run, definition, stream_run_id, init, (args, kwargs))
    return run.compose(work, "run_stream_workflow")


async def _run_stream(
    run: RunContext,
    definition: WorkflowDefinition,
    stream_run_id: str,
    init: Callable[[], Coroutine[Any, Any, Any]] | None,
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
) -> StreamWorkflowResult:
    if init is not None:
        token = STREAM_RUN.set(stream_run_id)
        try:
            await init()
        finally:
            STREAM_RUN.reset(token)
    child = ChildDefinition(
        name=definition.name,
        version=definition.version,
        result=definition.result,
        stream_run=stream_run_id,
    )
    given = definition.arguments
    result: StreamWorkflowResult = await run.child(
        child,
        given.encode(*arguments),
        given.digest(*arguments),
        ChildOptions(key=stream_run_id),
        wait=True,
    )
    return result
