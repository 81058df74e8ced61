"""What authors declare, as frozen values: a workflow, a step, a hook; a child as it is asked for.

They hold the function and how its values are carried. Decorators in `authoring` make them; the
engine reads them. `function` is only ever the declared one: data never chooses code.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from stepwell.core.answers import check_schema
from stepwell.core.contexts import ContextType
from stepwell.core.payload import Arguments, Codec, digest
from stepwell.core.records import GuardChange, Millis, OnParentClose, Payload, PublishedWorkflow
from stepwell.core.retry import RetryPolicy
from stepwell.core.subscription import OnFailure
from stepwell.errors import DefinitionError, PayloadError

#: How a function is called: awaited, plainly (in a thread), or iterated for its chunks.
Colour = Literal["async", "sync", "stream"]
#: Where a step runs: within the turn, or in a function of its own, by the step queue.
Dispatch = Literal["inline", "worker"]
#: Whether a step's outcome is made durable before what comes after it, or along with it.
StepCommit = Literal["sync", "lazy"]
#: What the passing of a hook's deadline means to the code that waits.
OnTimeout = Literal["raise", "return", "wait"]
#: Tells the outside of a hook's token; awaited if it returns an awaitable.
OnCreated = Callable[[str], Awaitable[None] | None]
#: A definition is one item of the table: characters of its docstring, bytes of each of its schemas.
_DESCRIPTION_LIMIT = 4_000
_SCHEMA_LIMIT = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """A step. `timeout` is per attempt, in ms; None for no limit.

    `identity="name"` leaves the input out of the step's identity. `chunk` carries streamed output,
    None unless the step streams. `overrides` is what a call with options of its own changes, as
    `core.overrides` writes it. `compensate` undoes the step in a saga that fails: it is given the
    step's result and then its arguments.
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
    dispatch: Dispatch = "inline"
    overrides: str | None = None
    at_most_once: bool = False
    commit: StepCommit = "sync"
    compensate: StepDefinition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """A workflow and the version that new runs of it record; `context` is what its runs carry.

    `steps` gives the steps of the stream whose runs its runs own.
    """

    name: str
    version: str
    function: Callable[..., Any]
    colour: Colour
    arguments: Arguments
    result: Codec
    context: ContextType | None = None
    steps: Callable[[], Mapping[str, StreamStepDefinition]] | None = None

    @property
    def stream(self) -> bool:
        """Whether its runs own stream runs."""
        return self.steps is not None


#: Called with each signal, and with what it can decide; awaited if it returns an awaitable.
OnSignal = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStepDefinition:
    """A stream step: `signals` are the types that it takes, with the codec of the payload of each,
    None for any. `on_signal` decides what to do with each, None: the lifecycle is called.
    """

    name: str
    stream: str
    function: Callable[..., Any]
    colour: Colour
    signals: Mapping[str, Codec | None]
    on_signal: OnSignal | None
    retry: RetryPolicy
    on_failure: OnFailure

    @property
    def full_name(self) -> str:
        """The name of the workflow that its subscriptions are runs of. No other can have it."""
        return f"{self.stream}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDefinition:
    """The workflow of a child as its parent knows it.

    Without a `version` it was given by name: then its input is checked against what is published.
    With a `stream_run` it owns that stream run or, if its name says so, subscribes to it.
    """

    name: str
    version: str | None
    result: Codec
    stream_run: str | None = None


class ChildOptions(NamedTuple):
    """How a child is asked for: `context` is what it begins with, as JSON, None without one.

    `guards` is what its guards differ in from those of its parent.
    """

    key: str | None = None
    on_parent_close: OnParentClose = "cancel"
    context: Payload | None = None
    guards: GuardChange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDefinition:
    """A guard of steps: a function of what is about to be done, which answers what to do."""

    name: str
    function: Callable[..., Any]


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
    question: str | None = None


def published(definition: WorkflowDefinition, at: Millis) -> PublishedWorkflow:
    """What others may know of a workflow without its code: `at` is when it is published.

    A type that has no JSON schema, or one that no value could be checked against, is published
    without: then only the worker can tell whether an input fits.
    """
    input_schema = _schema_of(definition.arguments)
    result_schema = _schema_of(definition.result)
    description = (inspect.getdoc(definition.function) or "")[:_DESCRIPTION_LIMIT]
    signals = None if definition.steps is None else _signals_of(definition.steps())
    told = [definition.name, definition.version, description, input_schema, result_schema]
    told += [] if signals is None else [signals]
    return PublishedWorkflow(
        name=definition.name,
        version=definition.version,
        digest=digest(json.dumps(told)),
        published_at=at,
        input_schema="{}" if input_schema is None else input_schema,
        result_schema=result_schema,
        description=description,
        signals=signals,
    )


def _signals_of(steps: Mapping[str, StreamStepDefinition]) -> str:
    """What the steps of a stream take, as JSON."""
    types: dict[str, dict[str, Any]] = {}
    for step in steps.values():
        for kind, payload in step.signals.items():
            schema = None if payload is None else _schema_of(payload)
            types.setdefault(kind, {})[step.name] = None if schema is None else json.loads(schema)
    return json.dumps(types, sort_keys=True)


def _schema_of(carrier: Arguments | Codec) -> str | None:
    try:
        schema = carrier.schema()
        check_schema(schema, carrier.owner)
    except (DefinitionError, PayloadError):
        return None
    return schema if len(schema.encode()) <= _SCHEMA_LIMIT else None


def version_order(version: str) -> str:
    """Text that sorts as versions are meant: "10" after "9", "1.10" after "1.9"."""
    return re.sub(r"\d+", _sortable, version)


def _sortable(digits: re.Match[str]) -> str:
    number = digits[0].lstrip("0")
    return f"{len(number):03}{number}"
