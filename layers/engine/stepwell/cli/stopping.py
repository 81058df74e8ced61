"""Stopping on SIGINT and SIGTERM: the first one asks, the second one kills."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Stop:
    """Whether to stop, and by which signal; set once."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    signal: signal.Signals | None = None


@contextmanager
def stopping(on_signal: Callable[[], None]) -> Iterator[Stop]:
    """Let the first signal set the event instead of killing; `on_signal` may say so.

    Works in the main thread, inside a running loop. What a kill leaves is taken up by the next
    process, so a second signal need not be survived.
    """
    stop = Stop()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        on_signal()
        stop.event.set()

    def handle(number: int, _: FrameType | None) -> None:
        stop.signal = signal.Signals(number)
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(ask)

    before = {each: signal.signal(each, handle) for each in _SIGNALS}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
