"""EventBridge Scheduler, simulated: one-off schedules that send a timer's message.

Nothing here happens by itself. Once due, a schedule may fire now or up to a minute later, twice, or
not at all, when its retries are exhausted; one that was deleted may still fire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stepwell.core.messages import SignalSent, TimerDue
from stepwell.core.records import Millis
from stepwell.core.signals import StreamKey
from stepwell.testing.simulation.queues import FifoQueue, SignalFifo

#: How late a schedule fires at most, as long as it fires.
LATENESS: Millis = 60_000

Key = tuple[str, str, int]


@dataclass(slots=True)
class Scheduler:
    """Implements the `Timers` port."""

    now: Callable[[], Millis]
    queue: FifoQueue
    standing: dict[Key, Millis] = field(default_factory=dict)
    #: Deleted ones, which may fire all the same.
    deleted: dict[Key, Millis] = field(default_factory=dict)
    #: Those that were lost: nobody but a sweep makes up for them.
    lost: list[Key] = field(default_factory=list)

    async def start(self, run_id: str, wait_id: str, arm: int, due: Millis) -> None:
        """Make sure of a schedule; starting it again with another time moves it there."""
        self.standing[run_id, wait_id, arm] = due

    async def cancel(self, run_id: str, wait_id: str, arm: int) -> None:
        """Delete a schedule, if it is there."""
        due = self.standing.pop((run_id, wait_id, arm), None)
        if due is not None:
            self.deleted[run_id, wait_id, arm] = due

    def due(self) -> list[Key]:
        """Schedules whose time has come."""
        now = self.now()
        return sorted(key for key, due in self.standing.items() if due <= now)

    def next_due(self, run_id: str | None = None) -> Millis | None:
        """When the next schedule, of a run or of any, is due, perhaps in the past."""
        times = (due for key, due in self.standing.items() if run_id in (None, key[0]))
        return min(times, default=None)

    async def fire(self, key: Key, *, again: bool = False) -> None:
        """Send its message; with `again` it stays, to fire another time."""
        due = self.standing[key] if again else self.standing.pop(key)
        await self._send(key, due)

    async def fire_deleted(self, key: Key) -> None:
        """Send the message of one that was deleted too late."""
        await self._send(key, self.deleted.pop(key))

    def lose(self, key: Key) -> None:
        """Its retries are exhausted: it is deleted without trace."""
        del self.standing[key]
        self.lost.append(key)

    async def _send(self, key: Key, due: Millis) -> None:
        run_id, wait_id, arm = key
        await self.queue.send(TimerDue(run_id=run_id, wait_id=wait_id, arm=arm, due=due))


SignalKey = tuple[str, str]


@dataclass(slots=True)
class SignalScheduler:
    """Implements the `SignalTimers` port. No signal is lost: what fails is kept, and sent again."""

    now: Callable[[], Millis]
    queue: SignalFifo
    standing: dict[SignalKey, SignalSent] = field(default_factory=dict)
    #: Deleted ones, which may be sent all the same.
    deleted: dict[SignalKey, SignalSent] = field(default_factory=dict)

    async def schedule(self, signal: SignalSent) -> None:
        """Make sure of a schedule; scheduling it again moves it there."""
        self.standing[signal.key.owner, signal.signal_id] = signal

    async def cancel(self, key: StreamKey, signal_id: str) -> None:
        """Delete a schedule, if it is there."""
        signal = self.standing.pop((key.owner, signal_id), None)
        if signal is not None:
            self.deleted[key.owner, signal_id] = signal

    def times(self) -> list[Millis]:
        """When those that stand are due."""
        return [signal.due or 0 for signal in self.standing.values()]

    def due(self) -> list[SignalKey]:
        """Schedules whose time has come."""
        now = self.now()
        return sorted(key for key, signal in self.standing.items() if (signal.due or 0) <= now)

    def holds(self, owner: str) -> bool:
        """Whether signals to the stream run of an owner stand."""
        return any(key[0] == owner for key in self.standing)

    async def fire(self, key: SignalKey, *, again: bool = False) -> None:
        """Send a signal; with `again` it stays, to be sent another time."""
        await self.queue.send([self.standing[key] if again else self.standing.pop(key)])

    async def fire_deleted(self, key: SignalKey) -> None:
        """Send one that was deleted too late."""
        await self.queue.send([self.deleted.pop(key)])
