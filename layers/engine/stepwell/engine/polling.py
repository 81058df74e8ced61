"""Waiting for what only the store can tell, by looking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from stepwell.core.durations import to_millis
from stepwell.errors import DurationLike

#: Waits between two looks, in seconds: from the first, doubling, to the second.
_PAUSES = (0.01, 1.0)


async def poll(done: Callable[[], Awaitable[bool]], timeout: DurationLike | None) -> bool:
    """Ask until it is done, less and less often. False after the timeout."""
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + to_millis(timeout) / 1000
    pause, longest = _PAUSES
    while not await done():
        if end is not None and loop.time() >= end:
            return False
        left = pause if end is None else min(pause, max(end - loop.time(), 0))
        await asyncio.sleep(left)
        pause = min(pause * 2, longest)
    return True
