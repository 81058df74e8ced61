"""A turn of a subscription: signals are taken in their order, one handled after the other.

    take → call the step's code → record all that it came to → take the next

The code of one signal is a pass of its own, over what is recorded since it was taken; what came
before is in the fold. So a turn costs what its signals cost, however long the log is. All that a
signal came to is one event; many of them leave in one commit, since nothing waits for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepwell.core import events as e
from stepwell.core.definitions import StreamStepDefinition
from stepwell.core.parts import Alarm
from stepwell.core.records import Millis, Payload
from stepwell.core.signals import NumberedSignal, StreamKey
from stepwell.core.stream_state import COMMITS_KEPT, dump_snapshot
from stepwell.core.subscription import Handling as UnderWay
from stepwell.core.subscription import Subscription
from stepwell.engine import children, noting, settle
from stepwell.engine.endings import (
    Blocked,
    Cancelled,
    Outcome,
    Parked,
    Raised,
    Returned,
    TurnEnd,
)
from stepwell.engine.handling import HandlingReplay, handling_replay, left_by, workflow_of
from stepwell.engine.passes import passed, time_to_stop
from stepwell.engine.puts import Puts
from stepwell.engine.succession import inherit
from stepwell.engine.turn_context import TurnContext
from stepwell.engine.values import payloads_of
from stepwell.engine.waiting_signals import WaitingSignals
from stepwell.errors import LimitExceeded, PayloadError, UsageError
from stepwell.streams.lifecycle import Effects

_LOG = logging.getLogger("stepwell.engine")
#: Events after which a log gets another place to be read from.
SNAPSHOT_EVERY = 128
#: Signals after which a turn makes durable what they came to, and looks whether it may go on.
_AT_A_TIME = 50
#: Parked signals above which later ones wait, whatever the step says: somebody has to look.
MOST_PARKED = 200


async def go_on(
    turn: TurnContext,
    step: StreamStepDefinition,
    log: Sequence[e.Event],
    before: Alarm | None,
    fraction: Callable[[], float],
) -> TurnEnd:
    """Handle what there is to be handled, and leave the subscription as that leaves it."""
    return await _Subscriber(turn, step, before, fraction).go_on(log)


@dataclass(frozen=True, slots=True)
class _Slice:
    """The events of one handling behind the start, `recorded` of which earlier turns left."""

    events: list[e.Event]
    recorded: int


class _Subscriber:
    """One turn of one subscription."""

    def __init__(
        self,
        turn: TurnContext,
        step: StreamStepDefinition,
        before: Alarm | None,
        fraction: Callable[[], float],
    ) -> None:
        self._turn = turn
        self._step = step
        self._before = before
        self._fraction = fraction
        self._stop_at = time_to_stop(turn)
        self._handled = 0
        self._look_at = asyncio.get_running_loop().time() + turn.settings.look_every / 1000
        self._waiting = WaitingSignals(turn.ports.streams, self._key, tuple(step.signals))

    @property
    def _known(self) -> Subscription:
        known = self._turn.state.subscription
        assert known is not None
        return known

    @property
    def _key(self) -> StreamKey:
        return StreamKey(self._known.stream, self._known.stream_run)

    async def go_on(self, log: Sequence[e.Event]) -> TurnEnd:
        """Take one signal after the other until none is left, or one is to wait."""
        await inherit(self._turn)
        await self._subscribe()
        turn = self._turn
        turn.journal.recent = []
        first = turn.state.last - len(log) + 1
        while True:
            current = self._known.current
            if current is None:
                end = await self._take()
            elif (due := turn.state.retry_due) is not None and not turn.due(due):
                cancelled = turn.state.cancel is not None  # its code is not at work
                end = await (self._finish(Cancelled()) if cancelled else self._wait())
            else:
                earlier = log[current.number - first :] if current.number >= first else ()
                end = await self._handle(current, self._slice(current, earlier))
            if end is not None:
                return end

    async def _subscribe(self) -> None:
        """Make sure that the row names the types that the code takes now.

        Before signals are looked for: who numbers one after that, looks at the row after that.
        """
        turn, types = self._turn, tuple(self._step.signals)
        if self._known.begun and turn.settled and turn.types == types:
            return
        self._turn = replace(turn, types=types)
        row = noting.subscription_row(turn, types, ended=False)
        await turn.ports.streams.subscribe(row)

    def _slice(self, current: UnderWay, earlier: Sequence[e.Event]) -> _Slice:
        start, recent = self._turn.state.started, self._turn.journal.recent
        assert start is not None
        assert recent is not None
        recorded = 1 + max(self._turn.journal.loaded - current.number + 1, 0)
        return _Slice([start, *earlier, *recent], recorded)

    async def _take(self) -> TurnEnd | None:
        """Begin with the next signal; how the turn ends if there is none to begin with."""
        turn, known = self._turn, self._known
        if turn.state.cancel is not None:
            return await self._finish(Cancelled())
        if known.ended:
            return await self._finish(Returned(await self._end()))
        if turn.state.length >= SNAPSHOT_EVERY:
            await self._snapshot()
        if self._is_time_to_look() and await self._is_interrupted():
            return await self._hand_over()
        event = await self._next()
        if event is None:
            return await self._wait()
        if self._handled and asyncio.get_running_loop().time() >= self._stop_at:
            return await self._hand_over()
        turn.journal.recent = []
        turn.journal.record(event)
        return None

    def _is_time_to_look(self) -> bool:
        """Whether what signals came to is to be durable now, and the header looked at."""
        if not self._handled:
            return False
        now = asyncio.get_running_loop().time()
        return self._handled % _AT_A_TIME == 0 or now >= self._look_at

    async def _is_interrupted(self) -> bool:
        """Whether somebody wants the run paused or cancelled, whose message waits."""
        turn = self._turn
        await turn.journal.flush()
        await turn.outbox.send()
        self._look_at = asyncio.get_running_loop().time() + turn.settings.look_every / 1000
        header = await turn.ports.store.get_header(turn.run_id)
        return header is not None and (header.paused or header.cancel_requested)

    async def _next(self) -> e.SignalTaken | None:
        """The event that takes the next signal; none while nothing is to be taken."""
        known, at = self._known, self._turn.journal.now()
        if not known.begun:
            return e.SignalTaken(at=at, sequence=0)
        if known.redrive:
            again = known.redrive[0]
            if again == 0:
                return e.SignalTaken(at=at, sequence=0, redriven=True)
            return _taken(at, await self._waiting.at(again), None, redriven=True)
        if known.blocked_by is not None:
            return None
        found = await self._waiting.next(known)
        if found.signal is not None:
            return _taken(at, found.signal, found.held_from)
        if found.held and found.seen > known.held:
            self._turn.journal.record(e.SignalsHeld(at=at, until=found.seen))
        return None

    async def _handle(self, current: UnderWay, part: _Slice) -> TurnEnd | None:
        """Call the step's code for the signal under way, or go on with it. None: it is through."""
        # Those of the pass before take no more rows in: nobody of that one shall put any.
        turn = self._turn = replace(self._turn, puts=Puts())
        texts = await turn.values.texts(
            [*payloads_of(None, part.events, turn.rows.values()), self._known.checkpoint or ""]
        )
        texts = {**texts, **await turn.values.texts_of_maps(part.events, texts)}
        grace = turn.settings.step_grace / 1000
        try:
            replay = handling_replay(self._step, turn.run_id, turn.state, texts, grace=grace)
        except PayloadError as error:
            await self._park(current, error, unfit=True)
            return None
        # The code of each signal begins when that is taken, not when the run began.
        replay.loop.now = part.events[1].at
        replay.journal_dir = turn.settings.journal_dir
        async with passed(
            turn, replay, part.events, part.recorded, self._fraction, stop_at=self._stop_at
        ) as held:
            return await self._settle(current, replay, held=held)

    async def _settle(
        self, current: UnderWay, replay: HandlingReplay, *, held: bool
    ) -> TurnEnd | None:
        turn, outcome = self._turn, replay.outcome
        if isinstance(outcome, Blocked):
            _LOG.warning("run %s is blocked: %s", turn.run_id, outcome.error)
            await settle.block(turn, str(outcome.error), self._before)
            return TurnEnd.BLOCKED
        if outcome is None:
            await settle.note_waits(turn, replay)
            if held:
                return await self._hand_over()
            if turn.state.waits():
                return await self._wait()
            outcome = settle.waits_for_nothing()
        if isinstance(outcome, Cancelled):
            return await self._finish(outcome)
        if isinstance(outcome, Returned):
            try:
                await self._handled_with(current, outcome.value)
            except PayloadError as error:
                await self._fail(current, Raised(error))
        else:
            await self._fail(current, _refused(outcome))
        return None

    async def _handled_with(self, current: UnderWay, effects: Effects) -> None:
        """Record what a signal came to."""
        turn, known = self._turn, self._known
        checkpoint = await self._kept(effects.checkpoint, "checkpoint")
        result = await self._kept(effects.result, "result")
        await self._drop_open()
        left = left_by(effects, known)
        turn.journal.record(
            e.SignalHandled(
                at=turn.journal.now(),
                sequence=current.sequence,
                status=left.status,
                reason=left.reason,
                resume=left.resume,
                checkpoint=checkpoint,
                result=result,
                passed=True if current.signal is not None and not effects.called else None,
                acknowledged=tuple(sorted(effects.acknowledged)) or None,
            )
        )
        self._over()

    async def _kept(self, text: str | None, what: str) -> Payload | None:
        if text is None:
            return None
        return await self._turn.values.put(text, f"{what} of stream step {self._step.name!r}")

    async def _fail(self, current: UnderWay, raised: Raised) -> None:
        """Try again later, or park the signal. Nothing that its code asked for takes effect."""
        turn, error = self._turn, raised.error
        due = None
        if not isinstance(error, LimitExceeded):
            due = self._step.retry.decide(
                error, current.attempt, fraction=self._fraction(), now=turn.journal.now()
            )
        if due is None:
            await self._park(current, error)
            return
        await self._drop_open()
        turn.journal.record(
            e.SignalRetryScheduled(
                at=turn.journal.now(),
                sequence=current.sequence,
                attempt=current.attempt,
                error=settle.failure_of(error),
                due=due,
                redo=raised.redo or None,
            )
        )
        _LOG.warning(
            "stream step %s: signal %d failed, attempt %d: %s",
            self._step.full_name,
            current.sequence,
            current.attempt,
            type(error).__name__,
        )

    async def _park(self, current: UnderWay, error: BaseException, *, unfit: bool = False) -> None:
        """Keep a signal for somebody to mend. One that is `unfit` for the step holds up none."""
        turn, known = self._turn, self._known
        await self._drop_open()
        full = len(known.parked) + 1 >= MOST_PARKED
        blocks = full or (self._step.on_failure == "block" and not unfit)
        turn.journal.record(
            e.SignalParked(
                at=turn.journal.now(),
                sequence=current.sequence,
                attempt=current.attempt,
                error=settle.failure_of(error),
                blocks=blocks or None,
            )
        )
        _LOG.error(
            "stream step %s: signal %d is parked: %s",
            self._step.full_name,
            current.sequence,
            type(error).__name__,
        )
        self._over()

    def _over(self) -> None:
        """The signal is through: its rows are nobody's any more."""
        self._turn.rows.clear()
        self._turn.steps.clear()
        self._handled += 1

    async def _drop_open(self) -> None:
        """End what the code has left open. The children first: they are known until the end."""
        turn = self._turn
        if turn.state.open_children():
            # What led here has to be durable: an overtaken turn must not end what goes on.
            await turn.journal.flush()
            await children.close(turn)
        await settle.drop_open(turn)

    async def _snapshot(self) -> None:
        """Record all that the subscription has come to, so that its log is read from there."""
        turn = self._turn
        now, before = turn.journal.now(), turn.state.kept_from
        if now - turn.state.kept_from_at <= COMMITS_KEPT or before > turn.header.snapshot:
            before = 0  # somebody may read the log from there, or from before that
        await turn.journal.flush()
        turn.journal.record(e.SubscriptionSnapshot(at=now, state=dump_snapshot(turn.state)))
        if before or turn.stale.hooks or turn.stale.steps:
            await turn.ports.store.trim(turn.run_id, before, turn.stale.hooks, turn.stale.steps)

    async def _end(self) -> dict[str, Any]:
        """What the stream is told of the end."""
        known = self._known
        ended: dict[str, Any] = {"status": known.status}
        if known.result is not None:
            ended["result"] = json.loads(await self._turn.values.get(known.result))
        if known.reason is not None:
            ended["reason"] = known.reason
        return ended

    async def _finish(self, outcome: Outcome) -> TurnEnd:
        await settle.finish(self._turn, workflow_of(self._step), outcome, self._before)
        return TurnEnd.ENDED

    async def _wait(self) -> TurnEnd:
        await settle.suspend(self._turn, self._before)
        return TurnEnd.WAITING

    async def _hand_over(self) -> TurnEnd:
        goes_on = await settle.hand_over(self._turn, self._before)
        return TurnEnd.HANDED_OVER if goes_on else TurnEnd.STUCK


def _refused(outcome: Outcome) -> Raised:
    """What the code raised, or why it cannot end as it did."""
    if isinstance(outcome, Parked):
        return Raised(
            UsageError("a stream step waits with suspend(reason), it does not raise Suspend")
        )
    assert isinstance(outcome, Raised)
    return outcome


def _taken(
    at: Millis, found: NumberedSignal, held_from: int | None, *, redriven: bool = False
) -> e.SignalTaken:
    signal = found.signal
    return e.SignalTaken(
        at=at,
        sequence=found.sequence,
        signal_id=signal.signal_id,
        signal_type=signal.type,
        payload=signal.payload,
        published_at=signal.published_at,
        metadata=signal.metadata,
        source_run_id=signal.source_run_id,
        held_from=held_from,
        redriven=True if redriven else None,
    )
