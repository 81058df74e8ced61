"""Sagas: blocks whose finished steps are undone, in reverse order, when the block fails.

What undoes a step is itself a step: durable, tried again by its policy, and carried out also while
the run is being cancelled. The block keeps no record of its own: what has to be undone follows from
the outcomes of its steps, which are told alike on every pass.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from stepwell.authoring.context import RUN, SAGA, RunContext, SagaContext
from stepwell.authoring.decorators import AsyncStep, SyncStep
from stepwell.authoring.inline_steps import inline_step
from stepwell.authoring.suspension import suspension_in
from stepwell.core.definitions import StepDefinition
from stepwell.errors import CompensationFailed, Suspended, UsageError

#: Not failures of a block: the code waits, or whoever iterates over it has left.
_NO_FAILURE = (Suspended, GeneratorExit, KeyboardInterrupt)


def saga() -> Saga:
    """A block that undoes what its steps did if it fails: `async with saga() as s:`.

    When the block raises, or the run is cancelled in it, the compensations of its completed steps
    run, the last one first: those that steps declare (`@step(compensate=...)`, given the step's
    result and then its arguments) and those given to `s.add(...)`. Each is a step, tried again by
    its policy, and each is carried out though the run is being cancelled. Calls of the block's
    other branches are waited for before, unless the run is cancelled. Then the error goes on; if
    compensations failed, `CompensationFailed` does, with that error as its cause.

    A step that raised or was cancelled has no result, so what it declares does not run: where it
    may have happened all the same, `add` its compensation before the call. A block that ends well
    runs nothing, and its compensations become those of the block around it. In a `def` workflow
    write `with saga()`. Outside a run everything is a plain call.
    """
    return Saga()


class _Undo(NamedTuple):
    """A compensation that is due if the block fails; `step` is the id of what it undoes."""

    definition: StepDefinition
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: str | None = None
    step: str | None = None


class Saga(SagaContext):
    """The block of a saga. See `saga`."""

    def __init__(self) -> None:
        self._run: RunContext | None = None
        self._outer: SagaContext | None = None
        #: The block around this one, once this one has ended well.
        self._heir: Saga | None = None
        self._entered = self._left = False
        self._due: list[_Undo] = []
        #: How many calls of the block have not ended.
        self._busy = 0
        self._idle: asyncio.Future[None] | None = None
        self._told: asyncio.CancelledError | None = None

    def add(self, compensation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Undo something with this call if the block fails: a step, or a plain function.

        Add it before what it undoes, if that may have happened though it raised or was cancelled;
        the compensation must then do no harm where there is nothing to undo. Raises `UsageError`
        outside of the block, `DefinitionError` for a function that cannot be a step.
        """
        if not self._entered or self._left:
            raise UsageError("saga: add compensations inside of its block")
        if isinstance(compensation, AsyncStep | SyncStep):
            self._due.append(_Undo(compensation.definition, args, kwargs, compensation.key))
        else:
            name = str(getattr(compensation, "__name__", ""))
            self._due.append(_Undo(inline_step(name, compensation), args, kwargs))

    def begins(
        self,
        step: str,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        outcome: asyncio.Future[Any],
    ) -> None:
        """A step that can be undone was asked for in the block."""
        self._owner()._busy += 1
        outcome.add_done_callback(partial(self._ended, step, definition, args, kwargs))

    def _ended(
        self,
        step: str,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        outcome: asyncio.Future[Any],
    ) -> None:
        if not outcome.cancelled() and outcome.exception() is None:
            self.completed(step, definition, args, kwargs, outcome.result())
        self._one_less()

    def begins_items(
        self,
        steps: Sequence[str],
        definition: StepDefinition,
        items: Sequence[Any],
        outcomes: asyncio.Future[Sequence[tuple[str, Any]]],
    ) -> None:
        """A map whose items can be undone was asked for."""
        self._owner()._busy += 1
        outcomes.add_done_callback(partial(self._items_ended, steps, definition, items))

    def _items_ended(
        self,
        steps: Sequence[str],
        definition: StepDefinition,
        items: Sequence[Any],
        outcomes: asyncio.Future[Sequence[tuple[str, Any]]],
    ) -> None:
        if not outcomes.cancelled() and outcomes.exception() is None:
            ended = zip(steps, items, outcomes.result(), strict=True)
            for step, item, (status, value) in ended:
                if status == "completed":
                    self.completed(step, definition, (item,), {}, value)
        self._one_less()

    def _one_less(self) -> None:
        owner = self._owner()
        owner._busy -= 1
        if not owner._busy and owner._idle is not None and not owner._idle.done():
            owner._idle.set_result(None)

    def completed(
        self,
        step: str | None,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
    ) -> None:
        """A step of the block has its result, so there is something to undo."""
        assert definition.compensate is not None
        undo = _Undo(definition.compensate, (result, *args), kwargs, None, step)
        self._owner()._due.append(undo)

    def _owner(self) -> Saga:
        """Who undoes what was done in this block: the outermost block to which that was left."""
        owner = self
        while owner._heir is not None:
            owner = owner._heir
        return owner

    def __enter__(self) -> Saga:
        """Begin the block in a `def` workflow."""
        self._enter("with", blocking=True)
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the block: undo its steps if it failed."""
        self._set(None)  # what undoes a step is not undone itself
        try:
            if not self._fails(error):
                return
            if self._run is None:
                self._undo_all_plainly(error)
            else:
                self._run.wait(self._run.compose(self._undo_all(error), "saga"))
        finally:
            self._set(self._outer)

    async def __aenter__(self) -> Saga:
        """Begin the block in an `async` workflow."""
        self._enter("async with", blocking=False)
        return self

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the block: undo its steps if it failed."""
        self._set(None)  # what undoes a step is not undone itself
        try:
            if self._fails(error):
                await self._undo_all(error)
        finally:
            self._set(self._outer)

    def _enter(self, word: str, *, blocking: bool) -> None:
        if self._entered:
            raise UsageError("saga: one saga serves one block; call saga() for each")
        run = RUN.get()
        if run is not None and run.blocking != blocking:
            other = "with" if run.blocking else "async with"
            raise UsageError(f"saga: write {other} saga() in this workflow, not {word}")
        self._entered = True
        self._run = run
        self._outer = run.saga if run is not None and blocking else SAGA.get()
        self._set(self)

    def _set(self, saga: SagaContext | None) -> None:
        """Say which block the code is in; primitives do not run in a `def` workflow's thread."""
        if self._run is not None and self._run.blocking:
            self._run.saga = saga
        else:
            SAGA.set(saga)

    def _fails(self, error: BaseException | None) -> bool:
        """Whether the block undoes. One that went well leaves what it did to its outer one."""
        self._left = True
        if error is not None:
            return not isinstance(error, _NO_FAILURE) and suspension_in(error) is None
        if isinstance(self._outer, Saga):
            heir = self._outer._owner()
            heir._due += self._due
            heir._busy += self._busy
            self._heir = heir
        return False

    async def _undo_all(self, error: BaseException | None) -> None:
        assert error is not None
        if not isinstance(error, asyncio.CancelledError):
            await self._wait_for_calls()
        failed: list[Exception] = []
        while self._due:
            try:
                await self._undo(self._due.pop())
            except Exception as problem:
                failed.append(problem)
        self._conclude(error, failed)

    def _undo_all_plainly(self, error: BaseException | None) -> None:
        assert error is not None
        failed: list[Exception] = []
        while self._due:
            undo = self._due.pop()
            try:
                outcome = undo.definition.function(*undo.args, **undo.kwargs)
                if inspect.iscoroutine(outcome):
                    asyncio.run(outcome)
            except Exception as problem:
                failed.append(problem)
        self._conclude(error, failed)

    def _conclude(self, error: BaseException, failed: list[Exception]) -> None:
        if failed:
            raise CompensationFailed(error, failed) from error
        if self._told is not None:
            raise self._told from error

    async def _wait_for_calls(self) -> None:
        """Wait for calls of other branches: they may do what has to be undone."""
        while self._busy and self._told is None:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                await self._idle
            except asyncio.CancelledError as told:
                self._told = told  # whoever cancels does not wait for them

    async def _undo(self, undo: _Undo) -> None:
        """Carry a compensation out, also if the code is told meanwhile that it is cancelled."""
        if self._run is None:
            outcome = undo.definition.function(*undo.args, **undo.kwargs)
            if inspect.isawaitable(outcome):
                await outcome
            return
        work = self._run.submit(undo.definition, undo.args, undo.kwargs, undo.key)
        if undo.step is not None:
            self._run.note_undone(undo.step)
        while True:
            ended = work.done
            try:
                await work.outcome()
                return
            except asyncio.CancelledError as told:
                if ended:
                    raise
                self._told = told
