"""The journal of a turn: events are recorded at once and committed in groups.

An event must be durable before the next effect, not one by one. `flush` makes everything recorded
so far durable; while one commit is in flight new events queue behind it and leave together in the
next item. Each commit claims its event number; a turn that loses the claim is a zombie and stops.
"""

from __future__ import annotations

import asyncio

from stepwell.core.events import Commit, Event, RunStarted, dump_events
from stepwell.core.records import Millis
from stepwell.core.signals import is_subscription
from stepwell.core.state import RunState
from stepwell.core.stream_state import COMMITS_KEPT
from stepwell.engine.ports import Clock, Store
from stepwell.errors import StepwellError

#: Events in one commit, and their size as stored: an item may hold 400 KB.
_BATCH_EVENTS = 2_000
_BATCH_BYTES = 350_000


#: After this no turn that began before may commit: long before what it might meet is gone.
_OLDEST: Millis = COMMITS_KEPT // 2


def last_commit(run_id: str, began: Millis) -> Millis | None:
    """Until when a turn may commit; None for ever, where no commit is deleted before its run is."""
    return began + _OLDEST if is_subscription(run_id) else None


class Fenced(StepwellError):
    """Another turn of the run went on in the meantime: give the message back, never acknowledge."""


class Journal:
    """The one writer of a run's log during one turn."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        run_id: str,
        turn: str,
        state: RunState,
        *,
        not_before: Millis = 0,
        ends: Millis | None = None,
    ) -> None:
        self.state = state
        self._not_before = not_before
        self._ends = ends
        self._store = store
        self._clock = clock
        self._run_id = run_id
        self._turn = turn
        self._buffer: list[Event] = []
        self._next = state.last + 1
        #: The number of the last event before this turn.
        self.loaded = state.last
        #: The number of the last event that must be durable before an effect.
        self._needed = 0
        #: Where it is a list, all that is recorded from then on.
        self.recent: list[Event] | None = None
        #: The number of the last event that is more than the start.
        self._told = 0
        self._commits = 0
        self._committing = False
        self._waiting: list[asyncio.Future[None]] = []
        self._unsettled: Commit | None = None

    def now(self) -> Millis:
        """The time of the next event: the clock's, never before the event that went before.

        Nor before `not_before`: a timer's message may tell that it is later than this clock says.
        """
        return max(self._clock.now(), self.state.at, self._not_before)

    def record(self, event: Event, *, lazy: bool = False) -> None:
        """Take an event into the state; it is durable after the next `flush`.

        No effect has to wait for a `lazy` one: it leaves with what another event makes durable.
        """
        self.state.apply(event)
        self._buffer.append(event)
        if self.recent is not None:
            self.recent.append(event)
        if type(event) is RunStarted:
            return
        self._told = self.state.last
        if not lazy:
            self._needed = self.state.last

    @property
    def recorded(self) -> int:
        """How many events were recorded here."""
        return self.state.last - self.loaded

    @property
    def durable(self) -> int:
        """The number of the last event that is known to be durable."""
        return self._next - 1

    @property
    def needs_flush(self) -> bool:
        """Whether an effect has to wait for a `flush`.

        The first event alone does not: it is a function of the header, which is durable.
        """
        return self._needed >= self._next

    @property
    def behind(self) -> bool:
        """Whether a `flush` has to come before the outside is let in, or shut out.

        What it does then is recorded by the next turn, which must know what led to it: lazy events
        count as well.
        """
        return self._told >= self._next

    async def flush(self) -> None:
        """Make all that is recorded durable. Raises `Fenced` if another turn wrote meanwhile."""
        target = self._next + len(self._buffer)
        while self._next < target:
            if not self._committing:
                await self._commit()
            else:
                # What is recorded here leaves with the commit after the one in flight.
                committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(committed)
                await committed

    async def _commit(self) -> None:
        """Put the next commit. One whose fate is unknown is put again, and recognises itself.

        Whoever flushes may be cancelled in mid-put (a step that times out, a branch that ends).
        """
        if self._ends is not None and self._clock.now() >= self._ends:
            # The number may have been given, and its commit be gone: nothing would refuse this one.
            raise Fenced(f"a turn of run {self._run_id!r} goes on for longer than any does")
        commit = self._unsettled
        if commit is None:
            self._commits += 1
            commit = Commit(
                first=self._next, turn=self._turn, number=self._commits, events=self._batch()
            )
            self._unsettled = commit
        self._committing = True
        try:
            stands = await self._store.append(self._run_id, commit)
        finally:
            self._committing = False
            if self._waiting:
                self._let_others_go_on()
        if not stands:
            raise Fenced(f"event {commit.first} of run {self._run_id!r} is another turn's")
        self._unsettled = None
        del self._buffer[: len(commit.events)]
        self._next = commit.last + 1

    def _let_others_go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for committed in waiting:
            if not committed.done():  # whoever waited may have been cancelled
                committed.set_result(None)

    def _batch(self) -> tuple[Event, ...]:
        if len(self._buffer) == 1:
            return (self._buffer[0],)
        size = count = 0
        for event in self._buffer[:_BATCH_EVENTS]:
            size += len(dump_events([event]))
            if count and size > _BATCH_BYTES:
                break
            count += 1
        return tuple(self._buffer[:count])


class AttemptJournal(Journal):
    """What a dispatched attempt learns. Only turns write logs: it leaves with the outcome."""

    @property
    def events(self) -> tuple[Event, ...]:
        """All that was recorded here."""
        return tuple(self._buffer)

    @property
    def needs_flush(self) -> bool:
        """What led to the attempt was durable before it began."""
        return False

    @property
    def behind(self) -> bool:
        """As above."""
        return False

    async def flush(self) -> None:
        """Nothing to do."""
