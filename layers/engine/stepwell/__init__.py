"""Stepwell: durable functions on AWS Lambda that you own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stepwell.authoring.attributes import set_attributes
from stepwell.authoring.cancellation import shield
from stepwell.authoring.checkpoints import (
    delete_step_checkpoint,
    load_step_checkpoint,
    save_step_checkpoint,
)
from stepwell.authoring.children import ChildHandle, continue_as_new, start_child
from stepwell.authoring.current import current
from stepwell.authoring.decorators import Result, step, workflow
from stepwell.authoring.fan_out import Ticket
from stepwell.authoring.guards import step_guard
from stepwell.authoring.hooks import STEP_HOOK_TIMEOUT, define_hook, hook, step_hook
from stepwell.authoring.questions import ask
from stepwell.authoring.run_context import set_context
from stepwell.authoring.scripts import Run, RunProblem
from stepwell.authoring.suspension import Suspend
from stepwell.authoring.timers import now, random, sleep, uuid4
from stepwell.authoring.versions import patched
from stepwell.core.backoff import Backoff
from stepwell.core.fan_out import ItemOutcome, MapResult
from stepwell.core.retry import RetryPolicy
from stepwell.errors import (
    AmbiguousHook,
    AnswerError,
    ChildCancelled,
    ChildError,
    ChildFailed,
    ChildNotFound,
    ChildNotStarted,
    ChildTooDeep,
    CompensationFailed,
    ConditionNotMet,
    DefinitionError,
    EntryConflict,
    Failure,
    FatalError,
    ForkRefused,
    HookAlreadyDecided,
    HookError,
    HookExpired,
    HookFailed,
    HookNotFound,
    HookTimeout,
    IdempotencyConflict,
    InputRejected,
    InvalidToken,
    KeyConflict,
    LimitExceeded,
    MapFailed,
    NonDeterminismError,
    NotRetryable,
    PayloadError,
    PayloadRejected,
    PayloadTooLarge,
    ResultTimeout,
    RetryableError,
    RunBlocked,
    RunCancelled,
    RunDeleted,
    RunEnded,
    RunError,
    RunExists,
    RunFailed,
    RunNotEnded,
    RunNotFound,
    StackNotFound,
    StartError,
    StepBlocked,
    StepFailed,
    StepInterrupted,
    StepTimeout,
    StepwellError,
    UsageError,
    WorkflowNotFound,
)

if TYPE_CHECKING:
    from stepwell.authoring.command_hook import CommandFailed, CommandHook
    from stepwell.authoring.conditions import wait_for_condition
    from stepwell.authoring.sagas import Saga, saga
    from stepwell.client import Client, resume_hook

#: Names whose modules are imported when they are first asked for: a worker does without most.
_LATER = {
    "Client": "stepwell.client",
    "CommandFailed": "stepwell.authoring.command_hook",
    "CommandHook": "stepwell.authoring.command_hook",
    "Saga": "stepwell.authoring.sagas",
    "resume_hook": "stepwell.client",
    "saga": "stepwell.authoring.sagas",
    "wait_for_condition": "stepwell.authoring.conditions",
}

__all__ = [
    "STEP_HOOK_TIMEOUT",
    "AmbiguousHook",
    "AnswerError",
    "Backoff",
    "ChildCancelled",
    "ChildError",
    "ChildFailed",
    "ChildHandle",
    "ChildNotFound",
    "ChildNotStarted",
    "ChildTooDeep",
    "Client",
    "CommandFailed",
    "CommandHook",
    "CompensationFailed",
    "ConditionNotMet",
    "DefinitionError",
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
    "ItemOutcome",
    "KeyConflict",
    "LimitExceeded",
    "MapFailed",
    "MapResult",
    "NonDeterminismError",
    "NotRetryable",
    "PayloadError",
    "PayloadRejected",
    "PayloadTooLarge",
    "Result",
    "ResultTimeout",
    "RetryPolicy",
    "RetryableError",
    "Run",
    "RunBlocked",
    "RunCancelled",
    "RunDeleted",
    "RunEnded",
    "RunError",
    "RunExists",
    "RunFailed",
    "RunNotEnded",
    "RunNotFound",
    "RunProblem",
    "Saga",
    "StackNotFound",
    "StartError",
    "StepBlocked",
    "StepFailed",
    "StepInterrupted",
    "StepTimeout",
    "StepwellError",
    "Suspend",
    "Ticket",
    "UsageError",
    "WorkflowNotFound",
    "ask",
    "continue_as_new",
    "current",
    "define_hook",
    "delete_step_checkpoint",
    "hook",
    "load_step_checkpoint",
    "now",
    "patched",
    "random",
    "resume_hook",
    "saga",
    "save_step_checkpoint",
    "set_attributes",
    "set_context",
    "shield",
    "sleep",
    "start_child",
    "step",
    "step_guard",
    "step_hook",
    "uuid4",
    "wait_for_condition",
    "workflow",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
