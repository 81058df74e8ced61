"""Every error of Stepwell, in one tree. Standard library only: everything imports this module.

    StepwellError
    ├── DefinitionError            a decorator or option was used wrongly
    ├── UsageError                 a primitive was called where it cannot work
    │   ├── StackNotFound
    │   └── KeyConflict
    ├── FatalError                 raised by authors: do not retry
    ├── RetryableError             raised by authors: retry, perhaps after a stated delay
    ├── NonDeterminismError        the code no longer fits the recorded history
    ├── LimitExceeded              a run grew larger than one run may be
    ├── PayloadError               a value cannot be carried
    │   └── PayloadTooLarge
    ├── StepFailed                 a step ended without a result
    │   ├── StepTimeout
    │   ├── StepBlocked
    │   └── StepInterrupted
    ├── MapFailed                  more items of a map failed than may
    ├── CompensationFailed         a saga that failed could not undo all of its steps
    ├── ConditionNotMet            a condition that was waited for did not come about
    ├── HookError                  a hook ended without an answer
    │   ├── HookTimeout
    │   ├── HookFailed
    │   └── AmbiguousHook
    ├── ChildError                 a child run ended without a result
    │   ├── ChildFailed
    │   │   └── ChildNotStarted
    │   │       ├── ChildTooDeep
    │   │       └── StreamRunTaken
    │   ├── ChildCancelled
    │   └── ChildNotFound
    ├── AnswerError                an answer to a hook was not taken
    │   ├── InvalidToken
    │   ├── HookNotFound
    │   ├── HookAlreadyDecided
    │   ├── HookExpired
    │   └── PayloadRejected
    ├── SignalError                a signal was not taken
    │   ├── SignalRejected
    │   ├── StreamEnded
    │   ├── SubscriptionNotFound
    │   └── SignalNotParked
    ├── StartError                 a start was not accepted
    │   ├── WorkflowNotFound
    │   └── InputRejected
    └── RunError                   about one run, as a client sees it
        ├── RunNotFound
        │   └── RunDeleted
        ├── RunFailed
        ├── RunCancelled
        ├── RunBlocked
        ├── RunEnded
        ├── RunNotEnded
        ├── RunExists
        ├── NotRetryable
        ├── ForkRefused
        ├── ResultTimeout
        ├── EntryConflict
        └── IdempotencyConflict

`Suspended` and `Continued` stand outside the tree, as `BaseException`: they unwind user code and
are never errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

#: What a duration may be given as: seconds, a timedelta, or text such as "1h30m" or "500ms".
DurationLike = int | float | timedelta | str


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as it is recorded: enough to explain it, and to raise it alike on every pass.

    `type` is the qualified class name (`builtins` left out), `traceback` the formatted frames of
    user code, shortened; `cause` follows `__cause__`, at most a few levels deep.
    """

    type: str
    message: str
    traceback: str | None = None
    cause: Failure | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class StepwellError(Exception):
    """Root of all errors that Stepwell raises."""


class DefinitionError(StepwellError):
    """A workflow, step or hook is declared wrongly. Mend the declaration; nothing has run."""


class UsageError(StepwellError):
    """A primitive was called where it cannot work; the message says what to do instead."""


class StackNotFound(UsageError):
    """No stack of this name is to be seen with these credentials, in this region."""


