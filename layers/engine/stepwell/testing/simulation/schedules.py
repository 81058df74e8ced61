"""EventBridge Scheduler, simulated: one-off schedules that send a timer's message.

Nothing here happens by itself. Once due, a schedule may fire now or up to a minute later, twice, or
not at all, when its retries are exhausted; one that was deleted may still fire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stepwell.core.messages import TimerDue
from stepwell.core.records import Millis
from stepwell.testing.simulation.queues import FifoQueue

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
