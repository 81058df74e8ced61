"""Where code runs: in a run's workflow, in a step of it, or outside of both.

Two context variables say it. The engine sets them and implements the two contexts; the modules
beside this one are the words that authors use, and only speak to these.

Every primitive has two colours. In `async` code it is awaited; in a `def` workflow or step the
same call blocks and returns the value. `coloured` is where that choice is made.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from stepwell.core.attributes import Scalar
from stepwell.core.definitions import (
    ChildDefinition,
    ChildOptions,
    HookDefinition,
    StepDefinition,
)
from stepwell.core.fan_out import MapOptions
from stepwell.core.records import ChildEnding, Millis, Payload
from stepwell.core.signals import NumberedSignal, SentSignal, SignalDraft
from stepwell.errors import DurationLike


class Submitted(ABC):
    """A step that goes on beside the code that submitted it."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether it has an outcome, or was cancelled."""

    @abstractmethod
    def cancel(self) -> None:
        """Wait for it no more."""

    @abstractmethod
    def outcome(self) -> Coroutine[Any, Any, Any]:
        """Wait for its result; whoever is cancelled meanwhile does not cancel it."""


class SagaContext(ABC):
    """A block whose steps are undone if it fails."""

    @abstractmethod
    def begins(
        self,
        step: str,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        outcome: asyncio.Future[Any],
    ) -> None:
        """A step that can be undone, by its id, was asked for in the block."""

    @abstractmethod
    def begins_items(
        self,
        steps: Sequence[str],
        definition: StepDefinition,
        items: Sequence[Any],
        outcomes: asyncio.Future[Sequence[tuple[str, Any]]],
    ) -> None:
        """A map whose items can be undone was asked for; each outcome is a status and a value."""

    @abstractmethod
    def completed(
        self,
        step: str | None,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
    ) -> None:
        """A step of the block has its result, so there is something to undo. No id: no run."""


