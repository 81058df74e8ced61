"""Clocks and id makers: the only local code that reads the time or makes randomness."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from dataclasses import dataclass

from stepwell.core.records import Millis

_LONGEST_NAP: Millis = 60_000


class SystemClock:
    """The machine's clock. It may be set back; nothing durable depends on its never doing so."""

    def now(self) -> Millis:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, due: Millis) -> None:
        """Return when `now()` has reached a time, also when somebody sets the clock meanwhile."""
        left = due - self.now()
        while left > 0:
            await asyncio.sleep(min(left, _LONGEST_NAP) / 1000)
            left = due - self.now()


@dataclass(frozen=True, slots=True, eq=False)
class _Sleeper:
    due: Millis
    loop: asyncio.AbstractEventLoop
    woken: asyncio.Event


class SkippingClock:
    """A clock that stands still until it is moved, and never goes backwards.

    Any thread may move it; who sleeps until a time that it passes is woken.
    """

    def __init__(self, start: Millis) -> None:
        self._now = start
        self._sleepers: list[_Sleeper] = []
        self._lock = threading.Lock()

    def now(self) -> Millis:
        """Where the clock stands."""
        return self._now

    def advance(self, ms: Millis) -> None:
        """Move on by `ms`. Raises `ValueError` when it is negative."""
        if ms < 0:
            raise ValueError(f"a clock cannot be moved back by {-ms} ms")
        with self._lock:
            self._move(self._now + ms)

    def move_to(self, time: Millis) -> None:
        """Move on to a time. One that has passed leaves the clock where it stands."""
        with self._lock:
            self._move(max(self._now, time))

    async def sleep_until(self, due: Millis) -> None:
        """Return when the clock has been moved to a time. It never moves by itself."""
        with self._lock:
            if self._now >= due:
                return
            sleeper = _Sleeper(due, asyncio.get_running_loop(), asyncio.Event())
            self._sleepers.append(sleeper)
        try:
            await sleeper.woken.wait()
        finally:
            with self._lock:
                self._sleepers.remove(sleeper)

    def _move(self, time: Millis) -> None:
        self._now = time
        for sleeper in self._sleepers:
            if sleeper.due <= time:
                sleeper.loop.call_soon_threadsafe(sleeper.woken.set)


class SystemIds:
    """Unguessable ids from the operating system."""

    def new_id(self) -> str:
        """128 random bits as 32 hex digits."""
        return secrets.token_hex(16)


class SeededIds:
    """The same ids in the same order for the same seed: for tests, never for tokens."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def new_id(self) -> str:
        """The next id of the sequence, 32 hex digits."""
        return f"{self._random.getrandbits(128):032x}"


def system_fraction() -> float:
    """A random number in [0, 1), for the jitter of retries."""
    return secrets.randbits(53) / (1 << 53)
