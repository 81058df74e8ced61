"""A turn: one message's work on one run, from loading it to leaving it settled.

    load → make ready → record what was decided outside → replay → perform what is new, feed, repeat
         → settle

Nothing lives between turns but rows. Whatever woke it, a turn does the same, so duplicates change
nothing. It raises what a port raises, and `Fenced` when another turn overtook it; then its message
must be given back. When it returns, all that it caused is durable and the message is done with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from stepwell.authoring.registry import Registry
from stepwell.core import events as e
from stepwell.core.decide import reference_time
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.messages import (
    Continue,
    MapItem,
    Message,
    SignalsArrived,
    StepMessage,
    Wake,
)
from stepwell.core.parts import Alarm
from stepwell.core.records import Millis, RunHeader
from stepwell.core.state import RunState, fold_commits, is_of, numbered
from stepwell.engine import continuing, control, noting, readiness, settle
from stepwell.engine.chains import UnknownGuard, found
from stepwell.engine.endings import Blocked, Cancelled, Continues, Parked, Raised, TurnEnd
from stepwell.engine.growth import Extent, warn
from stepwell.engine.journal import Fenced, Journal, last_commit
from stepwell.engine.outbox import Outbox
from stepwell.engine.passes import passed, time_to_stop
from stepwell.engine.ports import Ports, RunRows
from stepwell.engine.puts import Puts
from stepwell.engine.recording import record_decided
from stepwell.engine.replay import Replay
from stepwell.engine.settings import Settings
from stepwell.engine.threads import ThreadPool
from stepwell.engine.turn_context import Stale, TurnContext
from stepwell.engine.values import Values, payloads_of
from stepwell.errors import DefinitionError, PayloadError

if TYPE_CHECKING:
    from stepwell.engine.attempt import AttemptEnd

_LOG = logging.getLogger("stepwell.engine")


class _Delivered(NamedTuple):
    message: Message
    message_id: str
    receive_count: int
    time_left: Millis | None


class Engine:
    """Takes turns. One per process; it holds no data of any run.

    `on_near_limit` is called with the name of a limit in the turn in which a run comes near to it,
    `on_lag` with how many numbers a subscription is behind when it is told of signals.
    """

    def __init__(
        self,
        ports: Ports,
        settings: Settings,
        registry: Registry,
        fraction: Callable[[], float],
        *,
        on_near_limit: Callable[[str], object] | None = None,
        on_lag: Callable[[int], object] | None = None,
    ) -> None:
        self.ports = ports
        self.settings = settings
        self._registry = registry
        self._fraction = fraction
        self._on_near_limit = on_near_limit
        self._on_lag = on_lag
        self._pool = ThreadPool()
        self._notifiers = ThreadPool()

    def close(self) -> None:
        """Let the threads go. No turn may be taken after this."""
        self._pool.close()
        self._notifiers.close()

    @property
    def working(self) -> bool:
        """Whether a plain function of an author's is at work in a thread."""
        return self._pool.working or self._notifiers.working

    async def take_turn(
        self,
        message: Message,
        *,
        message_id: str,
        receive_count: int,
        last: bool = False,
        time_left: Millis | None = None,
    ) -> TurnEnd:
        """Do a message's work. Raises when the message must be given back.

        `message_id` is the queue's own id of the message, the same for each receive of it;
        `receive_count` is 1 the first time. `last` says that the queue delivers it no more: the
        run is marked STUCK beforehand, and the mark goes when the turn ends well. After `time_left`
        the process is ended from outside (None: it is not); inline steps are cut off before that.
        """
        if last:
            await readiness.mark_stuck(self.ports, message.run_id, receive_count)
        if isinstance(message, SignalsArrived) and receive_count == 1:
            # Most come when an earlier turn has handled the signals already.
            known = await self.ports.store.get_header(message.run_id)
            lag = None if known is None else noting.lag(known, message.until)
            if lag is not None and self._on_lag is not None:
                self._on_lag(lag)
            if lag == 0:
                return TurnEnd.NOTHING
        rows = await self.ports.store.load(message.run_id)
        header = await readiness.found(self.ports, message, rows)
        if header is None:
            return TurnEnd.NOTHING
        delivered = _Delivered(message, message_id, receive_count, time_left)
        turn = self._context(delivered, header, rows)
        run = await readiness.made_ready(turn, message, rows.commits)
        if isinstance(run, TurnEnd):
            return run
        extent = Extent.of(turn.state)
        try:
            end = await self._go_on(run.turn, message, run.log)
        except Fenced:
            await settle.close_behind(turn)
            raise
        limits = self.settings.limits
        warn(turn.run_id, extent, Extent.of(turn.state), limits, self._on_near_limit)
        return end

    async def _go_on(self, turn: TurnContext, message: Message, log: list[e.Event]) -> TurnEnd:
        before = turn.state.next_alarm()
        log = [*log, *await record_decided(turn, message, log)]
        if control.is_forced(message):
            await settle.finish(turn, None, Cancelled(forced=True), before)
            return TurnEnd.ENDED
        if control.stays_paused(turn, message):
            await control.hold(turn, before)
            return TurnEnd.PAUSED
        if turn.header.paused:
            turn = await control.lift(turn)
        name = turn.header.workflow
        workflow, step = self._registry.workflow(name), self._registry.stream_step(name)
        if workflow is None and step is None:
            reason = f"workflow {turn.header.workflow!r} is not registered here"
            return await _block(turn, reason, before)
        if turn.state.guards is not None:
            try:
                turn = replace(turn, guards=found(turn.state.guards, self._registry.guard))
            except UnknownGuard as error:
                return await _block(turn, str(error), before)
        if step is not None and turn.state.subscription is not None:
            from stepwell.engine import subscriptions  # noqa: PLC0415 - of streams alone

            return await subscriptions.go_on(turn, step, log, before, self._fraction)
        assert workflow is not None
        return await self._replay(turn, workflow, log, before)

    async def run_attempt(
        self,
        attempt: StepMessage,
        *,
        message_id: str,
        receive_count: int,
        time_left: Millis | None = None,
    ) -> AttemptEnd:
        """Make the attempt of a dispatched step that a message of the step queue asks for.

        What came of it is durable when this returns. Raises when the message must be given back:
        `StepBusy` while another receive works on it, else what a port raised. The receive is named
        by `message_id` and `receive_count`; `time_left` as for a turn.
        """
        # A process that only takes turns makes no attempts: it need not know how.
        from stepwell.engine.attempt import Means, Received, make_attempt  # noqa: PLC0415
        from stepwell.engine.map_items import make_item  # noqa: PLC0415

        means = Means(
            ports=self.ports,
            settings=self.settings,
            pool=self._pool,
            notifiers=self._notifiers,
            fraction=self._fraction,
            workflow=self._registry.workflow,
            guard=self._registry.guard,
        )
        if isinstance(attempt, MapItem):
            return await make_item(
                means,
                self._registry.step,
                attempt,
                message_id=message_id,
                receive_count=receive_count,
                time_left=time_left,
            )
        received = Received(
            attempt=attempt,
            message_id=message_id,
            receive_count=receive_count,
            time_left=time_left,
            nonce=self.ports.ids.new_id(),
        )
        return await make_attempt(means, self._registry.step, received)

    def _context(
        self,
        delivered: _Delivered,
        header: RunHeader,
        rows: RunRows,
    ) -> TurnContext:
        ports = self.ports
        state = fold_commits(rows.commits)
        turn_id = ports.ids.new_id()
        time = reference_time(delivered.message, ports.clock.now())
        left, now = delivered.time_left, asyncio.get_running_loop().time()
        journal = Journal(
            ports.store,
            ports.clock,
            header.run_id,
            turn_id,
            state,
            not_before=time,
            ends=last_commit(header.run_id, ports.clock.now()),
        )
        outbox = Outbox(ports, header.run_id, journal)
        if header.last_event < state.last:
            outbox.put_unsent(numbered(rows.commits), header.last_event)
        return TurnContext(
            header=header,
            ports=ports,
            settings=self.settings,
            pool=self._pool,
            notifiers=self._notifiers,
            puts=Puts(),
            outbox=outbox,
            state=state,
            journal=journal,
            values=Values(ports.blobs, self.settings.sizes, header.run_id),
            rows={row.hook_id: row for row in rows.hooks if is_of(state, row.hook_id, row.step)},
            steps={row.step: row for row in rows.steps if is_of(state, row.step)},
            inbox={row.entry_id: row for row in rows.inbox},
            time=time,
            message_id=delivered.message_id,
            overtakes=delivered.receive_count > 1 or _is_stuck(header),
            settled=_is_settled(delivered, header, state),
            ends_at=None if left is None else now + self.settings.usable(left) / 1000,
            idle=delivered.message.idle if isinstance(delivered.message, Continue) else 0,
            told=noting.note_of(state),
            types=() if header.subscription is None else header.subscription.types,
            stale=Stale.of(state, rows, ports.clock.now()),
        )

    async def _replay(
        self,
        turn: TurnContext,
        workflow: WorkflowDefinition,
        history: list[e.Event],
        before: Alarm | None,
    ) -> TurnEnd:
        texts = await turn.values.texts(payloads_of(turn.header, history, turn.rows.values()))
        texts = {**texts, **await turn.values.texts_of_maps(history, texts)}
        if turn.state.inbox:
            turn.texts.update(texts)
        try:
            replay = Replay(
                turn.run_id, workflow, turn.state, texts, grace=self.settings.step_grace / 1000
            )
        except (PayloadError, DefinitionError) as error:
            return await self._input_unfit(turn, workflow, error, before)
        replay.journal_dir = self.settings.journal_dir
        recorded, stop_at = turn.journal.loaded, time_to_stop(turn)
        async with passed(turn, replay, history, recorded, self._fraction, stop_at=stop_at) as held:
            return await self._settle(turn, workflow, replay, before, held=held)

    async def _input_unfit(
        self,
        turn: TurnContext,
        workflow: WorkflowDefinition,
        error: PayloadError | DefinitionError,
        before: Alarm | None,
    ) -> TurnEnd:
        # A new run was started wrongly and fails; for an old one it is the code that changed.
        if turn.header.last_event:
            reason = f"the recorded input does not fit the workflow's parameters now: {error}"
            return await _block(turn, reason, before)
        await settle.finish(turn, workflow, Raised(error), before)
        return TurnEnd.ENDED

    @staticmethod
    async def _settle(
        turn: TurnContext,
        workflow: WorkflowDefinition,
        replay: Replay,
        before: Alarm | None,
        *,
        held: bool,
    ) -> TurnEnd:
        outcome = replay.outcome
        if isinstance(outcome, Parked):
            await settle.park(turn, outcome.reason, before)
            return TurnEnd.WAITING
        if isinstance(outcome, Blocked):
            return await _block(turn, str(outcome.error), before)
        if isinstance(outcome, Continues) and await continuing.is_cancelled(turn):
            outcome, held = None, True
        if outcome is None:
            await settle.note_waits(turn, replay)
            if held:
                goes_on = await settle.hand_over(turn, before)
                return TurnEnd.HANDED_OVER if goes_on else TurnEnd.STUCK
            if turn.state.waits():
                await settle.suspend(turn, before)
                return TurnEnd.WAITING
            outcome = settle.waits_for_nothing()
        await settle.finish(turn, workflow, outcome, before)
        return TurnEnd.ENDED


async def _block(turn: TurnContext, reason: str, before: Alarm | None) -> TurnEnd:
    _LOG.warning("run %s is blocked: %s", turn.run_id, reason)
    await settle.block(turn, reason, before)
    return TurnEnd.BLOCKED


def _is_settled(delivered: _Delivered, header: RunHeader, state: RunState) -> bool:
    """Whether the last turn got to its end. If not, what it may have left out is made sure of.

    A turn that dies between its events and its header leaves a header that lags, or a mark; a
    wake-up is sent by whoever has reason to doubt.
    """
    return (
        delivered.receive_count == 1
        and not isinstance(delivered.message, Wake)
        and header.last_event == state.last
        and header.attention is None
    )


def _is_stuck(header: RunHeader) -> bool:
    """Whether a message of the run died, and perhaps not he who worked on it."""
    return header.note is not None and header.note.kind == "STUCK"
