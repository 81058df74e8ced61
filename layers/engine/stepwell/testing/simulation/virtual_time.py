"""An event loop whose time moves only when it is told to, and which stops when all in it waits.

    loop = VirtualLoop()
    loop.create_task(...)
    loop.run_until_idle()      # until everything in it waits
    loop.move_to(loop.next_timer)

Threads are waited for: while one of them works, the loop is not idle. A thread that waits for the
loop is told from one that works by a short real wait, so workflows whose `def` steps use
primitives are better simulated elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable

from stepwell.core.records import Millis

#: How long, in seconds, and how often a thread may be silent before it counts as waiting for us.
_SILENCE = 0.02
_SILENCES = 50


class _Selector(selectors.DefaultSelector):
    """Stops the loop where it would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: Callable[[float | None], None] = lambda _: None
        self.working: Callable[[], bool] = lambda: False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
            return ready
        ready = super().select(0)
        for _ in range(_SILENCES):
            if ready or not self.working():
                break
            ready = super().select(_SILENCE)
        if not ready:
            self.idle(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on its own time, from `start` in milliseconds since the epoch.

    `working` tells whether a thread is at work that will come back to this loop by itself.
    """

    def __init__(self, start: Millis, working: Callable[[], bool]) -> None:
        self._selects = _Selector()
        self._start = start
        self._elapsed = 0.0
        super().__init__(self._selects)
        self._selects.idle = self._rest
        self._selects.working = working
        self._next: float | None = None

    def time(self) -> float:
        """Seconds since the loop was made, as far as time was moved."""
        return self._elapsed

    def now(self) -> Millis:
        """Milliseconds since the epoch."""
        return self._start + round(self._elapsed * 1000)

    def move_to(self, time: Millis) -> None:
        """Let time pass until `time`; one that has passed changes nothing."""
        self._elapsed = max(self._elapsed, (time - self._start) / 1000)

    @property
    def next_timer(self) -> Millis | None:
        """When the next callback of the loop is due, None if none is."""
        return None if self._next is None else self._start + math.ceil(self._next * 1000)

    def run_until_idle(self) -> None:
        """Run all that can run without time passing."""
        self._next = None
        self.run_forever()

    def _rest(self, timeout: float | None) -> None:
        self._next = None if timeout is None else self._elapsed + timeout
        self.stop()


class VirtualClock:
    """The `Clock` port of one process: the loop's time, and how far this clock is off."""

    def __init__(self, loop: VirtualLoop, skew: Millis = 0) -> None:
        self._loop = loop
        self._skew = skew

    def now(self) -> Millis:
        """Milliseconds since the epoch, as this process believes."""
        return self._loop.now() + self._skew

    async def sleep_until(self, due: Millis) -> None:
        """Return when `now()` has reached a time."""
        while (left := due - self.now()) > 0:
            await asyncio.sleep(left / 1000)
