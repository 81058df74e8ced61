"""Timers in a replay: waits of the code, and delays of its loop. Pure, as `engine.replay`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from stepwell.core import events as e
from stepwell.core.commands import StartTimer
from stepwell.core.ids import keyed_step
from stepwell.core.records import Millis
from stepwell.engine.asking import LATE_LIMIT, Asking
from stepwell.engine.pending import Pending
from stepwell.errors import KeyConflict, Suspended


class TimerCalls(Asking):
    """The part of a replay that is about timers."""

    def sleep(
        self, due: Millis, name: str = "sleep", key: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Wait until a time; at once if it has passed."""
        return self._make(self._sleep(due, name, key), name)

    async def _sleep(self, due: Millis, name: str, key: str | None) -> None:
        if self._over:
            await self._come_late()
        identity = (
            self.loop.scope().identify(name)
            if key is None
            else self._keyed_id(keyed_step(name, key))
        )
        if key is not None and identity in self._asked:
            raise KeyConflict(key, f"{name!r} was waited for with it before")
        known = self._state.timers.get(identity)
        if known is None and due <= self.loop.now:
            return
        command = StartTimer(
            identity, name, self._due(identity, due) if known is None else known.due
        )
        self._ask(command)
        await self._wait_for(command)

    def start_timer(self, due: Millis, fire: Callable[[], None]) -> str:
        """Start a timer for the loop, under the scope of the code that asked for the delay."""
        if self._over:
            self._late += 1
            if self._late > LATE_LIMIT:
                return ""  # a delay that never ends: back to who unwinds
            raise Suspended
        identity = self.loop.scope().identify("timer")
        known = self._state.timers.get(identity)
        command = StartTimer(
            identity, "timer", self._due(identity, due) if known is None else known.due
        )
        self._ask(command)
        self.pending[identity] = Pending(command, fire=fire, scope=self.loop.scope())
        self.fresh.append(command)
        if self._early:
            self._tell_early(identity)
        return identity

    def drop_timer(self, timer_id: str) -> None:
        """A delay of the loop was cancelled."""
        pending = self.pending.get(timer_id)
        if pending is not None:
            self._withdraw(pending.command)

    def _timer_fired(self, event: e.TimerFired, _: Any) -> None:
        pending = self._take(event.timer, event)
        if pending is None:
            return
        if pending.fire is not None:
            self._trail.fired(event.timer, pending.scope)
            pending.fire()
        elif pending.future is not None:
            pending.future.set_result(None)
