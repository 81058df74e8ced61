"""The inboxes of runs."""

from __future__ import annotations

from typing import Any

from stepwell.engine.inboxes import InboxEntry, Inboxes


class InboxCalls:
    """What a client offers for inboxes."""

    _inboxes: Inboxes

    async def put_inbox(
        self,
        run_id: str,
        key: str,
        value: Any = None,
        *,
        entry_id: str | None = None,
        actor: str | None = None,
    ) -> InboxEntry:
        """Append an entry to a run's inbox and wake what waits for input; durable when it returns.

        The run's next turn sees it, if the run has not ended by then; nothing is ever overwritten.
        The same `entry_id` again is the same entry. Raises `RunNotFound`, `RunEnded`,
        `PayloadError`, and `EntryConflict` when the entry of this id holds something else.
        """
        return await self._inboxes.put(run_id, key, value, entry_id, actor)

    async def list_inbox(self, run_id: str) -> tuple[InboxEntry, ...]:
        """All entries of a run's inbox, oldest first. Raises `RunNotFound`."""
        return await self._inboxes.entries(run_id)
