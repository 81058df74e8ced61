"""The signals that wait for a subscription, read ahead a page at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from stepwell.core.signals import NumberedSignal, StreamKey
from stepwell.core.subscription import Subscription
from stepwell.engine.ports import TransientError
from stepwell.engine.stream_ports import Streams
from stepwell.streams.matching import Found, next_signal, start_of

#: Signals that are read at a time.
_PAGE = 100


class WaitingSignals:
    """A look at the signals of one stream run, during one turn: what comes later wakes another."""

    def __init__(self, streams: Streams, key: StreamKey, types: Collection[str]) -> None:
        self._streams = streams
        self._key = key
        self._types = types
        self._page: Sequence[NumberedSignal] = ()
        self._after = 0
        self._read = False

    async def next(self, known: Subscription) -> Found:
        """The signal that is to be taken next, None if there is none so far."""
        while True:
            page = await self._behind(start_of(known))
            found = next_signal(known, self._types, page)
            if found.signal is not None or not page:
                return found
            if known.status == "suspended":
                known = replace(known, held=found.seen) if found.held else _passed(known, found)
            else:
                known = _passed(known, found)

    async def at(self, number: int) -> NumberedSignal:
        """The signal of a number. Raises `TransientError` when it is not there."""
        for each in await self._streams.read(self._key, after=number - 1, limit=1):
            if each.sequence == number:
                return each
        raise TransientError(f"signal {number} of stream run {self._key} is not there")

    async def _behind(self, number: int) -> Sequence[NumberedSignal]:
        """Some of the signals behind a number, none when there were no more at the last look."""
        last = self._after + len(self._page)
        if not self._read or number < self._after or (number >= last and self._is_full):
            self._page = await self._streams.read(self._key, after=number, limit=_PAGE)
            self._after, self._read = number, True
        return self._page[number - self._after :]

    @property
    def _is_full(self) -> bool:
        return len(self._page) == _PAGE


def _passed(known: Subscription, found: Found) -> Subscription:
    """As if all that was seen were settled: nothing in it is the subscription's."""
    return replace(known, cursor=found.seen)
