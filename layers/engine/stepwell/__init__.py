"""Stepwell: durable functions on AWS Lambda that you own."""

from stepwell.authoring.checkpoints import (
    delete_step_checkpoint,
    load_step_checkpoint,
    save_step_checkpoint,
)
from stepwell.authoring.current import current
from stepwell.authoring.decorators import Result, step, workflow
from stepwell.authoring.hooks import STEP_HOOK_TIMEOUT, define_hook, hook, step_hook
from stepwell.authoring.timers import now, random, sleep, uuid4
from stepwell.client import Client, resume_hook
from stepwell.core.retry import RetryPolicy
from stepwell.errors import (
    FatalError,
    HookError,
    HookTimeout,
    NonDeterminismError,
    PayloadError,
    RetryableError,
    StepFailed,
    StepTimeout,
    StepwellError,
)

__all__ = [
    "STEP_HOOK_TIMEOUT",
    "Client",
    "FatalError",
    "HookError",
    "HookTimeout",
    "NonDeterminismError",
    "PayloadError",
    "Result",
    "RetryPolicy",
    "RetryableError",
    "StepFailed",
    "StepTimeout",
    "StepwellError",
    "current",
    "define_hook",
    "delete_step_checkpoint",
    "hook",
    "load_step_checkpoint",
    "now",
    "random",
    "resume_hook",
    "save_step_checkpoint",
    "sleep",
    "step",
    "step_hook",
    "uuid4",
    "workflow",
]
