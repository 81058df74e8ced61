"""`shield`: cleanup and other things that must not be cut off half-way."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from stepwell.authoring.context import RUN, STEP, RunContext
from stepwell.errors import UsageError


class shield:  # noqa: N801 - used like a function
    """Within the block, cancelling the current branch of the workflow waits for the block's end.

    `async with shield():` in an `async` workflow, `with shield():` in a `def` one. Whoever cancels,
    be it the run's cancel, `gather`, a `TaskGroup` or a timeout around the block, the branch is
    told when it leaves the outermost shield. A timeout or task group inside of the block works as
    ever, and other branches are not shielded. A run does not end before its shielded branches have
    left their blocks. In code outside of a run it does nothing; in a step
    it raises `UsageError`, for a step is not cut off at an `await` of the workflow's.
    """

    __slots__ = ("_run",)

    def __init__(self) -> None:
        self._run: RunContext | None = None

    def __enter__(self) -> None:
        self._run = _run_of("with", blocking=True)
        if self._run is not None:
            self._run.enter_shield()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._run is not None:
            leaving = self._run.leave_shield(error)
            if leaving is not None:
                self._run.wait(leaving)

    async def __aenter__(self) -> None:
        self._run = _run_of("async with", blocking=False)
        if self._run is not None:
            self._run.enter_shield()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._run is not None:
            leaving: Any = self._run.leave_shield(error)
            if leaving is not None:
                await leaving


def _run_of(word: str, *, blocking: bool) -> RunContext | None:
    if STEP.get() is not None:
        raise UsageError("shield: shield the call of a step in the workflow, not code in the step")
    run = RUN.get()
    if run is not None and run.blocking is not blocking:
        right = "with" if run.blocking else "async with"
        raise UsageError(f"shield: write {right} shield(), not {word}, in this workflow")
    return run
