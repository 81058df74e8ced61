"""What one call of a step changes of its declaration, as text that travels with the call.

Whoever makes a dispatched attempt knows the declaration by the step's name, and reads the rest
here. Which errors are tried again is no part of it: classes are code, and data never chooses code.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from stepwell.core.definitions import StepDefinition
from stepwell.core.durations import to_millis
from stepwell.core.records import Millis
from stepwell.core.retry import RetryPolicy


def overrides(timeout: Millis | None, retry: RetryPolicy) -> str:
    """The text for a call's own timeout, in ms, and policy."""
    told: dict[str, Any] = {
        "timeout": timeout,
        "max_attempts": retry.max_attempts,
        "initial": to_millis(retry.initial),
        "factor": retry.factor,
        "max_delay": to_millis(retry.max_delay),
        "jitter": retry.jitter,
    }
    return json.dumps(told, separators=(",", ":"))


def overridden(declared: StepDefinition, text: str | None) -> StepDefinition:
    """The declaration as a call changed it."""
    if text is None:
        return declared
    told = json.loads(text)
    retry = replace(
        declared.retry,
        max_attempts=told["max_attempts"],
        initial=told["initial"] / 1000,
        factor=told["factor"],
        max_delay=told["max_delay"] / 1000,
        jitter=told["jitter"],
    )
    return replace(declared, retry=retry, timeout=told["timeout"], overrides=text)
