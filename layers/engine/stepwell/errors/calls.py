"""Errors of a client's calls: an answer, a start, and what is asked of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.errors.root import Failure, StepwellError


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
        super().__init__(f"payload rejected: {listed(errors)}")
        self.errors = tuple(errors)


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
        super().__init__(workflow, f"input rejected: {listed(errors)}")
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


def listed(errors: Sequence[Mapping[str, str]]) -> str:
    """Problems in one line."""
    return "; ".join(f"{each['pointer'] or '/'}: {each['message']}" for each in errors)
