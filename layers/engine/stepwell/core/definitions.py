"""What authors declare, as frozen values: a workflow, a step, a hook.

They hold the function and how its values are carried. Decorators in `authoring` make them; the
engine reads them. `function` is only ever the declared one: data never chooses code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from stepwell.core.payload import Arguments, Codec
from stepwell.core.records import Millis
from stepwell.core.retry import RetryPolicy

#: How a function is called: awaited, plainly (in a thread), or iterated for its chunks.
Colour = Literal["async", "sync", "stream"]
#: What the passing of a hook's deadline means to the code that waits.
OnTimeout = Literal["raise", "return", "wait"]
#: Tells the outside of a hook's token; awaited if it returns an awaitable.
OnCreated = Callable[[str], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """A step. `timeout` is per attempt, in ms; `identity="name"` leaves its input out of its identity.

    `chunk` carries streamed output, None unless the step streams.
    """

    name: str
    function: Callable[..., Any]
    colour: Colour
    retry: RetryPolicy
    timeout: Millis | None
    identity: Literal["input", "name"]
    arguments: Arguments
    result: Codec
    chunk: Codec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """A workflow and the version that new runs of it record."""

    name: str
    version: str
    function: Callable[..., Any]
    colour: Colour
    arguments: Arguments
    result: Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDefinition:
    """A hook as asked for: `schema` is the JSON schema of its payload as text, None for any JSON.

    `timeout` is in ms from when the hook's row is made.
    """

    name: str
    payload: Codec
    schema: str | None
    timeout: Millis | None
    on_created: OnCreated | None
    on_timeout: OnTimeout