class RunContext(ABC):
    """The workflow side of a run, during one turn."""

    run_id: str
    #: Whether the workflow is a `def` function, whose primitives block.
    blocking: bool
    #: Whether the history that earlier turns left is still being gone through, or the code's frames
    #: are let go at the end of a turn. False at the frontier, where the code does what is new.
    replaying: bool
    #: The folder of the local file that the run is in, None elsewhere.
    journal_dir: Path | None = None
    #: The stream run that the run owns or subscribes to, None for other runs.
    stream_run: str | None = None
    #: The saga whose block the code of a `def` workflow is in; `async` code has `SAGA`.
    saga: SagaContext | None = None

    @property
    @abstractmethod
    def inbox(self) -> Mapping[str, Any]:
        """The run's inbox as of now."""

    @abstractmethod
    def suspend(self, reason: str) -> None:
        """The code wants to wait for an input; may be called from its thread."""

    @abstractmethod
    def step(
        self,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run a step, or take its recorded outcome. Its identity is fixed when first awaited.

        With a `key` the identity is the key's; `KeyConflict` when that means another call.
        """

    @abstractmethod
    def map(
        self,
        definition: StepDefinition,
        items: Sequence[Any],
        keys: Sequence[str] | None,
        options: MapOptions,
    ) -> Coroutine[Any, Any, Any]:
        """Run a step over items. Its identity is fixed when first awaited."""

    @abstractmethod
    def submit(
        self,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str | None = None,
    ) -> Submitted:
        """Ask for a step at once, and go on. On the run's loop only."""

    @abstractmethod
    def sleep(
        self, due: Millis, name: str = "sleep", key: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Wait until a time; at once if it has passed.

        With a `key` its identity is the key's; `KeyConflict` when that was used before.
        """

    @abstractmethod
    def hook(self, definition: HookDefinition, key: str | None) -> Coroutine[Any, Any, Any]:
        """Wait for a hook's decision."""

    @abstractmethod
    def child(
        self,
        child: ChildDefinition,
        input: Payload,
        digest: str,
        options: ChildOptions,
        *,
        wait: bool,
    ) -> Coroutine[Any, Any, Any]:
        """Start a child; its result, or its handle."""

    @abstractmethod
    def child_result(self, child: str) -> Coroutine[Any, Any, Any]:
        """Wait for the end of a child that was started."""

    @abstractmethod
    def cancel_child(self, child: str, reason: str | None) -> Coroutine[Any, Any, None]:
        """Ask for a child that was started to be cancelled."""

    @abstractmethod
    def child_status(self, child: str) -> Literal["running"] | ChildEnding:
        """What the code has been told of a child that was started."""

    @abstractmethod
    def emit(
        self, draft: SignalDraft, when: DurationLike | datetime | None = None
    ) -> Coroutine[Any, Any, SentSignal]:
        """Emit a signal, now or at a time, and go on."""

    @abstractmethod
    def poll_inbox(
        self, types: tuple[str, ...], limit: int
    ) -> Coroutine[Any, Any, Sequence[NumberedSignal]]:
        """The signals that wait behind the one under way. In a subscription only."""

    @abstractmethod
    def continue_as_new(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NoReturn:
        """End the run and go on as a new one."""

    @abstractmethod
    def now(self) -> Millis:
        """The run's time: that of the last outcome it was told."""

    @abstractmethod
    def random_bytes(self, name: str) -> bytes:
        """16 bytes that are random, and the same on every replay."""

    @abstractmethod
    def patched(self, patch: str) -> bool:
        """Whether the run takes the new way at a patch."""

    @abstractmethod
    def set_attributes(self, changes: Mapping[str, Scalar]) -> None:
        """Change attributes of the run."""

    @property
    @abstractmethod
    def context(self) -> Any:
        """The run's context, as the code set it last."""

    @abstractmethod
    def set_context(self, value: Any) -> None:
        """Replace the run's context."""

    @abstractmethod
    def enter_shield(self) -> None:
        """From here on, cancelling the current branch waits."""

    @abstractmethod
    def leave_shield(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        """It waits no more. What to await to be told of a cancel that came, None if none did.

        With an `error`, which leaves the block, that is told at the next wait.
        """

    @abstractmethod
    def note(self, primitive: Coroutine[Any, Any, Any]) -> None:
        """A primitive was called and is to be awaited."""

    @abstractmethod
    def compose(self, work: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
        """Work made of primitives, to be awaited as one of them is. Called by an author's word."""

    @abstractmethod
    def note_undone(self, step: str) -> None:
        """A step is being undone by the one that was submitted last: a retry does both again."""

    @abstractmethod
    def wait(self, primitive: Coroutine[Any, Any, Any]) -> Any:
        """Block a `def` workflow on a primitive."""


class StepContext(ABC):
    """One entry of a step."""

    run_id: str
    step_id: str
    name: str
    attempt: int
    entry: int
    #: Monotonic seconds at which the attempt is cut off, None without a timeout.
    deadline: float | None
    #: Whether the step is a `def` function, whose primitives block.
    blocking: bool

    @property
    @abstractmethod
    def context(self) -> Any:
        """The run's context, as of the step's call."""

    @property
    @abstractmethod
    def inbox(self) -> Mapping[str, Any]:
        """The run's inbox as of the turn's start."""

    @property
    @abstractmethod
    def journal_dir(self) -> Path | None:
        """The folder of the local file that the run is in, None elsewhere."""

    @abstractmethod
    def suspend(self, reason: str) -> None:
        """The body wants to wait for an input; may be called from its thread."""

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """Whether nobody waits for this attempt any more."""

    @abstractmethod
    def hook(self, definition: HookDefinition, key: str | None) -> Coroutine[Any, Any, Any]:
        """Wait for a hook's decision; suspends the step if there is none yet."""

    @property
    @abstractmethod
    def stream_run(self) -> str | None:
        """The stream run that the step's run owns or subscribes to, None in other runs."""

    @abstractmethod
    def emit(
        self, draft: SignalDraft, when: DurationLike | datetime | None = None
    ) -> Coroutine[Any, Any, SentSignal]:
        """Emit a signal, now or at a time; the same one from every attempt of the step."""

    @abstractmethod
    def load_checkpoint(self, annotation: Any) -> Coroutine[Any, Any, Any]:
        """The step's checkpoint, None if there is none."""

    @abstractmethod
    def save_checkpoint(self, data: Any, annotation: Any) -> Coroutine[Any, Any, None]:
        """Save the step's checkpoint over the one before."""

    @abstractmethod
    def delete_checkpoint(self) -> Coroutine[Any, Any, None]:
        """Leave the checkpoint out from here on."""

    @abstractmethod
    def note(self, primitive: Coroutine[Any, Any, Any]) -> None:
        """A primitive was called and is to be awaited."""

    @abstractmethod
    def wait(self, primitive: Coroutine[Any, Any, Any]) -> Any:
        """Block a `def` step on a primitive."""


RUN: ContextVar[RunContext | None] = ContextVar("stepwell_run", default=None)
STEP: ContextVar[StepContext | None] = ContextVar("stepwell_step", default=None)
SAGA: ContextVar[SagaContext | None] = ContextVar("stepwell_saga", default=None)
#: The stream run that is being prepared by the code here, instead of the run's own.
STREAM_RUN: ContextVar[str | None] = ContextVar("stepwell_stream_run", default=None)


def coloured(context: RunContext | StepContext, primitive: Coroutine[Any, Any, Any]) -> Any:
    """The primitive to await, or, in `def` code, its value."""
    if context.blocking:
        return context.wait(primitive)
    context.note(primitive)
    return primitive


def never_awaited(primitive: Coroutine[Any, Any, Any]) -> bool:
    """Whether a primitive was called and has not begun, so that it did nothing so far."""
    if primitive.cr_frame is None:  # type: ignore[attr-defined]
        return False  # it has ended, as nearly all of them when this is asked
    return inspect.getcoroutinestate(primitive) == inspect.CORO_CREATED
