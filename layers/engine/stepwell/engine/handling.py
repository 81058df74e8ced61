"""The replay of one signal's handling: code that sees signals which wait behind it."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from stepwell.core.commands import PollInbox
from stepwell.core.signals import NumberedSignal
from stepwell.engine.replay import Replay


class HandlingReplay(Replay):
    """One pass of a stream step's code for one signal."""

    def poll_inbox(
        self, types: tuple[str, ...], limit: int
    ) -> Coroutine[Any, Any, Sequence[NumberedSignal]]:
        """The signals that wait behind the one under way."""
        return self._make(self._poll(types, limit), "poll_inbox")

    async def _poll(self, types: tuple[str, ...], limit: int) -> Sequence[NumberedSignal]:
        if self._over:
            await self._come_late()
        command = PollInbox(self.loop.scope().identify("~poll"), types, limit)
        self._ask(command)
        found: Sequence[NumberedSignal] = await self._wait_for(command)
        return found
