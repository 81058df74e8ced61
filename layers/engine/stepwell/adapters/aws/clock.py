"""The clock and the ids of a deployment: the only code here that reads the time or randomness."""

from __future__ import annotations

import asyncio
import secrets
import time

from stepwell.core.records import Millis

_LONGEST_NAP: Millis = 60_000


class SystemClock:
    """The machine's clock. It may be set back; nothing durable depends on its never doing so."""

    def now(self) -> Millis:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, due: Millis) -> None:
        """Return when `now()` has reached a time, also when somebody sets the clock meanwhile."""
        while (left := due - self.now()) > 0:
            await asyncio.sleep(min(left, _LONGEST_NAP) / 1000)


class SystemIds:
    """Unguessable ids from the operating system."""

    def new_id(self) -> str:
        """128 random bits as 32 hex digits."""
        return secrets.token_hex(16)


def system_fraction() -> float:
    """A random number in [0, 1), for the jitter of retries."""
    return secrets.randbits(53) / (1 << 53)