class KeyConflict(UsageError):
    """A step's key was used before in this run, by a call that shares no outcome with this one.

    Raised in the workflow, the same on every pass. `key` names one call: give another key to a step
    of another name, to a call with another input, and after a call that was cancelled.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"key {key!r}: {message}")
        self.key = key


class FatalError(StepwellError):
    """Raise this in a step to fail it for good: no retry follows, whatever its policy says."""


class RetryableError(StepwellError):
    """Raise this in a step to have it tried again, as far as its policy allows.

    `retry_after` (a duration, or an aware datetime) replaces the delay of the policy.
    """

    def __init__(
        self, message: str = "", *, retry_after: DurationLike | datetime | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NonDeterminismError(StepwellError):
    """The code asked for something else than the history records. The run waits as BLOCKED.

    Deploy code that fits the history, or look at `recorded`, `asked` and `where` to see the change.
    `hint` says what probably changed and what to do, `diff` compares the calls around it line by
    line, `-` recorded and `+` asked for; each is empty where nothing is known.
    """

    def __init__(
        self, recorded: str, asked: str, where: str, *, hint: str = "", diff: str = ""
    ) -> None:
        lines = [f"at {where}: the history records {recorded}, the code asked for {asked}"]
        lines += [hint] if hint else []
        lines += [f"recorded (-) against asked for (+):\n{diff}"] if diff else []
        super().__init__("\n".join(lines))
        self.recorded = recorded
        self.asked = asked
        self.where = where
        self.hint = hint
        self.diff = diff


class LimitExceeded(StepwellError):
    """A run would grow above a limit of its deployment, and ended as FAILED: it cannot go on.

    `limit` is what is limited (events, bytes, steps), `most` the limit, `value` what the run came
    to, with what it asked for. Workflow code does not see this error. Split the work: have each run
    do a part of it, and go on as a new one with `continue_as_new`, or start children.
    """

    def __init__(self, limit: str, most: int, value: int) -> None:
        super().__init__(
            f"{value:,} {limit} in one run, the limit is {most:,}; split the work: "
            "go on as a new run with continue_as_new, or start children"
        )
        self.limit = limit
        self.most = most
        self.value = value


class PayloadError(StepwellError):
    """A value cannot be carried as JSON by its declared type. Permanent: it is never retried.

    `owner` names whose value it is (a step, a workflow, a hook), `path` where in the value.
    """

    def __init__(self, owner: str, path: str, reason: str) -> None:
        super().__init__(f"{owner}: value at {path}: {reason}")
        self.owner = owner
        self.path = path
        self.reason = reason


class PayloadTooLarge(PayloadError):
    """A value is above the hard limit. Store it elsewhere and pass a reference."""

    def __init__(self, owner: str, size: int, limit: int) -> None:
        super().__init__(owner, "$", f"{size:,} bytes, the limit is {limit:,}; pass a reference")
        self.size = size
        self.limit = limit


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


class AnswerError(StepwellError):
    """An answer to a hook was not taken. Nothing changed."""


class InvalidToken(AnswerError):
    """The text is no token of this deployment."""


class HookNotFound(AnswerError):
    """The token is genuine, yet its run or hook is not there (any more)."""


class HookAlreadyDecided(AnswerError):
    """Another answer was taken first; the first decision stands."""


class HookExpired(AnswerError):
    """The hook's deadline passed, or its run or step ended, before the answer came."""


class PayloadRejected(AnswerError):
    """The payload does not fit the hook's schema. The hook is still open: correct and send again.

    `errors` lists a JSON pointer and a message for each problem.
    """

    def __init__(self, errors: Sequence[Mapping[str, str]]) -> None:
        super().__init__(f"payload rejected: {_listed(errors)}")
        self.errors = tuple(errors)


class SignalError(StepwellError):
    """A signal was not taken, or not mended; `stream` and `stream_run` say where it was to go."""

    def __init__(self, stream: str, stream_run: str, message: str) -> None:
        super().__init__(f"stream run {stream}/{stream_run}: {message}")
        self.stream = stream
        self.stream_run = stream_run


class SignalRejected(SignalError):
    """The payload does not fit what a stream step takes. Nothing was sent: correct it.

    `signal_type` and `step` say whose schema it is, `errors` what is wrong with which part.
    """

    def __init__(
        self,
        stream: str,
        stream_run: str,
        signal_type: str,
        step: str,
        errors: Sequence[Mapping[str, str]],
    ) -> None:
        problem = f"signal {signal_type!r} does not fit step {step!r}: {_listed(errors)}"
        super().__init__(stream, stream_run, problem)
        self.signal_type = signal_type
        self.step = step
        self.errors = tuple(errors)


class StreamEnded(SignalError):
    """The stream run has ended, so nobody would take the signal. Nothing was sent."""

    def __init__(self, stream: str, stream_run: str) -> None:
        super().__init__(stream, stream_run, "it has ended and takes no more signals")


class SubscriptionNotFound(SignalError):
    """No step of this name has subscribed to the stream run; `step` is that name."""

    def __init__(self, stream: str, stream_run: str, step: str) -> None:
        super().__init__(stream, stream_run, f"no step {step!r} has subscribed")
        self.step = step


class SignalNotParked(SignalError):
    """The subscription has no parked signal of this number."""

    def __init__(self, stream: str, stream_run: str, step: str, sequence: int) -> None:
        super().__init__(stream, stream_run, f"step {step!r} has no parked signal {sequence}")


