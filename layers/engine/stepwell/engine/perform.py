"""Performing commands: what the workflow asks for becomes effects, outcomes become events.

Steps and hook openings run concurrently as tasks of the turn's loop. Each reports once; reports
are taken one at a time: recorded, then fed to the replay, which may ask for more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from heapq import heappop, heappush
from typing import Any

from stepwell.core import events as e
from stepwell.core.commands import (
    AwaitChild,
    CancelChild,
    Command,
    EmitSignal,
    OpenHook,
    PollInbox,
    RunStep,
    StartChild,
    StartMap,
    StartTimer,
)
from stepwell.core.failure import describe
from stepwell.core.parts import StepState
from stepwell.core.records import Millis
from stepwell.engine import dispatch, dispatched_maps, hooks
from stepwell.engine.checkpoints import expire_checkpoint
from stepwell.engine.children import Children
from stepwell.engine.endings import Raised
from stepwell.engine.growth import Growth
from stepwell.engine.lanes import Lanes
from stepwell.engine.openings import Openings, Report
from stepwell.engine.outcomes import (
    failed_event,
    interrupted_event,
    log_failure,
    outcome_event,
)
from stepwell.engine.replay import Replay
from stepwell.engine.signal_calls import SignalCalls
from stepwell.engine.step_runner import Broken, Done, EntryOutcome, StepEntry
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import LimitExceeded, PayloadError

#: What part of a turn's time a step may ask for and still be sure to get it in the next turn.
FRESH = 0.75
_STEP_ENDS = (e.StepCompleted, e.StepFailed)


class Performer:
    """Performs the commands of one turn."""

    def __init__(self, turn: TurnContext, replay: Replay, fraction: Callable[[], float]) -> None:
        self._turn = turn
        self._replay = replay
        self._fraction = fraction
        self._growth = Growth(turn.settings.limits, turn.state, replay.pending)
        self._entry = StepEntry if turn.guards is None else _guarded_entry()
        self._entries: dict[str, StepEntry] = {}
        self._openings = Openings(turn, replay, fraction, self._report, self._place)
        self._children = Children(turn, replay)
        self._signals = SignalCalls(turn, replay)
        self._ready: list[RunStep] = []
        self._lanes = Lanes()
        #: Dispatched maps that begin, or whose messages may be lost.
        self._maps: list[StartMap] = []
        #: Steps that would not end in the time that is left.
        self._held: list[RunStep] = []
        #: Dispatched attempts whose message has to be sent again.
        self._lost: list[StepState] = []
        #: Steps that have completed and do not need their checkpoint any more.
        self._dead_checkpoints: list[str] = []
        self._began = asyncio.get_running_loop().time()
        #: Whether the header was seen to ask for a cancel that the log does not know yet.
        self.cancelled = False
        #: Whether somebody was seen to have paused the run since this turn began.
        self.paused = False
        #: Whether a step was begun in this turn: each turn begins what it can begin at first.
        self._progress = False
        #: When what cannot begin yet can: a heap of time and id. Entries may be stale.
        self._alarms: list[tuple[Millis, str]] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._reports: deque[Report] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._look: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether something is in flight that will report."""
        return bool(self._entries or self._openings or self._reports)

    @property
    def reported(self) -> bool:
        """Whether a report waits to be taken."""
        return bool(self._reports)

    async def begin(self, *, new_steps: bool) -> bool:
        """Begin all that can begin now. Whether steps were held back.

        `new_steps=False` begins no more steps: the turn is out of time. Nothing begins once the run
        was seen to be paused.
        """
        if self.paused:
            return True
        while self._replay.outcome is None:
            if self._replay.withdrawn:
                self._take_withdrawn()
            fresh, self._replay.fresh = self._replay.fresh, []
            for command in fresh:
                if command.id in self._replay.pending or isinstance(command, EmitSignal):
                    self._place(command)
            if self._replay.remarks.fresh:
                self.record_remarks()
            if self._growth.exceeded is not None:
                await self._give_up(self._growth.exceeded)
                break
            if self._alarms and self._ring():
                continue
            if self._has_others and await self._send_others():
                continue
            if not self._ready or (self._progress and not new_steps):
                break
            await self._start()
        return bool(self._ready or self._held) and self._holds_back()

    def _holds_back(self) -> bool:
        return any(held.id in self._replay.pending for held in [*self._ready, *self._held])

    @property
    def _has_others(self) -> bool:
        """Whether something goes to other runs, or is to be sent again."""
        return bool(
            self._children.ready
            or self._signals.ready
            or self._lost
            or self._maps
            or self._turn.outbox.waits
        )

    async def _send_others(self) -> bool:
        """Perform what goes to other runs, and send again what may be lost. Whether there was any.

        What is durable of the signals that the code emitted is sent on the way.
        """
        if self._signals.ready:
            await self._signals.perform()
            return True
        if self._turn.outbox.waits:
            await self._turn.outbox.send()
        if self._children.ready:
            await self._children.perform()
            return True
        if self._lost or self._maps:
            await self._send_again()
            return True
        return False

    async def record_rest(self) -> None:
        """Record what the code has said and sent on the way to its end, or to where it waits."""
        self.record_remarks()
        if self._replay.outcome is not None:
            await self._signals.perform_last()

    def record_remarks(self) -> None:
        """Record what the code said of its run and the log does not hold yet."""
        for event in self._replay.remarks.take(self._turn.journal.now()):
            self._turn.journal.record(event)

    def _place(self, command: Command) -> None:
        """Find out when a command can begin: now, at a time, or not in this turn."""
        begins: Millis | None = 0
        if isinstance(command, RunStep):
            known = self._turn.state.steps.get(command.id)
            if known is not None:
                begins = self._step_begins(command, known)
        elif isinstance(command, StartMap):
            self._begin_map(command)
            return
        elif isinstance(command, OpenHook):
            begins = self._openings.begins(command)
        elif isinstance(command, EmitSignal | PollInbox):
            self._growth.ask(command)
            self._signals.ready.append(command)
            return
        elif not isinstance(command, StartTimer):
            self._place_child(command)
            return
        else:
            begins = command.due
            if command.id not in self._turn.state.timers:
                self._growth.ask(command)
        if begins is None:
            return
        if begins:
            heappush(self._alarms, (begins, command.id))
            return
        self._go(command)

    def _go(self, command: Command) -> None:
        """Begin a command that can begin, as soon as may be."""
        self._growth.ask(command)
        if isinstance(command, RunStep):
            if command.map is None or self._lanes.admit(command):
                self._ready.append(command)
        elif isinstance(command, OpenHook):
            self._openings.begin(command)

    def _begin_map(self, command: StartMap) -> None:
        self._lanes.open(command)
        known = self._turn.state.maps.get(command.id)
        if command.dispatched is not None:
            if known is None:
                self._growth.ask(command)
            if known is None or not known.told:
                self._maps.append(command)
        elif known is None:
            now = self._turn.journal.now()
            self._turn.journal.record(
                e.MapStarted(at=now, map=command.id, name=command.name, total=command.total)
            )

    async def _send_maps(self) -> None:
        """Begin dispatched maps, and send what may be lost of those that go on."""
        commands, self._maps = self._maps, []
        for command in commands:
            known = self._turn.state.maps.get(command.id)
            if known is None or known.status == "ended":  # called off before, and wanted again
                for event in await dispatched_maps.begin(self._turn, command):
                    self._record(event)
                known = self._turn.state.maps[command.id]
                self._progress = True
            elif not (
                dispatched_maps.perhaps_lost(self._turn, known)
                or await dispatched_maps.unheard(self._turn, known)
            ):
                continue
            if known.status == "started" and command.id in self._replay.pending:
                if self._turn.journal.needs_flush:
                    await self._turn.journal.flush()
                await dispatched_maps.send(self._turn, known)

    def _leave_lane(self, command: RunStep) -> None:
        self._ready += self._lanes.leave(command)

    def _place_child(self, command: StartChild | AwaitChild | CancelChild) -> None:
        if isinstance(command, AwaitChild) or not self._children.wanted(command):
            return  # its end comes from outside; or it is started, and now waited for
        if isinstance(command, StartChild):
            self._growth.ask(command)
        self._children.ready.append(command)

    def _supersede(self, known: StepState) -> None:
        """Forget what a step came to in an earlier life: mended code gives it another input."""
        at = self._turn.journal.now()
        self._turn.journal.record(e.StepSuperseded(at=at, step=known.id, name=known.name))

    def _step_begins(self, command: RunStep, known: StepState) -> Millis | None:
        if known.digest != command.digest:
            self._supersede(known)
            return 0
        if known.order:
            self._lanes.occupy(command)
            if dispatch.perhaps_lost(self._turn, known):
                self._lost.append(known)
            return None
        if known.status == "started":
            return 0
        if known.status == "retrying":
            return known.due
        return 0 if known.status == "suspended" and known.woken else None

    def _ring(self) -> bool:
        """Act on the earliest alarm if its time has come. Whether it had."""
        due, identity = self._alarms[0]
        pending = self._replay.pending.get(identity)
        if pending is None:  # withdrawn in the meantime
            heappop(self._alarms)
            return True
        if not self._turn.due(due):
            return False
        heappop(self._alarms)
        command = pending.command
        if isinstance(command, StartTimer):
            at = max(self._turn.journal.now(), due)
            self._record(e.TimerFired(at=at, timer=command.id, name=command.name, due=due))
            return True
        self._go(command)
        return True

    async def _give_up(self, error: LimitExceeded) -> None:
        """End the run: it wishes for more than one run may be. What was reported is recorded."""
        self._replay.outcome = Raised(error)
        while self._reports:
            work = self._reports.popleft()()
            if work is not None:
                await work

    async def _start(self) -> None:
        commands, self._ready = self._ready, []
        ready: list[StepEntry] = []
        dispatched: list[RunStep] = []
        for command in commands:
            if command.step.dispatch == "inline" and not self._fits(command):
                self._held.append(command)
            elif self._was_interrupted(command):
                continue
            elif command.step.dispatch == "inline":
                ready.append(self._entry(self._turn, command, self._report_entry))
            else:
                dispatched.append(command)
            self._progress = True
        if dispatched:
            dispatched = await self._record_dispatched(dispatched)
        for entry in ready:
            # Where the last delivery of this message may have died in one, all attempts count.
            if self._turn.overtakes or entry.command.step.at_most_once:
                self._record_start(entry)
        if ready or dispatched:
            await self._settle_before()
        for entry in ready:
            if entry.step_id in self._replay.pending:
                self._entries[entry.step_id] = entry
                entry.start()
        if dispatched:
            steps = self._turn.state.steps
            await dispatch.send_all(self._turn, [steps[each.id] for each in dispatched])

    async def _settle_before(self) -> None:
        """Make durable what leads to a step, and send what was emitted before it."""
        if self._turn.journal.needs_flush:
            await self._turn.journal.flush()
        if self._turn.outbox.waits:
            await self._turn.outbox.send()

    def _fits(self, command: RunStep) -> bool:
        """Whether an attempt surely ends before the process does.

        One that would fare no better in the next turn is begun: because it asks for nearly all of a
        turn's time, or because this turn, with nothing begun yet, is as good as any.
        """
        ends, timeout = self._turn.ends_at, command.step.timeout
        if ends is None or timeout is None or not self._progress:
            return True
        now, asked = asyncio.get_running_loop().time(), timeout / 1000
        return now + asked <= ends or asked > (ends - self._began) * FRESH

    async def _record_dispatched(self, commands: list[RunStep]) -> list[RunStep]:
        """Record attempts that are dispatched. Returns those that did not fail at once."""
        inputs = await dispatch.inputs(self._turn, commands)
        recorded = []
        for command, value in zip(commands, inputs, strict=True):
            if command.id not in self._replay.pending:
                continue  # one before it failed just now, and nobody waits for this one any more
            if isinstance(value, PayloadError):
                self._record(
                    failed_event(
                        command,
                        1,
                        failure=describe(value),
                        reason="error",
                        at=self._turn.journal.now(),
                    )
                )
                self._leave_lane(command)
            else:
                self._turn.journal.record(dispatch.started(self._turn, command, value))
                recorded.append(command)
        return recorded

    async def _send_again(self) -> None:
        lost, self._lost = self._lost, []
        if self._turn.journal.needs_flush:
            await self._turn.journal.flush()
        await dispatch.send_all(self._turn, lost)
        if self._maps:
            await self._send_maps()

    def _was_interrupted(self, command: RunStep) -> bool:
        """Whether its last attempt died and the policy, not this turn, says what comes next."""
        known = self._turn.state.steps.get(command.id)
        if known is None or known.status != "started":
            return False
        policy = command.step.retry
        if not command.step.at_most_once and known.attempts < policy.max_attempts:
            return False
        now = self._turn.journal.now()
        self._leave_lane(command)
        event = interrupted_event(command, known.attempts, now, self._fraction())
        log_failure(self._turn.run_id, event)
        self._record(event)
        if isinstance(event, e.StepRetryScheduled):
            self._place(command)
        return True

    def _record_start(self, entry: StepEntry) -> None:
        command = entry.command
        self._turn.journal.record(
            e.StepStarted(
                at=self._turn.journal.now(),
                step=command.id,
                name=command.step.name,
                digest=command.digest,
                attempt=entry.attempt,
            )
        )

    def _report_entry(self, entry: StepEntry, outcome: EntryOutcome) -> None:
        self._report(partial(self._entry_ended, entry, outcome))

    def _report(self, report: Report) -> None:
        self._reports.append(report)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until something is reported, a timer is due or it is time to look at the header."""
        if self._reports:
            return
        await asyncio.sleep(0)  # a body that never waits is through after one round of the loop
        if self._reports:
            return
        loop = asyncio.get_running_loop()
        if self._look is None:
            every = self._turn.settings.look_every / 1000
            self._look = loop.call_later(every, self._wake)
        self._waiter = loop.create_future()
        due = self._alarms[0][0] if self._alarms else None
        alarm = None if due is None else loop.create_task(self._alarm(due))
        try:
            await self._waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()
        if self._look.when() <= loop.time():
            self._look = None
            await self._look_at_header()

    async def _alarm(self, due: Millis) -> None:
        await self._turn.ports.clock.sleep_until(due)
        self._wake()

    async def _look_at_header(self) -> None:
        header = await self._turn.ports.store.get_header(self._turn.run_id)
        self.paused = header is not None and header.paused
        if header is not None and header.cancel_requested:
            # Its message waits behind this turn, which had better not begin more.
            self.cancelled = self._turn.state.cancel is None
            for entry in self._entries.values():
                entry.flag_cancelled()

    async def take_reports(self) -> None:
        """Record what was reported and feed it, one report at a time."""
        while self._reports and self._replay.outcome is None:
            work = self._reports.popleft()()
            if work is not None:
                await work

    def _entry_ended(
        self, entry: StepEntry, outcome: EntryOutcome
    ) -> Coroutine[Any, Any, None] | None:
        command = entry.command
        self._entries.pop(command.id, None)
        if isinstance(outcome, Broken):
            raise outcome.error
        if command.map is not None:
            self._leave_lane(command)
        event = outcome_event(entry, outcome, self._turn.journal.now(), self._fraction)
        if not isinstance(event, _STEP_ENDS):
            log_failure(self._turn.run_id, event)
            self._turn.journal.record(event)
            if isinstance(event, e.StepRetryScheduled):
                self._place(command)
            return None
        self._turn.journal.record(event, lazy=command.step.commit == "lazy")
        value = None
        if isinstance(outcome, Done):
            value = outcome.value
            if entry.checkpointed:
                self._dead_checkpoints.append(command.id)
        else:
            log_failure(self._turn.run_id, event)
        tell = self._tell_durably if self._turn.overtakes else self._tell
        return tell(event, value)

    async def _tell_durably(self, event: e.StepCompleted | e.StepFailed, value: Any) -> None:
        # The code that goes on from here may be what killed the process the last time. Then it is
        # not the step that shall be tried again, and blamed in the end.
        await self._turn.journal.flush()
        closing = self._tell(event, value)
        if closing is not None:
            await closing

    def _tell(
        self, event: e.StepCompleted | e.StepFailed, value: Any
    ) -> Coroutine[Any, Any, None] | None:
        """Tell the code what its step came to; close the hooks that the step has left."""
        self._replay.feed(event, value)
        if not self._turn.rows:
            return None
        hook_ids = hooks.open_hooks_of(self._turn, event.step)
        return hooks.close_all(self._turn, hook_ids) if hook_ids else None

    def _record(self, event: e.Event) -> None:
        self._turn.journal.record(event)
        self._replay.feed(event)

    async def expire_checkpoints(self) -> None:
        """Let the checkpoints of completed steps go; that they completed must be durable."""
        steps, self._dead_checkpoints = self._dead_checkpoints, []
        for step in steps:
            await expire_checkpoint(self._turn.ports, self._turn.run_id, step)

    def _take_withdrawn(self) -> None:
        for command in self._replay.withdrawn:
            entry = self._entries.pop(command.id, None)
            if entry is not None:
                self._leave(entry)
            opening = self._openings.withdraw(command.id)
            if opening is not None:
                self._leaving.add(opening)
        self._replay.withdrawn.clear()

    def _leave(self, entry: StepEntry) -> None:
        entry.withdraw()
        if entry.task is not None and not entry.blocking:
            self._leaving.add(entry.task)

    async def stop(self) -> None:
        """End what is in flight; its outcomes are dropped. Bodies get a grace to clean up."""
        for entry in self._entries.values():
            self._leave(entry)
        self._entries.clear()
        self._leaving.update(self._openings.stop())
        if self._look is not None:
            self._look.cancel()
        if self._leaving:
            grace = self._turn.settings.step_grace / 1000
            await asyncio.wait(self._leaving, timeout=grace)


def _guarded_entry() -> type[StepEntry]:
    # Few runs have guards: what asks them is imported for the first that has.
    from stepwell.engine.guarding import GuardedEntry  # noqa: PLC0415

    return GuardedEntry
