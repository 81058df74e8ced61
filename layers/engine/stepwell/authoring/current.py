"""`current`: what code can know of the step and run it is in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepwell.authoring.context import RUN, STEP, RunContext, StepContext
from stepwell.authoring.inline_steps import run_inline
from stepwell.authoring.logger import LOGGER
from stepwell.core.retry import RetryPolicy
from stepwell.errors import DurationLike, UsageError


class CurrentRun:
    """The run that this code is part of. Outside of one each attribute raises `UsageError`."""

    @property
    def id(self) -> str:
        """Its id."""
        return self._here("id").run_id

    @property
    def inbox(self) -> Mapping[str, Any]:
        """What was sent to the run: the latest value of each key, as plain JSON; read-only.

        In a step it is the inbox as of the start of the turn, or of the dispatched attempt. In a
        workflow it grows by what has come before each outcome that the code is told, the same on
        every pass.
        """
        return self._here("inbox").inbox

    @property
    def journal_dir(self) -> Path | None:
        """The folder of the local file that the run is in; None on AWS and in memory.

        It may be another one when the file was moved, so do not let the way of a workflow hang on
        it.
        """
        return self._here("journal_dir").journal_dir

    @staticmethod
    def _here(what: str) -> RunContext | StepContext:
        context = STEP.get() or RUN.get()
        if context is None:
            raise UsageError(f"current.run.{what}: there is no run here")
        return context


class Current:
    """The current step entry and run. Outside of them most attributes raise `UsageError`."""

    #: The run that this code is part of.
    run = CurrentRun()

    @property
    def run_id(self) -> str:
        """The id of the run, in a workflow or a step."""
        context = STEP.get() or RUN.get()
        if context is None:
            raise UsageError("current.run_id: there is no run here")
        return context.run_id

    @property
    def context(self) -> Any:
        """The run's context, declared by `@workflow(context=Model)`; each reading gives a new one.

        In a workflow what was set last, in a step what it was when the step was called, on every
        attempt. To change it, see `set_context`.
        """
        context = STEP.get() or RUN.get()
        if context is None:
            raise UsageError("current.context: there is no run here")
        return context.context

    @property
    def step_id(self) -> str:
        """The id of the step in its run."""
        return self._step("step_id").step_id

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 at first, one more after every failure. Suspension keeps it."""
        return self._step("attempt").attempt

    @property
    def entry(self) -> int:
        """Which entry this is: 1 at first, one more after every suspension."""
        return self._step("entry").entry

    @property
    def deadline(self) -> float | None:
        """When the attempt is cut off, by `time.monotonic()`; None without a timeout."""
        return self._step("deadline").deadline

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this attempt any more: it timed out, or its run is cancelled."""
        return self._step("cancelled").cancelled

    @property
    def idempotency_key(self) -> str:
        """`run id/step id`: the same for every attempt and entry, to hand to the outside."""
        step = self._step("idempotency_key")
        return f"{step.run_id}/{step.step_id}"

    @property
    def replaying(self) -> bool:
        """Whether workflow code goes through history again. False in steps and outside a run."""
        run = RUN.get()
        return run is not None and run.replaying

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that says each line of a workflow once, and not again on replay.

        In a step, and outside a run, it says every line. Records carry `run_id`, in steps
        `step_id` and `attempt` too. A turn that dies may have its last lines said again, and a
        workflow that begins again after `Suspend` says its own again. The logger's name is
        `stepwell.author`.
        """
        return LOGGER

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        timeout: DurationLike | None = None,
        retry: RetryPolicy | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a plain function, `async def` or `def`, as a step of the current run.

        Awaited in an `async` workflow, blocking in a `def` one. `name` is what is recorded; `key`
        names the call, as in `with_options`: without one, calls count by name in their scope.
        `timeout` and `retry` are those of `step`. The function's arguments and result are recorded
        by its annotations, and its outcome is as final as that of any step. Outside a run, and in a
        step, the function is called; in `async` code that call is awaited too.

        Raises `DefinitionError` on a bad name, key or option, and for a function that is declared
        as a step.
        """
        return run_inline(name, function, args, kwargs, key=key, timeout=timeout, retry=retry)

    @staticmethod
    def _step(what: str) -> StepContext:
        step = STEP.get()
        if step is None:
            raise UsageError(f"current.{what}: there is no step of a run here")
        return step


current = Current()
