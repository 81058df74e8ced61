"""Durable timers, in a table of the same file as the queue that they send to."""

from __future__ import annotations

from stepwell.adapters.local.database import Database
from stepwell.adapters.local.queue import SqliteQueue
from stepwell.core.messages import TimerDue
from stepwell.core.records import Millis
from stepwell.engine.ports import Clock


class SqliteTimers:
    """Implements the `Timers` port. A timer fires when somebody calls `fire_due`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def start(self, run_id: str, wait_id: str, arm: int, due: Millis) -> None:
        """Make sure of a timer. Starting it again with another `due` moves it there."""
        self._database.change(
            "INSERT INTO timers (run_id, wait_id, arm, due) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (run_id, wait_id, arm) DO UPDATE SET due = excluded.due",
            run_id,
            wait_id,
            arm,
            due,
        )

    async def cancel(self, run_id: str, wait_id: str, arm: int) -> None:
        """Forget a timer. A message that it has sent already stays."""
        self._database.change(
            "DELETE FROM timers WHERE run_id = ? AND wait_id = ? AND arm = ?", run_id, wait_id, arm
        )

    async def fire_due(self, queue: SqliteQueue) -> int:
        """Move every due timer into the queue, oldest first, all at once. Returns how many.

        The queue has to be in the same database: a timer is gone exactly when its message is there.
        """
        if queue.database is not self._database:
            raise ValueError("timers can only fire into a queue of their own database")
        now = self._clock.now()
        with self._database.writing():
            due = self._database.query(
                "SELECT run_id, wait_id, arm, due FROM timers WHERE due <= ?"
                " ORDER BY due, run_id, wait_id, arm",
                now,
            )
            for run_id, wait_id, arm, time in due:
                queue.put(TimerDue(run_id=run_id, wait_id=wait_id, arm=arm, due=time))
            if due:
                self._database.change("DELETE FROM timers WHERE due <= ?", now)
        return len(due)

    async def next_due(self, run_id: str | None = None) -> Millis | None:
        """When the next timer of a run, or of any, is due, perhaps in the past; None: none is."""
        query = self._database.query
        if run_id is None:
            rows = query("SELECT min(due) FROM timers")
        else:
            rows = query("SELECT min(due) FROM timers WHERE run_id = ?", run_id)
        due: Millis | None = rows[0][0]
        return due
