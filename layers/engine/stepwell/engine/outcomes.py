"""What an attempt came to, as the event that records it; the same in a turn and elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable

from stepwell.core import events as e
from stepwell.core.commands import RunStep
from stepwell.core.records import Millis
from stepwell.engine.step_runner import Done, Failed, StepEntry, Waiting
from stepwell.errors import Failure, RetryableError, StepInterrupted

_LOG = logging.getLogger("stepwell.engine")

StepOutcome = e.StepCompleted | e.StepFailed | e.StepRetryScheduled | e.StepSuspended


def outcome_event(
    entry: StepEntry,
    outcome: Done | Failed | Waiting,
    at: Millis,
    fraction: Callable[[], float],
) -> StepOutcome:
    """The event for an entry that ended. `fraction` gives the chance, in [0, 1), of jitter."""
    command = entry.command
    if isinstance(outcome, Done):
        return e.StepCompleted(
            at=at,
            step=command.id,
            name=command.step.name,
            digest=command.digest,
            attempt=entry.attempt,
            result=outcome.result,
            output=outcome.output,
            guard=outcome.guard,
        )
    if isinstance(outcome, Waiting):
        return e.StepSuspended(
            at=at,
            step=command.id,
            name=command.step.name,
            digest=command.digest,
            attempt=entry.attempt,
            entry=entry.entry,
            output=outcome.output,
            save_id=outcome.save_id,
            reason=outcome.reason,
        )
    due = command.step.retry.decide(outcome.error, entry.attempt, fraction=fraction(), now=at)
    return failed_event(
        command,
        entry.attempt,
        failure=outcome.failure,
        reason=outcome.reason,
        at=at,
        due=due,
    )


def interrupted_event(
    command: RunStep, attempt: int, at: Millis, fraction: float
) -> e.StepFailed | e.StepRetryScheduled:
    """The event for an attempt that began and whose process died."""
    policy = command.step.retry
    due = None
    if not command.step.at_most_once or StepInterrupted in policy.retry_on:
        # Not the author's error: whatever errors the policy retries, this counts as one of them.
        due = policy.decide(RetryableError(), attempt, fraction=fraction, now=at)
    last = "" if due is not None else ", and it was the last one"
    failure = Failure(
        type="stepwell.errors.StepInterrupted",
        message=f"the process died in attempt {attempt}{last}",
    )
    return failed_event(command, attempt, failure=failure, reason="interrupted", at=at, due=due)


def failed_event(
    command: RunStep,
    attempt: int,
    *,
    failure: Failure,
    reason: e.FailureReason,
    at: Millis,
    due: Millis | None = None,
) -> e.StepFailed | e.StepRetryScheduled:
    """The event for an attempt that failed: for good, or until another one is `due`."""
    if due is None:
        return e.StepFailed(
            at=at,
            step=command.id,
            name=command.step.name,
            digest=command.digest,
            attempt=attempt,
            error=failure,
            reason=reason,
        )
    return e.StepRetryScheduled(
        at=at,
        step=command.id,
        name=command.step.name,
        digest=command.digest,
        attempt=attempt,
        error=failure,
        due=due,
    )


def log_failure(run_id: str, event: e.Event) -> None:
    """Say that an attempt failed, and with what kind of error: its text may quote a payload."""
    if isinstance(event, (e.StepFailed, e.StepRetryScheduled)):
        _LOG.info(
            "run %s: attempt %d of step %s failed with %s",
            run_id,
            event.attempt,
            event.step,
            event.error.type,
            extra={"step_id": event.step},
        )
