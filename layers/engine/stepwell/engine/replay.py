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
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from stepwell.authoring.context import RUN, STEP
from stepwell.authoring.suspension import suspension_in
from stepwell.core import events as e
from stepwell.core.attributes import Scalar
from stepwell.core.commands import Command, RunStep, StartMap
from stepwell.core.definitions import StepDefinition, WorkflowDefinition
from stepwell.core.map_outcomes import load_outcomes
from stepwell.core.records import Millis, Payload
from stepwell.core.state import RunState
from stepwell.engine.child_calls import ChildCall, ChildCalls
from stepwell.engine.emitting import Emitting
from stepwell.engine.endings import Blocked, Cancelled, Outcome, Parked, Raised, Returned
from stepwell.engine.fan_out import FAILED, NO_INPUT, FanOut, kept, outcome_of
from stepwell.engine.frames import warn_of_swallower
from stepwell.engine.hook_calls import HookCalls
from stepwell.engine.inbound import Inbound
from stepwell.engine.keyed import KeyedStep
from stepwell.engine.loop import DeterministicLoop, ReplayTask, Scope
from stepwell.engine.past import Past
from stepwell.engine.pending import Pending
from stepwell.engine.primitives import Primitives
from stepwell.engine.redo import Trail
from stepwell.engine.remarks import Remarks
from stepwell.engine.shielding import Shielding
from stepwell.engine.threads import WorkflowThread
from stepwell.engine.timer_calls import TimerCalls
from stepwell.errors import (
    NonDeterminismError,
    PayloadError,
    Suspended,
    UsageError,
)

_DECISIONS = (e.HookReceived, e.HookExpired, e.HookClosed)
#: Stands for "decode it from the record" where a value may be passed along with an event.
UNSET: Any = object()


