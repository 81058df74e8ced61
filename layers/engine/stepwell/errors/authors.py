"""Errors of code: how it is declared, what it asks for, and what it raises itself."""

from __future__ import annotations

from datetime import datetime

from stepwell.errors.root import DurationLike, StepwellError


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
