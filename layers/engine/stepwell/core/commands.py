"""Commands: what workflow code asks for, in the imperative. The shell performs them.

Each carries the identity under which its outcome is recorded. A command is asked again on every
replay; it is new only if the log has no outcome for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepwell.core.definitions import (
    ChildDefinition,
    ChildOptions,
    HookDefinition,
    StepDefinition,
)
from stepwell.core.fan_out import MapOptions
from stepwell.core.payload import Codec
from stepwell.core.records import Millis, Payload
from stepwell.core.signals import SignalDraft

#: What `kind_of` says of a `CancelChild`.
CANCEL_OF_CHILD = "cancel of child"


class Snapshot(NamedTuple):
    """A run's context at one moment: its JSON, and how that is read."""

    text: Payload
    codec: Codec


class RunStep(NamedTuple):
    """Run a step and record its outcome.

    `context` is the run's, as of the call; `map` is the map that it is an item of. `text` is the
    call as `Arguments.kept` keeps it: what was given is still in the hands of the code that asks.
    """

    id: str
    digest: str
    step: StepDefinition
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    context: Snapshot | None = None
    map: str | None = None
    text: Payload | None = None

    def given(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments of the call, as they were when it was made, for one body."""
        if self.text is None:
            return self.args, self.kwargs
        return self.step.arguments.decode(self.text)

    def input(self) -> Payload:
        """The arguments of the call as text. Raises `PayloadError` if they have none."""
        if self.text is not None:
            return self.text
        return self.step.arguments.encode(self.args, self.kwargs)


class DispatchedItems(NamedTuple):
    """The items of a map that are made elsewhere. `names` are their indexes or keys.

    `texts` are the calls as `Arguments.kept` keeps them; none of a map that has begun.
    """

    step: StepDefinition
    items: Sequence[Any]
    names: Sequence[str]
    digest: str
    options: MapOptions
    context: Snapshot | None
    texts: Sequence[Payload | None] = ()

    def input(self, index: int) -> Payload:
        """One item as the input of its step. Raises `PayloadError` if it has no text."""
        kept = self.texts[index] if self.texts else None
        return self.step.arguments.encode((self.items[index],), {}) if kept is None else kept


class StartMap(NamedTuple):
    """Run a step over `total` items, at most `max_concurrency` of them at a time.

    The items follow as steps of their own, unless they are to be `dispatched`.
    """

    id: str
    name: str
    total: int
    max_concurrency: int | None
    dispatched: DispatchedItems | None = None


class OpenHook(NamedTuple):
    """Open a hook and wait for its decision."""

    id: str
    hook: HookDefinition


class StartTimer(NamedTuple):
    """Wait until a time."""

    id: str
    name: str
    due: Millis


class StartChild(NamedTuple):
    """Start a child with this input, as JSON."""

    id: str
    digest: str
    child: ChildDefinition
    input: Payload
    options: ChildOptions


class AwaitChild(NamedTuple):
    """Wait for the end of a child that was started."""

    id: str


class CancelChild(NamedTuple):
    """Cancel a child that was started."""

    id: str
    child: str
    name: str
    reason: str | None


class EmitSignal(NamedTuple):
    """Emit a signal, at a time if there is one. Nobody waits for it."""

    id: str
    draft: SignalDraft
    due: Millis | None = None


class PollInbox(NamedTuple):
    """Look at the signals that wait for a subscription, of these types, at most so many."""

    id: str
    types: tuple[str, ...]
    limit: int


Command = (
    EmitSignal
    | PollInbox
    | RunStep
    | StartMap
    | OpenHook
    | StartTimer
    | StartChild
    | AwaitChild
    | CancelChild
)
