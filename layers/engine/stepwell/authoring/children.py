"""Child runs, and going on as a new run: `start_child`, `continue_as_new`.

A child is a run of its own, with its own history, limits and retries; its parent waits for it as
for anything else, and costs only storage meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Mapping
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, get_args, overload

from stepwell.authoring.context import RUN, STEP, RunContext, coloured
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.guards import Chain, guard_change
from stepwell.core.contexts import begun_with, identified, named_context
from stepwell.core.definitions import ChildDefinition, ChildOptions
from stepwell.core.ids import check_key, check_name
from stepwell.core.payload import codec, digest
from stepwell.core.records import ChildEnding, OnParentClose, Payload
from stepwell.errors import DefinitionError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
#: What a child has come to, as far as its parent has been told.
ChildStatus = Literal["running"] | ChildEnding
#: What the engine is asked for: whom, input and its digest, and how.
_Asked = tuple[ChildDefinition, Payload, str, ChildOptions]
_PLAIN = ChildOptions()


class ChildHandle(Generic[R]):
    """A child that was started. `run_id` is its run, for a client or a message to others.

    It works in the run that started the child, and not in steps.
    """

    def __init__(self, run: RunContext, child_id: str, run_id: str, name: str) -> None:
        self.child_id = child_id
        self.run_id = run_id
        self.name = name
        self._run = run

    def result(self) -> Coroutine[Any, Any, R]:
        """Wait for the child's end and give its result; await it in an `async` workflow.

        Raises `ChildFailed`, `ChildCancelled`, `ChildNotFound`. Who stops waiting here does not
        cancel the child. It may be asked for again.
        """
        _refuse_step("ChildHandle.result")
        primitive: Coroutine[Any, Any, R] = self._run.child_result(self.child_id)
        return self._run.wait(primitive) if self._run.blocking else primitive

    def cancel(self, reason: str | None = None) -> Coroutine[Any, Any, None]:
        """Ask for the child to be cancelled; durable when it returns, nothing if it has ended.

        Await it in an `async` workflow. `result` tells how the child ended.
        """
        _refuse_step("ChildHandle.cancel")
        primitive = self._run.cancel_child(self.child_id, reason)
        return self._run.wait(primitive) if self._run.blocking else primitive

    def status(self) -> ChildStatus:
        """What the run has been told of the child so far: the same on every replay."""
        return self._run.child_status(self.child_id)

    def __repr__(self) -> str:
        return f"<child {self.child_id!r}, run {self.run_id!r}>"


class ChildStarter:
    """What `start_child` is: starts a child and waits for it. Made by `with_options`."""

    def __init__(self, options: ChildOptions = _PLAIN, context: Any = None) -> None:
        self._options = options
        self._context = context

    @overload
    def with_options(
        self,
        *,
        wait: Literal[True] = True,
        key: str | None = None,
        on_parent_close: OnParentClose = "cancel",
        context: Any = None,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
    ) -> ChildStarter: ...
    @overload
    def with_options(
        self,
        *,
        wait: Literal[False],
        key: str | None = None,
        on_parent_close: OnParentClose = "cancel",
        context: Any = None,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
    ) -> HandleStarter: ...
    def with_options(
        self,
        *,
        wait: bool = True,
        key: str | None = None,
        on_parent_close: OnParentClose = "cancel",
        context: Any = None,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
    ) -> ChildStarter | HandleStarter:
        """A `start_child` with options, which so never meet the child's own arguments.

        `wait=False` gives a `ChildHandle` at once. `key` gives the child an identity of its own;
        without it children count by name in their scope. `on_parent_close` says what becomes of a
        child that is open when its parent ends: it is cancelled, or abandoned, that is, goes on.

        `context` is what the child's `current.context` is at first, by default what its type makes;
        with another one it is another child, as with another input. `prepare_step` and
        `review_step` are the guards of its steps, declared with `@step_guard`, by default those
        that its parent has when it starts the child; none are an empty list.

        Raises `DefinitionError` on a bad option, `UsageError` on a guard that is not declared.
        """
        if key is not None:
            check_key("child", key)
        if on_parent_close not in get_args(OnParentClose):
            raise DefinitionError(
                f'start_child: on_parent_close is "cancel" or "abandon", not {on_parent_close!r}'
            )
        made = ChildStarter if wait else HandleStarter
        guards = guard_change(prepare_step, review_step, None)
        return made(ChildOptions(key, on_parent_close, None, guards), context)

    @overload
    def __call__(
        self, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(self, workflow: str, /, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...
    def __call__(self, workflow: Workflow[..., Any] | str, /, *args: Any, **kwargs: Any) -> Any:
        """Start a child run and wait for its result; await it in an `async` workflow.

        `workflow` may be a name: then the arguments are JSON, by name, and are checked against what
        is published; the result is plain JSON. Typed for `async` code: in a `def` workflow the call
        blocks and gives the result itself. A branch that stops waiting (a timeout around it, a lost
        race, the run's cancellation) cancels the child, unless it is to be abandoned.

        Raises `ChildFailed`, `ChildNotStarted`, `ChildTooDeep`, `ChildCancelled`, `ChildNotFound`;
        at once, `TypeError` or `PayloadError` on arguments, or a context, that do not fit,
        `UsageError` on a context that the workflow does not declare, and outside a workflow.
        """
        run = _run_here("start_child")
        asked = _asked(workflow, args, kwargs, self._options, self._context)
        return coloured(run, run.child(*asked, wait=True))


class HandleStarter:
    """`start_child` with `wait=False`: starts a child and gives its handle."""

    def __init__(self, options: ChildOptions, context: Any) -> None:
        self._options = options
        self._context = context

    @overload
    def __call__(
        self, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, ChildHandle[R]]: ...
    @overload
    def __call__(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, ChildHandle[R]]: ...
    @overload
    def __call__(
        self, workflow: str, /, **kwargs: Any
    ) -> Coroutine[Any, Any, ChildHandle[Any]]: ...
    def __call__(self, workflow: Workflow[..., Any] | str, /, *args: Any, **kwargs: Any) -> Any:
        """Start a child run; as `start_child`, but it gives a handle when the child is started.

        Raises what `start_child` raises before a child has begun.
        """
        run = _run_here("start_child")
        asked = _asked(workflow, args, kwargs, self._options, self._context)
        return coloured(run, run.child(*asked, wait=False))


#: Start a child run and wait for it: `await start_child(ship, order)`.
start_child = ChildStarter()


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run and go on as a new one of the same workflow, with these arguments.

    It does not return: call it in either colour, `await` before it does no harm. The new run begins
    with an empty history; it has this one's tags and parent, not its idempotency key. Open hooks
    are closed, other branches dropped and children cancelled, as at any end. Who waits for this run
    waits for the last of the chain. A cancellation that the workflow has not been told of goes
    first. No `except` or `finally` can keep the run from it.

    Raises `TypeError` or `PayloadError` on arguments that do not fit, `UsageError` outside a
    workflow, and in the body of a stream and its steps, which go on by themselves.
    """
    _run_here("continue_as_new").continue_as_new(args, kwargs)


def _asked(
    workflow: Workflow[..., Any] | str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: ChildOptions,
    context: Any,
) -> _Asked:
    if isinstance(workflow, str):
        return _asked_by_name(workflow, args, kwargs, options, context)
    if not isinstance(workflow, Workflow):
        raise UsageError(f"start_child takes a @workflow or its name, not {workflow!r}")
    definition = workflow.definition
    child = ChildDefinition(
        name=definition.name, version=definition.version, result=definition.result
    )
    given = definition.arguments
    text, known = given.encode(args, kwargs), given.digest(args, kwargs)
    begun = begun_with(definition.context, context, definition.name)
    if context is not None:
        assert definition.context is not None
        assert begun is not None
        known = identified(known, definition.context.codec.canonical(begun))
    return child, text, known, options._replace(context=begun)


def _asked_by_name(
    workflow: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: ChildOptions,
    context: Any,
) -> _Asked:
    if args:
        raise TypeError(f"start_child({workflow!r}): pass arguments by name, there is no code")
    check_name("workflow", workflow)
    owner = f"input of workflow {workflow!r}"
    text = codec(dict[str, Any], owner).encode(dict(kwargs))
    known = digest(_sorted(text))
    begun = named_context(context, workflow)
    if begun is not None:
        known = identified(known, _sorted(begun))
    result = codec(Any, f"result of workflow {workflow!r}")
    child = ChildDefinition(name=workflow, version=None, result=result)
    return child, text, known, options._replace(context=begun)


def _sorted(text: Payload) -> str:
    return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)


def _run_here(what: str) -> RunContext:
    _refuse_step(what)
    run = RUN.get()
    if run is None:
        raise UsageError(f"{what}: there is no run here; start the workflow with a client")
    return run


def _refuse_step(what: str) -> None:
    if STEP.get() is not None:
        raise UsageError(f"{what}: a step cannot do this; do it in the workflow")
