"""Every error of Stepwell, in one tree. Standard library only: everything imports this package.

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

from stepwell.errors.authors import (
    DefinitionError,
    FatalError,
    KeyConflict,
    LimitExceeded,
    NonDeterminismError,
    PayloadError,
    PayloadTooLarge,
    RetryableError,
    StackNotFound,
    UsageError,
)
from stepwell.errors.calls import (
    AnswerError,
    EntryConflict,
    ForkRefused,
    HookAlreadyDecided,
    HookExpired,
    HookNotFound,
    IdempotencyConflict,
    InputRejected,
    InvalidToken,
    NotRetryable,
    PayloadRejected,
    ResultTimeout,
    RunBlocked,
    RunCancelled,
    RunDeleted,
    RunEnded,
    RunError,
    RunExists,
    RunFailed,
    RunNotEnded,
    RunNotFound,
    StartError,
    WorkflowNotFound,
)
from stepwell.errors.outcomes import (
    AmbiguousHook,
    ChildCancelled,
    ChildError,
    ChildFailed,
    ChildNotFound,
    ChildNotStarted,
    ChildTooDeep,
    CompensationFailed,
    ConditionNotMet,
    HookError,
    HookFailed,
    HookTimeout,
    MapFailed,
    StepBlocked,
    StepFailed,
    StepInterrupted,
    StepTimeout,
    StreamRunTaken,
)
from stepwell.errors.root import DurationLike, Failure, StepwellError
from stepwell.errors.streams import (
    SignalError,
    SignalNotParked,
    SignalRejected,
    StreamEnded,
    SubscriptionNotFound,
)
from stepwell.errors.unwinding import Continued, Suspended

__all__ = [
    "AmbiguousHook",
    "AnswerError",
    "ChildCancelled",
    "ChildError",
    "ChildFailed",
    "ChildNotFound",
    "ChildNotStarted",
    "ChildTooDeep",
    "CompensationFailed",
    "ConditionNotMet",
    "Continued",
    "DefinitionError",
    "DurationLike",
    "EntryConflict",
    "Failure",
    "FatalError",
    "ForkRefused",
    "HookAlreadyDecided",
    "HookError",
    "HookExpired",
    "HookFailed",
    "HookNotFound",
    "HookTimeout",
    "IdempotencyConflict",
    "InputRejected",
    "InvalidToken",
    "KeyConflict",
    "LimitExceeded",
    "MapFailed",
    "NonDeterminismError",
    "NotRetryable",
    "PayloadError",
    "PayloadRejected",
    "PayloadTooLarge",
    "ResultTimeout",
    "RetryableError",
    "RunBlocked",
    "RunCancelled",
    "RunDeleted",
    "RunEnded",
    "RunError",
    "RunExists",
    "RunFailed",
    "RunNotEnded",
    "RunNotFound",
    "SignalError",
    "SignalNotParked",
    "SignalRejected",
    "StackNotFound",
    "StartError",
    "StepBlocked",
    "StepFailed",
    "StepInterrupted",
    "StepTimeout",
    "StepwellError",
    "StreamEnded",
    "StreamRunTaken",
    "SubscriptionNotFound",
    "Suspended",
    "UsageError",
    "WorkflowNotFound",
]
