"""`current`: what code can know of the step and run it is in."""

from __future__ import annotations

import logging

from stepwell.authoring.context import RUN, STEP, StepContext
from stepwell.authoring.logger import LOGGER
from stepwell.errors import UsageError


class Current:
    """The current step entry and run. Outside of them most attributes raise `UsageError`."""

    @property
    def run_id(self) -> str:
        """The id of the run, in a workflow or a step."""
        context = STEP.get() or RUN.get()
        if context is None:
            raise UsageError("current.run_id: there is no run here")
        return context.run_id

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
        `step_id` and `attempt` too. A turn that dies may have its last lines said again. The
        logger's name is `stepwell.author`.
        """
        return LOGGER

    @staticmethod
    def _step(what: str) -> StepContext:
        step = STEP.get()
        if step is None:
            raise UsageError(f"current.{what}: there is no step of a run here")
        return step


current = Current()
