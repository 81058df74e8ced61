"""Errors that a workflow can catch: what it waited for did not come about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stepwell.errors.root import Failure, StepwellError


class StepFailed(StepwellError):
    """A step failed for good. Catch it in the workflow; it is the same on first pass and replay.

    `step` is the step's id in the run, `name` its registered name, `attempts` the attempts made;
    `type`, `message` and `cause` describe the exception that ended the last attempt.
    """

    def __init__(self, step: str, name: str, attempts: int, failure: Failure) -> None:
        # Without the attempts: a crash may add one, and the text is recorded when it ends a run.
        super().__init__(f"step {name!r} failed: {failure}")
        self.step = step
        self.name = name
        self.attempts = attempts
        self.failure = failure

    @property
    def type(self) -> str:
        """Qualified class name of the exception that ended the last attempt."""
        return self.failure.type

    @property
    def message(self) -> str:
        """Text of the exception that ended the last attempt."""
        return self.failure.message

    @property
    def cause(self) -> Failure | None:
        """What that exception was raised from, or None."""
        return self.failure.cause


class StepTimeout(StepFailed):
    """A step exceeded its declared `timeout` on its last attempt."""


class StepBlocked(StepFailed):
    """A guard did not let the step pass, or failed itself; `message` says why.

    Nothing of the step is recorded but this, so a retry of the run asks its guards again.
    """


class StepInterrupted(StepFailed):
    """The last attempt of a step began and its process died before an outcome was recorded."""


class MapFailed(StepwellError):
    """More items of a map failed than may, or too few can still succeed; the others were cancelled.

    `map` is the map's id in the run, `name` its step's name; `result` holds what each item came to,
    with the errors of those that failed.
    """

    def __init__(self, map: str, name: str, why: str, result: Sequence[object]) -> None:
        super().__init__(f"map of step {name!r}: {why}")
        self.map = map
        self.name = name
        self.result = result


class CompensationFailed(StepwellError):
    """A saga failed, and some of what it had done could not be undone: somebody has to look.

    `original` is what made the saga fail, also the `__cause__`; `errors` are those of the
    compensations, in the order in which they were tried. All others were carried out.
    """

    def __init__(self, original: BaseException, errors: Sequence[Exception]) -> None:
        told = "; ".join(str(error) or type(error).__name__ for error in errors)
        super().__init__(f"{len(errors)} of the compensations failed: {told}")
        self.original = original
        self.errors = tuple(errors)


class ConditionNotMet(StepwellError):
    """A condition did not come about within its time, or within its number of looks.

    `name` is that of the check, `reason` which limit it was, `attempts` how often was looked,
    `state` what the last look left.
    """

    def __init__(
        self, name: str, reason: Literal["timeout", "attempts"], attempts: int, state: object
    ) -> None:
        limit = "in time" if reason == "timeout" else "within its attempts"
        super().__init__(f"condition {name!r} was not met {limit}: {attempts} looks")
        self.name = name
        self.reason = reason
        self.attempts = attempts
        self.state = state


class HookError(StepwellError):
    """A hook ended without an answer. `hook` is its id in the run, `name` its given name."""

    def __init__(self, hook: str, name: str, message: str) -> None:
        super().__init__(f"hook {name!r}: {message}")
        self.hook = hook
        self.name = name


class HookTimeout(HookError):
    """The deadline of a hook passed before an answer came (`on_timeout="raise"`)."""


class HookFailed(HookError):
    """`on_created` of a hook failed for good, so nobody can know of it; `failure` says why."""

    def __init__(self, hook: str, name: str, failure: Failure) -> None:
        super().__init__(hook, name, f"on_created failed: {failure}")
        self.failure = failure


class AmbiguousHook(HookError):
    """A hook counted by occurrence was answered before the checkpoint that this entry loaded.

    Give the hook a `key=`: counting again from the top could hand it an old answer.
    """


class ChildError(StepwellError):
    """A child run ended without a result. Catch it in the workflow; it is the same on every pass.

    `child_id` is the child's id in its parent, `name` its workflow, `run_id` the run: of a child
    that continued as new, its last link.
    """

    def __init__(self, child_id: str, name: str, run_id: str, message: str) -> None:
        super().__init__(f"child {name!r} (run {run_id}) {message}")
        self.child_id = child_id
        self.name = name
        self.run_id = run_id


class ChildFailed(ChildError):
    """A child ended as FAILED; `failure` says with what, and its `cause` what led to that."""

    def __init__(self, child_id: str, name: str, run_id: str, failure: Failure) -> None:
        super().__init__(child_id, name, run_id, f"{self._verb}: {failure}")
        self.failure = failure

    _verb = "failed"

    @property
    def type(self) -> str:
        """Qualified class name of what the child failed with."""
        return self.failure.type

    @property
    def message(self) -> str:
        """Text of what the child failed with."""
        return self.failure.message

    @property
    def cause(self) -> Failure | None:
        """What that was raised from, or None."""
        return self.failure.cause


class ChildNotStarted(ChildFailed):
    """A child could not be started: its input cannot be carried, or nobody knows its workflow."""

    _verb = "was not started"


class ChildTooDeep(ChildNotStarted):
    """A child would be nested deeper than the deployment allows. Do the work in fewer levels."""


class StreamRunTaken(ChildNotStarted):
    """The stream run is another run's: a stream run has one owner, also when that has ended.

    Choose another `stream_run_id`.
    """


class ChildCancelled(ChildError):
    """A child ended as CANCELLED; `reason` as given by who cancelled it."""

    def __init__(self, child_id: str, name: str, run_id: str, reason: str | None) -> None:
        super().__init__(
            child_id, name, run_id, f"was cancelled: {reason}" if reason else "was cancelled"
        )
        self.reason = reason


class ChildNotFound(ChildError):
    """A child was deleted before its parent knew how it ended."""

    def __init__(self, child_id: str, name: str, run_id: str) -> None:
        super().__init__(child_id, name, run_id, "is not there any more: it was deleted")
