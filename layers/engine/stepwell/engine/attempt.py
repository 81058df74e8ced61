"""One attempt of a dispatched step, made outside of the run's turns.

    load → claim the step's row → run the body → put what came of it into the row → wake the run

The row decides everything: who works on the attempt, whether anybody still waits for it, what came
of it. A message that arrives twice, late or for nothing changes nothing. An attempt whose process
died is not made again under the same number: it is reported as interrupted, and the run's next turn
dispatches the next one, as the step's policy says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from stepwell.core import events as e
from stepwell.core.commands import RunStep, Snapshot
from stepwell.core.decide import closing
from stepwell.core.definitions import GuardDefinition, StepDefinition, WorkflowDefinition
from stepwell.core.messages import StepAttempt, StepReported, Wake
from stepwell.core.overrides import overridden
from stepwell.core.parts import StepState
from stepwell.core.payload import codec
from stepwell.core.records import Attention, HookRow, HookStatus, Millis, RunHeader, StepRow
from stepwell.core.state import RunState, fold_commits
from stepwell.engine.chains import GuardChain, UnknownGuard, found
from stepwell.engine.checkpoints import expire_checkpoint
from stepwell.engine.guarding import GuardedEntry
from stepwell.engine.journal import AttemptJournal, Fenced
from stepwell.engine.outbox import Outbox
from stepwell.engine.outcomes import interrupted_event, log_failure, outcome_event
from stepwell.engine.ports import Ports, RunRows, TransientError
from stepwell.engine.puts import Puts
from stepwell.engine.settings import Settings
from stepwell.engine.step_runner import Broken, EntryOutcome, StepEntry
from stepwell.engine.threads import ThreadPool
from stepwell.engine.turn_context import TurnContext
from stepwell.engine.values import Values
from stepwell.errors import PayloadError

_LOG = logging.getLogger("stepwell.engine")
#: How long a claim holds where nothing ends the process and the step has no timeout.
_LONGEST: Millis = 12 * 60 * 60_000


class AttemptEnd(StrEnum):
    """What a message of the step queue led to."""

    REPORTED = "reported"
    NOTHING = "nothing to do"


class StepBusy(TransientError):
    """Another message's receiver works on the attempt, until `until` at the latest."""

    def __init__(self, attempt: StepAttempt, until: Millis) -> None:
        super().__init__(f"step {attempt.step!r} of run {attempt.run_id!r} is being worked on")
        self.until = until


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A received message of the step queue; `time_left` until its receiver's process ends."""

    attempt: StepAttempt
    message_id: str
    receive_count: int
    time_left: Millis | None
    #: Unique: a queue may deliver one message twice at once, and count that as one receive.
    nonce: str

    @property
    def claim(self) -> str:
        """What names this receive in the row."""
        return f"{self.message_id}#{self.receive_count}#{self.nonce}"

    def took_before(self, row: StepRow) -> bool:
        """Whether the row's claim is of an earlier receive of this message, which is then over."""
        message_id, count, _ = (row.claim or "#0#").rsplit("#", 2)
        return message_id == self.message_id and int(count) < self.receive_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a process has to make attempts with."""

    ports: Ports
    settings: Settings
    pool: ThreadPool
    notifiers: ThreadPool
    fraction: Callable[[], float]
    guard: Callable[[str], GuardDefinition | None]
    workflow: Callable[[str], WorkflowDefinition | None]


async def make_attempt(
    means: Means, step: Callable[[str], StepDefinition | None], received: Received
) -> AttemptEnd:
    """Make the attempt that a message asks for, if it is to be made. See `Engine.run_attempt`."""
    attempt = received.attempt
    rows = await means.ports.store.load(attempt.run_id)
    state = fold_commits(rows.commits)
    known = state.steps.get(attempt.step)
    if rows.header is None or known is None:
        return AttemptEnd.NOTHING
    if state.terminal or known.order != attempt.order:
        await _close_left(means.ports, rows, state, attempt)
        return AttemptEnd.NOTHING
    definition = step(known.name)
    if definition is None:
        raise TransientError(f"step {known.name!r} is not registered here")
    before = next((row for row in rows.steps if row.step == attempt.step), None)
    work = _Attempt(
        means,
        received,
        definition=overridden(definition, known.options),
        known=known,
        state=state,
        header=rows.header,
        rows=rows,
    )
    if before is None or before.order < attempt.order:
        return await work.begin(before)
    if before.order > attempt.order:
        return AttemptEnd.NOTHING
    if before.outcome is not None:
        return await work.report(before)
    if before.cancelled:
        # The log waits for it all the same: other code than that which called it off goes on.
        return await work.interrupted(before)
    if before.claim is None:
        return await work.begin(before)
    if not received.took_before(before) and before.until > means.ports.clock.now():
        raise StepBusy(attempt, before.until)
    return await work.interrupted(before)


async def _close_left(ports: Ports, rows: RunRows, state: RunState, attempt: StepAttempt) -> None:
    """Close what a step that nobody waits for left open: it may have opened hooks after its end."""
    step = state.steps.get(attempt.step)
    if step is None or not (state.terminal or step.status == "cancelled"):
        return
    at = max(ports.clock.now(), state.at)
    for row in rows.hooks:
        if row.step == attempt.step and row.status is HookStatus.PENDING:
            await ports.store.decide_hook(row.run_id, row.hook_id, closing(at))


class _Attempt:
    """The making of one attempt."""

    def __init__(
        self,
        means: Means,
        received: Received,
        *,
        definition: StepDefinition,
        known: StepState,
        state: RunState,
        header: RunHeader,
        rows: RunRows,
    ) -> None:
        self._means = means
        self._received = received
        self._definition = definition
        self._known = known
        self._state = state
        self._header = header
        self._rows = rows
        self._values = Values(means.ports.blobs, means.settings.sizes, header.run_id)
        self._checkpointed = False
        self._called_off = False
        self._chain: GuardChain | None = None

    async def begin(self, before: StepRow | None) -> AttemptEnd:
        """Claim the row, make the attempt and report it."""
        command = await self._command()
        self._chain = await self._guards()
        claimed = await self._claim(before)
        try:
            events = await self._run(command, claimed)
            end = AttemptEnd.NOTHING if events is None else await self._end(claimed, events)
        except BaseException as error:
            if isinstance(error, Fenced) and self._called_off:
                await self._leave()
                return AttemptEnd.NOTHING
            if not self._definition.at_most_once:
                await self._let_go(claimed)
            if isinstance(error, Fenced):  # another attempt went on in the meantime
                await self._tidy()
                raise TransientError(str(error)) from error
            raise
        if end is AttemptEnd.NOTHING:
            await self._leave()
        elif self._checkpointed and events and isinstance(events[-1], e.StepCompleted):
            await expire_checkpoint(self._means.ports, claimed.run_id, claimed.step)
        return end

    async def interrupted(self, before: StepRow) -> AttemptEnd:
        """Report that the process that made the attempt has died."""
        now = max(self._means.ports.clock.now(), self._state.at)
        command = RunStep(self._known.id, self._known.digest, self._definition, (), {})
        event = interrupted_event(command, self._known.attempts, now, self._means.fraction())
        _LOG.warning("run %s: step %r: %s", self._header.run_id, command.id, event.error.message)
        return await self._end(before, (event,))

    async def report(self, row: StepRow) -> AttemptEnd:
        """Wake the run: its row has the outcome."""
        await self._means.ports.queue.send(
            StepReported(
                run_id=row.run_id, step=row.step, order=row.order, claim=row.claim or "nobody"
            )
        )
        return AttemptEnd.REPORTED

    async def _claim(self, before: StepRow | None) -> StepRow:
        attempt, received = self._received.attempt, self._received
        claimed = StepRow(
            run_id=attempt.run_id,
            step=attempt.step,
            revision=1 if before is None else before.revision + 1,
            order=attempt.order,
            claim=received.claim,
            until=self._means.ports.clock.now() + self._longest(),
        )
        standing = await self._means.ports.store.put_step(claimed)
        if standing != claimed:
            raise StepBusy(attempt, self._means.ports.clock.now())
        return claimed

    def _longest(self) -> Millis:
        """How long the attempt can take at most."""
        if self._received.time_left is not None:
            return self._received.time_left
        timeout, grace = self._definition.timeout, self._means.settings.step_grace
        return _LONGEST if timeout is None else timeout + 2 * grace

    async def _let_go(self, claimed: StepRow) -> None:
        """A port failed: whoever receives the message next may begin at once.

        Nothing is undone where an outcome was put and only its reply was lost: that row stands.
        """
        try:
            await self._means.ports.store.put_step(
                replace(claimed, revision=claimed.revision + 1, claim=None, until=0)
            )
        except Exception as error:  # then the attempt counts as interrupted
            _LOG.info("the claim on step %r stays: %s", claimed.step, error)

    async def _leave(self) -> None:
        """Be done with the message. Raises when the log waits for what was called off."""
        rows, state = await self._tidy()
        known = state.steps.get(self._known.id)
        waited = not state.terminal and known is not None and known.order == self._known.order
        row = next((row for row in rows.steps if row.step == self._known.id), None)
        if waited and row is not None and row.cancelled and row.outcome is None:
            raise TransientError(f"step {self._known.id!r} was called off, and is waited for")

    async def _tidy(self) -> tuple[RunRows, RunState]:
        """The attempt found out late that nobody waits for it. How the run stands by now."""
        ports, attempt = self._means.ports, self._received.attempt
        rows = await ports.store.load(attempt.run_id)
        if rows.header is not None and rows.header.deleted_at is not None:
            # A turn deletes what was put too late.
            await ports.queue.send(Wake(run_id=attempt.run_id, cause=self._received.claim))
        state = fold_commits(rows.commits)
        await _close_left(ports, rows, state, attempt)
        return rows, state

    async def _command(self) -> RunStep:
        """What to run. Raises `TransientError` if the recorded input fits this code no more."""
        known, definition = self._known, self._definition
        assert known.input is not None
        text = await self._values.get(known.input)
        try:
            args, kwargs = definition.arguments.decode(text)
        except PayloadError as error:
            # It fitted when it was recorded: no failure of the step, it waits for code that fits.
            reason = f"the recorded input of step {known.id!r} does not fit its parameters: {error}"
            await self._mark_blocked(reason)
            raise TransientError(reason) from error
        return RunStep(known.id, known.digest, definition, args, kwargs, self._snapshot())

    def _snapshot(self) -> Snapshot | None:
        """The run's context as of the step's call; plain JSON where its type is not known."""
        text = self._known.context
        if text is None:
            return None
        workflow = self._means.workflow(self._header.workflow)
        if workflow is None or workflow.context is None:
            return Snapshot(text, codec(Any, f"context of step {self._known.name!r}"))
        return Snapshot(text, workflow.context.codec)

    async def _mark_blocked(self, reason: str) -> None:
        noted = self._header.attention
        if noted is not None and noted.reason == reason:
            return
        _LOG.warning("run %s is blocked: %s", self._header.run_id, reason)
        now = self._means.ports.clock.now()
        attention = Attention(kind="BLOCKED", reason=reason, since=now)
        header = replace(self._header, attention=attention, updated_at=now)
        await self._means.ports.store.update_header(header, over=self._header)

    async def _guards(self) -> GuardChain | None:
        """The guards of the run's steps. Raises `TransientError` where one is not known here."""
        if self._state.guards is None:
            return None
        try:
            return found(self._state.guards, self._means.guard)
        except UnknownGuard as error:
            await self._mark_blocked(str(error))
            raise TransientError(str(error)) from error

    async def _run(self, command: RunStep, claimed: StepRow) -> tuple[e.Event, ...] | None:
        loop = asyncio.get_running_loop()
        context = self._context(loop.time())
        if self._state.inbox:
            context.texts.update(await self._values.texts(self._state.inbox.values()))
        ended: asyncio.Future[EntryOutcome] = loop.create_future()

        def take(_: StepEntry, outcome: EntryOutcome) -> None:
            if not ended.done():
                ended.set_result(outcome)

        context = replace(context, confirm=partial(self._confirm, claimed))
        made = StepEntry if context.guards is None else GuardedEntry
        entry = made(context, command, take)
        entry.start()
        try:
            if not await self._watched(entry, ended, claimed):
                return None
        finally:
            if not ended.done():
                await self._withdraw(entry)
            raised = await context.puts.close()
        outcome = ended.result()
        if isinstance(outcome, Broken):
            raise outcome.error
        if raised:
            raise raised[0]
        self._checkpointed = entry.checkpointed
        at = context.journal.now()
        event = outcome_event(entry, outcome, at, self._means.fraction)
        log_failure(self._header.run_id, event)
        assert isinstance(context.journal, AttemptJournal)
        return (*context.journal.events, event)

    def _context(self, now: float) -> TurnContext:
        means, left = self._means, self._received.time_left
        journal = AttemptJournal(
            means.ports.store,
            means.ports.clock,
            self._header.run_id,
            self._received.claim,
            self._state,
        )
        return TurnContext(
            header=self._header,
            ports=means.ports,
            settings=means.settings,
            pool=means.pool,
            notifiers=means.notifiers,
            puts=Puts(),
            outbox=Outbox(means.ports, self._header.run_id, journal),
            state=self._state,
            journal=journal,
            values=self._values,
            rows={row.hook_id: row for row in self._rows.hooks},
            steps={row.step: row for row in self._rows.steps},
            time=means.ports.clock.now(),
            message_id=self._received.message_id,
            overtakes=self._received.receive_count > 1 or self._known.attempts > 1,
            settled=True,
            ends_at=None if left is None else now + means.settings.usable(left) / 1000,
            guards=self._chain,
        )

    async def _confirm(self, claimed: StepRow, hook: HookRow) -> None:
        """See that the step was not called off before anybody is told of its hook."""
        store = self._means.ports.store
        standing = await store.get_step(claimed.run_id, claimed.step)
        if standing == claimed:
            return
        if standing is None or standing.cancelled:
            at = max(self._means.ports.clock.now(), self._state.at)
            await store.decide_hook(hook.run_id, hook.hook_id, closing(at))
            self._called_off = True
        raise Fenced(f"nobody waits for this attempt of step {claimed.step!r} any more")

    async def _watched(
        self, entry: StepEntry, ended: asyncio.Future[EntryOutcome], claimed: StepRow
    ) -> bool:
        """Wait for the end, looking now and then whether anybody still waits. Whether so."""
        every = self._means.settings.look_every / 1000
        while True:
            await asyncio.wait({ended}, timeout=every)
            if ended.done():
                return True
            try:
                wanted = await self._wanted(entry, claimed)
            except TransientError as error:
                _LOG.info("step %r was not looked after: %s", claimed.step, error)
                continue
            if not wanted:
                return ended.done()

    async def _wanted(self, entry: StepEntry, claimed: StepRow) -> bool:
        store = self._means.ports.store
        header = await store.get_header(claimed.run_id)
        if header is None or header.status.terminal:
            return False
        if header.cancel_requested:
            entry.flag_cancelled()
        return await store.get_step(claimed.run_id, claimed.step) == claimed

    async def _withdraw(self, entry: StepEntry) -> None:
        entry.withdraw()
        if entry.task is not None and not entry.blocking:
            await asyncio.wait({entry.task}, timeout=self._means.settings.step_grace / 1000)

    async def _end(self, claimed: StepRow, events: tuple[e.Event, ...]) -> AttemptEnd:
        ended = replace(
            claimed, revision=claimed.revision + 1, outcome=e.dump_events(events).decode()
        )
        standing = await self._means.ports.store.put_step(ended)
        if standing == ended:
            return await self.report(ended)
        if standing.order != ended.order:
            return AttemptEnd.NOTHING
        if standing.outcome is not None:
            # Whoever put it may have died before the run was woken, and its message is this one.
            return await self.report(standing)
        if standing.cancelled:
            return AttemptEnd.NOTHING
        raise StepBusy(self._received.attempt, standing.until)