class Replay(FanOut, ChildCalls, HookCalls, TimerCalls, Emitting, Inbound, Shielding):
    """One pass of a workflow over its history, and on from there.

    `state` is the fold of the whole log so far; it is looked at, never changed. `texts` holds the
    JSON of values that the log keeps as blobs, by reference. `grace` is how long, in seconds, the
    thread of a `def` workflow may take to end when its pass is over. `scope` is what all ids begin
    with.
    """

    def __init__(
        self,
        run_id: str,
        workflow: WorkflowDefinition,
        state: RunState,
        texts: Mapping[Payload, str],
        *,
        grace: float = 2.0,
        scope: str = "",
    ) -> None:
        assert state.started is not None
        self._scope = scope
        self.run_id = run_id
        self.blocking = workflow.colour == "sync"
        self.pending: dict[str, Pending] = {}
        self.stream_run = state.started.stream_run
        self.fresh: list[Command] = []
        self.withdrawn: list[Command] = []
        self.outcome: Outcome | None = None
        self._children: dict[str, ChildCall] = {}
        self.replaying = False
        self._workflow = workflow
        self._state = state
        self._lives = state.lives
        self._texts = texts
        self._seed = state.started.seed
        self._asked: dict[str, str | None] = {}
        self._history: Sequence[e.Event] = ()
        self._over = False
        #: Events of the log that stand between the start and the history.
        self.skipped = 0
        self._past = Past()
        self._late = 0
        self._primitives = Primitives()
        self._keyed: dict[str, KeyedStep] = {}
        self._early: dict[str, e.Event] = {}
        self._cancel_told = False
        self._cancel_told_early = False
        self._thread: WorkflowThread | None = None
        self.remarks = Remarks(state, workflow.context, self._is_behind)
        self.loop = DeterministicLoop(self, state.started.at)  # type: ignore[abstract]
        self._trail = Trail(self._asked, self.loop.told)
        self._main = self._begin(state.started, grace)

    def _begin(self, started: e.RunStarted, grace: float) -> ReplayTask:
        arguments = self._workflow.arguments
        args, kwargs = arguments.decode(self._texts.get(started.input, started.input))
        self._context = context = contextvars.copy_context()
        context.run(RUN.set, self)
        context.run(STEP.set, None)
        function = self._workflow.function
        if self.blocking:
            self._thread = WorkflowThread(lambda: function(*args, **kwargs), grace)
            main: Coroutine[Any, Any, Any] = self._thread.drive()
        else:
            main = function(*args, **kwargs)
        return self.loop._new_task(main, Scope(self._scope), "workflow", context)

    def run(self, history: Sequence[e.Event], *, recorded: int | None = None) -> None:
        """Begin, and feed the whole history. `outcome` or `pending` then says what is next.

        `recorded` is how many of its events earlier turns left, by default all: code has gone past
        no others, whatever was decided outside meanwhile.
        """
        self._history = history
        left = (len(history) if recorded is None else recorded) - 1  # code comes after the start
        if self._lives.retried:
            history = self._lives.effective(history, self.skipped)
        if self._state.epoch:
            history = self._begin_again(history)
            left -= self._state.epoch - 1
        self.replaying = left > 0
        with self.loop.running():
            self._drain()
            for event in history[1:]:
                if self.outcome is not None:
                    break
                left -= 1
                if not left:
                    self.replaying = False
                self.feed(event)
        self.replaying = False
        self._told_of_cancel()
        self._check_leftovers()

    def _is_behind(self) -> bool:
        """Whether older code has gone further than this pass so far, as the log shows."""
        return self.replaying or next(self._unasked(), None) is not None

    @property
    def asked(self) -> list[str]:
        """The ids of all that the code asked for so far, in the order of asking."""
        return list(self._asked)

    def feed(self, event: e.Event, value: Any = UNSET) -> None:
        """Tell the code one outcome and run it until idle; other events change nothing.

        `value` is the decoded value of the event where the caller has it already.
        """
        deliver = _DELIVERED.get(event.type)
        if deliver is None or self.outcome is not None:
            if isinstance(event, e.StepStarted) and event.input is not None:
                self._adopt(event)
            return
        if isinstance(event, _DECISIONS) and event.step is not None:
            return  # it belongs to the step that holds the hook
        self.loop.now = max(self.loop.now, event.at)
        deliver(self, event, value)
        self._drain()

    def _deliver(self, event: e.Event) -> None:
        _DELIVERED[event.type](self, event, UNSET)

    def _drain(self) -> None:
        self._run_until_idle()
        while self._past.asked and self.outcome is None:
            event = self._past.next()
            self.loop.now = max(self.loop.now, event.at)
            self._deliver(event)
            self._run_until_idle()

    def _run_until_idle(self) -> None:
        try:
            self.loop.run_until_idle()
        except UsageError as error:
            self.outcome = self.outcome or Raised(error)
        if self.outcome is None:
            if self._reason is not None:
                self.outcome = Parked(self._reason)
            elif self._main.done() and not self.loop.shielded:
                self.outcome = self._ended()

    def _ended(self) -> Outcome:
        try:
            result = self._main.result()
            forgotten = self._primitives.forgotten()
            return Returned(result) if forgotten is None else Raised(forgotten)
        except asyncio.CancelledError as error:
            # Only a cancellation that somebody asked for ends a run as cancelled.
            redo = self._trail.redo(error)
            return Cancelled(redo) if self._cancel_told else Raised(error, redo)
        except BaseException as error:  # whatever the workflow raised is its outcome
            elsewhere = suspension_in(error)  # made elsewhere, or it would be known
            if elsewhere is not None:
                return Parked(elsewhere.reason)
            return Raised(error, self._trail.redo(error))

    def _check_leftovers(self) -> None:
        if isinstance(self.outcome, Blocked):
            return
        left = next(self._unasked(), None)
        if left is not None:
            self._block_over(f"{self._kind(left)} {left!r}", left, ", the end of the history")

    def _unasked(self) -> Iterator[str]:
        """What is recorded of this run and was not asked for, so far."""
        state = self._state
        hooks = (hook.id for hook in state.hooks.values() if not hook.step)
        recorded = chain(
            state.maps, state.steps, state.timers, state.children, hooks, state.emits, state.polls
        )
        asked, past, kept = self._asked, self._past.known, self._lives.kept
        return (each for each in recorded if not (each in asked or each in past or each in kept))

    def unwind(self) -> None:
        """End the pass: let the code's frames go, without letting them do anything more."""
        self._over = True
        self.replaying = True  # what runs now is cleanup that the next pass comes to again
        self.pending.clear()
        swallowed = self.loop.unwind(self._context)
        self._primitives.close()
        if self._main.done() and not self._main.cancelled():
            self._main.exception()  # taken, so that asyncio does not report it as lost
        if self.outcome is None and swallowed:
            warn_of_swallower(self.run_id, swallowed[0])

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
                self._block_unfit(f"a result of step {event.step!r}", error)
                return
        pending.future.set_result(value)

    def _map_ended(self, event: e.MapEnded, _: Any) -> None:
        pending = self.pending.get(event.map)
        if pending is None or event.outcomes is None:
            return  # of items that are steps of their own, or of nobody who waits
        self.pending.pop(event.map)
        assert pending.future is not None
        assert isinstance(pending.command, StartMap)
        blocks = [load_outcomes(self._texts.get(block, block)) for block in event.outcomes]
        try:
            found = [outcome_of(pending.command, each, self._texts) for b in blocks for each in b]
        except PayloadError as error:
            self._block_unfit(f"results of map {event.map!r}", error)
        else:
            if any(status == "failed" for status, _ in found):
                self._trail.failed(event.map, pending.scope)
            pending.future.set_result(found)

    def _block_unfit(self, what: str, error: PayloadError) -> None:
        self._block(
            NonDeterminismError(
                recorded=what,
                asked=f"a result that fits its type now: {error.reason}",
                where=f"workflow {self._workflow.name!r}",
            )
        )

    def _step_failed(self, event: e.StepFailed, _: Any) -> None:
        pending = self._take(event.step, event)
        if pending is not None and pending.future is not None:
            self._trail.failed(event.step, pending.scope)
            kind = FAILED[event.reason]
            pending.future.set_exception(kind(event.step, event.name, event.attempt, event.error))

    def step(
        self,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run a step, or take its recorded outcome."""
        if key is None:
            return self._make(self._step(definition, args, kwargs), definition.name)
        return self._make(self._keyed_step(definition, args, kwargs, key), definition.name)

    async def _step(
        self, definition: StepDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        if self._over:
            await self._come_late()
        by_name = definition.identity == "name"
        input_digest = NO_INPUT if by_name else definition.arguments.digest(args, kwargs)
        scope = self.loop.scope()
        identity = scope.identify(definition.name)
        known = self._state.steps.get(identity)
        if known is not None and known.digest != input_digest:
            identity = self._asked_otherwise(identity, input_digest)
            known = self._state.steps.get(identity)
        text = kept(known, input_digest, definition, args, kwargs)
        snapshot = self.remarks.snapshot
        command = RunStep(identity, input_digest, definition, args, kwargs, snapshot, None, text)
        self._ask(command, fits=known is not None)
        if known is not None and known.digest != input_digest:
            self._check_input(command)
        # As `_wait_for` does; in place, for this is where a step's time goes.
        future: asyncio.Future[Any] = asyncio.Future(loop=self.loop)
        self.pending[identity] = Pending(command, future, None, scope)
        self.fresh.append(command)
        if definition.compensate is not None:
            self._join_saga(command, future)
        if self._early:
            self._tell_early(identity)
        try:
            return await future
        except asyncio.CancelledError:
            self._withdraw(command)
            raise

    async def _keyed_step(
        self, definition: StepDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str
    ) -> Any:
        if self._over:
            await self._come_late()
        call = self._begin_keyed(definition, args, kwargs, key)
        try:
            return await call.outcome()
        except asyncio.CancelledError:
            if call.abandon():
                self._withdraw(call.command)
            raise

    def note_undone(self, step: str) -> None:
        """A step is being undone by the one that was asked for last."""
        self._trail.undone(step, next(reversed(self._asked)))

    def compose(self, work: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
        """Work made of primitives, to be awaited as one of them is."""
        return self._make(work, name)

    def now(self) -> Millis:
        """The run's time."""
        return self.loop.now

    def patched(self, patch: str) -> bool:
        """Whether the run takes the new way at a patch."""
        return self._open_remarks().patched(patch)

    def set_attributes(self, changes: Mapping[str, Scalar]) -> None:
        """Change attributes of the run."""
        self._open_remarks().set_attributes(changes)

    @property
    def context(self) -> Any:
        """The run's context, as the code set it last."""
        return self.remarks.context

    def set_context(self, value: Any) -> None:
        """Replace the run's context."""
        self._open_remarks().set_context(value)

    def _open_remarks(self) -> Remarks:
        if self._over:
            raise Suspended  # nothing is recorded any more
        return self.remarks

    def random_bytes(self, name: str) -> bytes:
        """16 bytes from the run's seed and where the code asks."""
        where = self.loop.scope().identify(f"~{name}")
        return hashlib.sha256(f"{self._seed}|{where}".encode()).digest()[:16]

    def wait(self, primitive: Coroutine[Any, Any, Any]) -> Any:
        """Block the `def` workflow on a primitive."""
        assert self._thread is not None
        return self._thread.wait(primitive)


_DELIVERED: dict[str, Callable[[Replay, Any, Any], None]] = {
    "StepCompleted": Replay._step_completed,
    "MapEnded": Replay._map_ended,
    "StepFailed": Replay._step_failed,
    "HookReceived": Replay._hook_received,
    "HookExpired": Replay._hook_expired,
    "HookFailed": Replay._hook_failed,
    "HookClosed": Replay._hook_closed,
    "TimerFired": Replay._timer_fired,
    "InboxReceived": Replay._receive,
    "InboxPolled": Replay._inbox_polled,
    "ChildStarted": Replay._child_started,
    "ChildCancelRequested": Replay._child_cancel_requested,
    "ChildEnded": Replay._child_ended,
    "CancelRequested": Replay._cancel_requested,
    "RunRetried": Replay._run_went_on,
    "RunForked": Replay._run_went_on,
}
