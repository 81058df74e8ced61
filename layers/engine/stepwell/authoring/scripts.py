"""Journaled scripts: a workflow that is run, and resumed, by one blocking call.

What such a call comes to is a `Run`, also where the run failed. The local engine does the work; it
is found by name, for what authors import knows no adapters.
"""

from __future__ import annotations

import importlib
import inspect
import os
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar

from stepwell.authoring.context import RUN, STEP
from stepwell.authoring.guards import Chain
from stepwell.core.definitions import WorkflowDefinition
from stepwell.errors import DurationLike, UsageError

R = TypeVar("R")

RunStanding = Literal["completed", "failed", "cancelled", "suspended"]
#: What a run ended with, or waits for: an error of a step or of the workflow, the timeout of a
#: step, a guard, a value that cannot be carried, a limit; input; a cancellation; code that fits, an
#: operator, or the end of a pause.
ProblemKind = Literal[
    "step",
    "timeout",
    "hook",
    "serialize",
    "limit",
    "suspended",
    "cancelled",
    "blocked",
    "stuck",
    "paused",
]
#: Where the blocking calls are made.
_SCRIPTS = "stepwell.adapters.local.scripts"


@dataclass(frozen=True, slots=True)
class RunProblem:
    """Why a run has no result."""

    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True)
class Run(Generic[R]):
    """A run, as a script left it. `error` is None when it completed; `result` is None otherwise."""

    id: str
    status: RunStanding
    result: R | None = None
    error: RunProblem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """How a script is run: in which folder, with which guards, waiting how long for timers.

    Guards are None where those that the run has stay as they are.
    """

    journal_dir: str | os.PathLike[str] | None
    prepare_step: Chain | None
    review_step: Chain | None
    wait: DurationLike | None


class Scripted:
    """What a workflow has for scripts."""

    definition: WorkflowDefinition

    def run(
        self,
        *args: Any,
        journal_dir: str | os.PathLike[str] | None = None,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
        wait: DurationLike | None = None,
        **kwargs: Any,
    ) -> Run[Any]:
        """Start a run of the workflow here, and work on it until it ends or waits for somebody.

        `journal_dir` is the folder of the run's file, by default that of `$STEPWELL_DB`, else
        `.stepwell`. `prepare_step` and `review_step` are the guards that are asked before and after
        each step: one or a list, declared with `@step_guard`, or plain functions and `CommandHook`s
        that only this process knows. The run keeps them. Timers and retries are waited for, those
        that are due within `wait` if it is given; people are not. Other arguments are the
        workflow's own.

        A run that fails is returned, not raised. Raises `TypeError` and `PayloadError` on arguments
        that do not fit, before there is a run; `UsageError` inside of a run.
        """
        _refuse_inside("run")
        self._refuse_shadowed()
        options = _options(journal_dir, prepare_step, review_step, wait)
        run: Run[Any] = _scripts().run(self, args, kwargs, options)
        return run

    def resume(
        self,
        run_id: str,
        *,
        journal_dir: str | os.PathLike[str] | None = None,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
        wait: DurationLike | None = None,
    ) -> Run[Any]:
        """Go on with a run of this workflow, as `run` does, with the inbox as it is now.

        A run that has completed is returned with its result, and nothing runs. One that has failed
        or was cancelled is retried: recorded steps stay. Guards that are not given, before steps
        or after them, stay as the run has them; an empty list takes them away. A run that another
        process works on is waited for.

        Raises `RunNotFound`, and `UsageError` for a run of another workflow or inside of a run.
        """
        _refuse_inside("resume")
        options = _options(journal_dir, prepare_step, review_step, wait)
        run: Run[Any] = _scripts().resume(self, run_id, options)
        return run

    def _refuse_shadowed(self) -> None:
        own = inspect.signature(self.definition.function).parameters
        taken = [each.name for each in fields(ScriptOptions) if each.name in own]
        if taken:
            raise UsageError(
                f"workflow {self.definition.name!r}: run(...) has an option {taken[0]!r} of its "
                "own: give the parameter another name, or start the run with a client"
            )


def _options(
    journal_dir: str | os.PathLike[str] | None,
    prepare_step: Chain | None,
    review_step: Chain | None,
    wait: DurationLike | None,
) -> ScriptOptions:
    return ScriptOptions(
        journal_dir=journal_dir, prepare_step=prepare_step, review_step=review_step, wait=wait
    )


def _refuse_inside(what: str) -> None:
    if RUN.get() is not None or STEP.get() is not None:
        raise UsageError(
            f"{what}: this is code of a run, and a run that it began here would not be recorded; "
            "start a child run in the workflow"
        )


def _scripts() -> Any:
    return importlib.import_module(_SCRIPTS)