class StartError(StepwellError):
    """A start was not accepted. Nothing changed; `workflow` is the name that was asked for."""

    def __init__(self, workflow: str, message: str) -> None:
        super().__init__(f"workflow {workflow!r}: {message}")
        self.workflow = workflow


class WorkflowNotFound(StartError):
    """Workflows are published, yet none of this name. Publish it, or correct the name."""

    def __init__(self, workflow: str) -> None:
        super().__init__(workflow, "not published")


class InputRejected(StartError):
    """The input does not fit the workflow's published schema. Correct it and start again.

    `errors` lists a JSON pointer and a message for each problem.
    """

    def __init__(self, workflow: str, errors: Sequence[Mapping[str, str]]) -> None:
        super().__init__(workflow, f"input rejected: {_listed(errors)}")
        self.errors = tuple(errors)


class RunError(StepwellError):
    """About one run; `run_id` names it."""

    def __init__(self, run_id: str, message: str) -> None:
        super().__init__(f"run {run_id!r}: {message}")
        self.run_id = run_id


class RunNotFound(RunError):
    """No run has this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "not found")


class RunDeleted(RunNotFound):
    """The run was deleted. Its id, and so its idempotency key, stays taken for 30 days."""

    def __init__(self, run_id: str) -> None:
        RunError.__init__(self, run_id, "was deleted; its id stays taken for 30 days after that")


class RunFailed(RunError):
    """The run ended as FAILED; `failure` says with what."""

    def __init__(self, run_id: str, failure: Failure) -> None:
        super().__init__(run_id, f"failed: {failure}")
        self.failure = failure


class RunCancelled(RunError):
    """The run ended as CANCELLED; `reason` as given by who cancelled it."""

    def __init__(self, run_id: str, reason: str | None) -> None:
        super().__init__(run_id, f"cancelled: {reason}" if reason else "cancelled")
        self.reason = reason


class RunBlocked(RunError):
    """The run cannot go on with the code that is deployed; `reason` says what does not fit."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(run_id, f"blocked: {reason}")
        self.reason = reason


class RunEnded(RunError):
    """The run has ended, so nothing can be asked of it any more; `status` says how."""

    def __init__(self, run_id: str, status: str, message: str) -> None:
        super().__init__(run_id, f"has ended as {status}: {message}")
        self.status = status


class EntryConflict(RunError):
    """The inbox has another entry under this id. Use another id, or leave it out."""

    def __init__(self, run_id: str, entry_id: str) -> None:
        super().__init__(run_id, f"entry {entry_id!r} of its inbox holds something else")
        self.entry_id = entry_id


class RunExists(RunError):
    """A run of this id is there already. It is not overwritten: delete it, or import elsewhere."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "is there already, and is not overwritten")


class RunNotEnded(RunError):
    """The run goes on: only one that has ended can be retried or deleted. Wait, or cancel it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "has not ended; wait for its end, or cancel it first")


class NotRetryable(RunError):
    """The run did not fail, nor was it cancelled: nothing is left to do. Fork it, or start anew."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(
            run_id, f"is {status}, not failed or cancelled; fork it, or start a new run"
        )
        self.status = status


class ForkRefused(RunError):
    """The run cannot be forked like this; nothing was made. The message says what can be done.

    `errors` lists a JSON pointer and a message for each problem with an edited answer.
    """

    def __init__(self, run_id: str, message: str, errors: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(run_id, message)
        self.errors = tuple(errors)


class ResultTimeout(RunError):
    """The run has not ended within the time the caller wanted to wait. It goes on."""


class IdempotencyConflict(RunError):
    """The idempotency key was used before with another input. Use another key, or that input."""

    def __init__(self, run_id: str, key: str) -> None:
        super().__init__(run_id, f"idempotency key {key!r} was used with another input")
        self.key = key


def _listed(errors: Sequence[Mapping[str, str]]) -> str:
    return "; ".join(f"{each['pointer'] or '/'}: {each['message']}" for each in errors)


class Suspended(BaseException):
    """Unwinds user code when its run or step has to wait. Never catch it; never raise it."""


class Continued(BaseException):
    """Unwinds the code of a run that goes on as a new one. Never catch it; never raise it."""
