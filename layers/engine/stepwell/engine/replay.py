"""Replay: run workflow code against its history. Pure: no port, no clock, no effect.

The workflow function runs on the deterministic loop. Recorded outcomes are fed one at a time in
recorded order, the loop running until idle between two of them; on the first pass new outcomes are
fed in the same way, so no pass can tell itself from another. What the code waits for and has no
outcome is in `pending`: the shell performs it, records the outcome, and feeds it.

A record is used only if its kind, name and input digest agree with what the code asks for. If they
do not, or records are left that nobody asked for, the replay ends as `Blocked` before any effect.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.authoring.context import RUN, STEP, RunContext
from stepwell.authoring.hooks import STEP_HOOK_TIMEOUT
from stepwell.core import events as e
from stepwell.core.commands import Command, OpenHook, RunStep, StartTimer
from stepwell.core.definitions import HookDefinition, StepDefinition, WorkflowDefinition
from stepwell.core.ids import keyed
from stepwell.core.payload import digest
from stepwell.core.records import Millis, Payload
from stepwell.core.state import RunState
from stepwell.engine.loop import DeterministicLoop, Scope
from stepwell.engine.threads import WorkflowThread
from stepwell.errors import (
    HookError,
    HookFailed,
    HookTimeout,
    NonDeterminismError,
    PayloadError,
    StepFailed,
    StepInterrupted,
    StepTimeout,
    Suspended,
)

_LOG = logging.getLogger("stepwell.workflow")
_NO_INPUT = digest("")
_FAILED = {"error": StepFailed, "timeout": StepTimeout, "interrupted": StepInterrupted}
_DECISIONS = (e.HookReceived, e.HookExpired, e.HookClosed)
#: Stands for "decode it from the record" where a value may be passed along with an event.
UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Returned:
    """The workflow returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The workflow raised."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The workflow ended by its cancellation."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The code does not fit the history."""

    error: NonDeterminismError


Outcome = Returned | Raised | Cancelled | Blocked


@dataclass(slots=True)
class Pending:
    """A command without an outcome. `settle` takes the value or the error that ends the wait."""

    command: Command
    future: asyncio.Future[Any] | None = None
    fire: Callable[[], None] | None = None


class Replay(RunContext):
    """One pass of a workflow over its history, and on from there.

    `state` is the fold of the whole log so far; it is looked at, never changed. `texts` holds the
    JSON of values that the log keeps as blobs, by reference.
    """

    def __init__(
        self,
        run_id: str,
        workflow: WorkflowDefinition,
        state: RunState,
        texts: Mapping[Payload, str],
    ) -> None:
        assert state.started is not None
        self.run_id = run_id
        self.blocking = workflow.colour == "sync"
        self.pending: dict[str, Pending] = {}
        #: Commands that were asked for, and those not waited for any more, since last taken.
        self.fresh: list[Command] = []
        self.withdrawn: list[Command] = []
        self.outcome: Outcome | None = None
        self._workflow = workflow
        self._state = state
        self._texts = texts
        self._seed = state.started.seed
        self._asked: set[str] = set()
        self._over = False
        self._thread: WorkflowThread | None = None
        self.loop = DeterministicLoop(self, state.started.at)  # type: ignore[abstract]
        self._main = self._begin(state.started)

    # -- driving -----------------------------------------------------------------------------

    def _begin(self, started: e.RunStarted) -> asyncio.Task[Any]:
        arguments = self._workflow.arguments
        args, kwargs = arguments.decode(self._texts.get(started.input, started.input))
        context = contextvars.copy_context()
        context.run(RUN.set, self)
        context.run(STEP.set, None)
        function = self._workflow.function
        if self.blocking:
            self._thread = WorkflowThread(lambda: function(*args, **kwargs))
            main: Coroutine[Any, Any, Any] = self._thread.drive()
        else:
            main = function(*args, **kwargs)
        return self.loop._new_task(main, Scope(""), "workflow", context)

    def run(self, history: Sequence[e.Event]) -> None:
        """Begin, and feed the whole history. Afterwards `outcome` or `pending` says what is next."""
        self._drain()
        for event in history:
            if self.outcome is not None:
                break
            self.feed(event)
        self._check_leftovers()

    def feed(self, event: e.Event, value: Any = UNSET) -> None:
        """Tell the code one outcome and run it until idle; other events change nothing.

        `value` is the decoded value of the event where the caller has it already.
        """
        deliver = _DELIVERED.get(event.type)
        if deliver is None or self.outcome is not None:
            return
        if isinstance(event, _DECISIONS) and event.step is not None:
            return  # it belongs to the step that holds the hook
        self.loop.now = max(self.loop.now, event.at)
        deliver(self, event, value)
        self._drain()

    def _drain(self) -> None:
        try:
            self.loop.run_until_idle()
        except NonDeterminismError as error:
            self._block(error)
        if self.outcome is None and self._main.done():
            self.outcome = self._ended()

    def _ended(self) -> Outcome:
        if self._main.cancelled():
            return Cancelled()
        error = self._main.exception()
        return Returned(self._main.result()) if error is None else Raised(error)

    def _block(self, error: NonDeterminismError) -> None:
        self._over = True
        if not isinstance(self.outcome, Blocked):
            self.outcome = Blocked(error)

    def _check_leftovers(self) -> None:
        if isinstance(self.outcome, Blocked):
            return
        state = self._state
        recorded = [*state.steps, *state.timers]
        recorded += [hook.id for hook in state.hooks.values() if hook.step is None]
        left = [identity for identity in recorded if identity not in self._asked]
        if left:
            self._block(
                NonDeterminismError(
                    recorded=f"{self._kind(left[0])} {left[0]!r}",
                    asked=self._asks(),
                    where="the end of the history",
                )
            )

    def unwind(self) -> None:
        """End the pass: let the code's frames go, without letting them do anything more."""
        self._over = True
        marks = [Suspended() for _ in self.pending]
        for pending, mark in zip(self.pending.values(), marks, strict=True):
            if pending.future is not None and not pending.future.done():
                pending.future.set_exception(mark)
        self.pending.clear()
        self.loop.run_until_idle()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_idle()
        self.loop.close_asyncgens()
        self.loop.run_until_idle()
        self._let_go()
        if self.outcome is None:
            self._warn_of_swallowers(marks)

    def _let_go(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if self._main.done() and not self._main.cancelled():
            self._main.exception()  # taken, so that asyncio does not report it as lost

    def _warn_of_swallowers(self, marks: Sequence[Suspended]) -> None:
        if not self._main.done() or self._main.cancelled() or _holds_mark(self._main.exception()):
            return
        for mark in marks:
            frame = mark.__traceback__
            if frame is not None:
                code = frame.tb_frame.f_code
                _LOG.warning(
                    "run %s is suspended all the same: %s (%s:%d) swallowed the suspension; "
                    "catch Exception instead of BaseException",
                    self.run_id,
                    code.co_qualname,
                    code.co_filename,
                    frame.tb_lineno,
                )
                return

    # -- delivering outcomes -------------------------------------------------------------------

    def _take(self, identity: str, event: e.Event) -> Pending | None:
        """Who waits for an outcome; None when it was withdrawn: recorded, not delivered."""
        pending = self.pending.pop(identity, None)
        if pending is None and identity not in self._asked:
            self._block(
                NonDeterminismError(
                    recorded=f"{event.type} of {identity!r}",
                    asked=self._asks(),
                    where=f"event {event.type} of {identity!r}",
                )
            )
        return pending

    def _step_completed(self, event: e.StepCompleted, value: Any) -> None:
        pending = self._take(event.step, event)
        if pending is None or pending.future is None:
            return
        if value is UNSET:
            assert isinstance(pending.command, RunStep)
            try:
                text = self._texts.get(event.result, event.result)
                value = pending.command.step.result.decode(text)
            except PayloadError as error:
                self._block(
                    NonDeterminismError(
                        recorded=f"a result of step {event.step!r}",
                        asked=f"a result that fits its type now: {error.reason}",
                        where=f"step {event.step!r}",
                    )
                )
                return
        pending.future.set_result(value)

    def _step_failed(self, event: e.StepFailed, _: Any) -> None:
        pending = self._take(event.step, event)
        if pending is not None and pending.future is not None:
            kind = _FAILED[event.reason]
            pending.future.set_exception(kind(event.step, event.name, event.attempt, event.error))

    def _hook_received(self, event: e.HookReceived, _: Any) -> None:
        pending = self._take(event.hook, event)
        if pending is None or pending.future is None:
            return
        assert isinstance(pending.command, OpenHook)
        try:
            text = self._texts.get(event.payload, event.payload)
            pending.future.set_result(pending.command.hook.payload.decode(text))
        except PayloadError as error:
            pending.future.set_exception(error)

    def _hook_expired(self, event: e.HookExpired, _: Any) -> None:
        pending = self._take(event.hook, event)
        if pending is None or pending.future is None:
            return
        assert isinstance(pending.command, OpenHook)
        if pending.command.hook.on_timeout == "return":
            pending.future.set_result(STEP_HOOK_TIMEOUT)
        else:
            pending.future.set_exception(HookTimeout(event.hook, event.name, "its deadline passed"))

    def _hook_failed(self, event: e.HookFailed, _: Any) -> None:
        pending = self._take(event.hook, event)
        if pending is not None and pending.future is not None:
            pending.future.set_exception(HookFailed(event.hook, event.name, event.error))

    def _hook_closed(self, event: e.HookClosed, _: Any) -> None:
        pending = self._take(event.hook, event)
        if pending is not None and pending.future is not None:
            pending.future.set_exception(HookError(event.hook, event.name, "it was closed"))

    def _timer_fired(self, event: e.TimerFired, _: Any) -> None:
        pending = self._take(event.timer, event)
        if pending is None:
            return
        if pending.fire is not None:
            pending.fire()
        elif pending.future is not None:
            pending.future.set_result(None)

    def _cancel_requested(self, event: e.CancelRequested, _: Any) -> None:
        self._main.cancel(event.reason or "the run was cancelled")

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, command: Command) -> None:
        """Note that the code asks for a command. Raises `Suspended` when the pass is over."""
        self._asked.add(command.id)
        kind = self._kind(command.id)
        if kind is not None and kind != _kind_of(command):
            self._refuse(f"{kind} {command.id!r}", f"{_kind_of(command)} {command.id!r}")

    def _refuse(self, recorded: str, asked: str) -> None:
        self._block(NonDeterminismError(recorded, asked, f"workflow {self._workflow.name!r}"))
        raise Suspended

    def _kind(self, identity: str) -> str | None:
        if identity in self._state.steps:
            return "step"
        if identity in self._state.hooks:
            return "hook"
        return "timer" if identity in self._state.timers else None

    def _asks(self) -> str:
        waiting = [f"{_kind_of(p.command)} {p.command.id!r}" for p in self.pending.values()]
        return ", ".join(waiting[:5]) or "nothing more"

    async def _wait_for(self, command: Command) -> Any:
        future = self.loop.create_future()
        self.pending[command.id] = Pending(command, future)
        self.fresh.append(command)
        try:
            return await future
        except asyncio.CancelledError:
            self._withdraw(command)
            raise

    def _withdraw(self, command: Command) -> None:
        if self.pending.pop(command.id, None) is not None and not self._over:
            self.withdrawn.append(command)

    async def step(
        self, definition: StepDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run a step, or take its recorded outcome."""
        if self._over:
            raise Suspended
        by_name = definition.identity == "name"
        input_digest = _NO_INPUT if by_name else definition.arguments.digest(args, kwargs)
        identity = self.loop.scope().identify(definition.name)
        command = RunStep(identity, input_digest, definition, args, kwargs)
        self._ask(command)
        known = self._state.steps.get(identity)
        if known is not None and known.digest != input_digest:
            self._refuse(f"step {identity!r} with another input", f"step {identity!r}")
        return await self._wait_for(command)

    async def sleep(self, due: Millis) -> None:
        """Wait until a time; at once if it has passed."""
        if self._over:
            raise Suspended
        identity = self.loop.scope().identify("sleep")
        known = self._state.timers.get(identity)
        if known is None and due <= self.loop.now:
            return
        command = StartTimer(identity, "sleep", due if known is None else known.due)
        self._ask(command)
        await self._wait_for(command)

    def start_timer(self, due: Millis, fire: Callable[[], None]) -> str:
        """Start a timer for the loop, under the scope of the code that asked for the delay."""
        if self._over:
            raise Suspended
        identity = self.loop.scope().identify("timer")
        known = self._state.timers.get(identity)
        command = StartTimer(identity, "timer", due if known is None else known.due)
        self._ask(command)
        self.pending[identity] = Pending(command, fire=fire)
        self.fresh.append(command)
        return identity

    def drop_timer(self, timer_id: str) -> None:
        """A delay of the loop was cancelled."""
        pending = self.pending.get(timer_id)
        if pending is not None:
            self._withdraw(pending.command)

    async def hook(self, definition: HookDefinition, key: str | None) -> Any:
        """Wait for a hook's decision."""
        if self._over:
            raise Suspended
        name = definition.name
        identity = self.loop.scope().identify(name) if key is None else keyed(name, key)
        if key is not None and identity in self._asked:
            raise HookError(identity, name, f"key {key!r} is used twice in this run")
        command = OpenHook(identity, definition)
        self._ask(command)
        return await self._wait_for(command)

    def now(self) -> Millis:
        """The run's time."""
        return self.loop.now

    def random_bytes(self, name: str) -> bytes:
        """16 bytes from the run's seed and where the code asks."""
        where = self.loop.scope().identify(f"~{name}")
        return hashlib.sha256(f"{self._seed}|{where}".encode()).digest()[:16]

    def wait(self, primitive: Coroutine[Any, Any, Any]) -> Any:
        """Block the `def` workflow on a primitive."""
        assert self._thread is not None
        return self._thread.wait(primitive)


def _kind_of(command: Command) -> str:
    if isinstance(command, RunStep):
        return "step"
    return "hook" if isinstance(command, OpenHook) else "timer"


def _holds_mark(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds_mark(each) for each in error.exceptions)
    return isinstance(error, Suspended)


_DELIVERED: dict[str, Callable[[Replay, Any, Any], None]] = {
    "StepCompleted": Replay._step_completed,
    "StepFailed": Replay._step_failed,
    "HookReceived": Replay._hook_received,
    "HookExpired": Replay._hook_expired,
    "HookFailed": Replay._hook_failed,
    "HookClosed": Replay._hook_closed,
    "TimerFired": Replay._timer_fired,
    "CancelRequested": Replay._cancel_requested,
}
