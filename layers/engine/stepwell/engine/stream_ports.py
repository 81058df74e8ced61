"""The ports of streams: their rows, and the queue on which signals come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stepwell.core.messages import SignalSent
from stepwell.core.records import Millis
from stepwell.core.signals import (
    NumberedSignal,
    SignalBatch,
    StreamHead,
    StreamKey,
    SubscriptionRow,
)


class Streams(Protocol):
    """Rows of stream runs. Reads are strongly consistent."""

    async def head(self, key: StreamKey) -> StreamHead | None:
        """How far a stream run has come, None before its first signal. May lag behind `read`."""

    async def append(self, key: StreamKey, batch: SignalBatch) -> bool:
        """Put a batch, only if none has its first number. Whether it stands.

        True also when the one there has the same `batch_id`: an own write whose reply was lost.
        A batch holds at most `core.signals.BATCH` signals.
        """

    async def move_head(self, head: StreamHead) -> None:
        """Note how far a stream run has come, unless it is noted to be further already.

        `created_at` stays as it was noted first.
        """

    async def read(self, key: StreamKey, *, after: int, limit: int) -> tuple[NumberedSignal, ...]:
        """Signals with a number above `after`, in order and without gaps, at most `limit`.

        Fewer come only where there are no more.
        """

    async def find(self, key: StreamKey, signal_ids: Sequence[str]) -> Mapping[str, int]:
        """The numbers of those of these signals that are remembered; any number of ids."""

    async def remember(self, key: StreamKey, numbers: Mapping[str, int], until: Millis) -> None:
        """Remember the numbers of signals by their ids, until a time or later. Repeatable."""

    async def subscribe(self, row: SubscriptionRow) -> None:
        """Put a subscription, in place of the one that stands."""

    async def subscriptions(self, key: StreamKey) -> tuple[SubscriptionRow, ...]:
        """All subscriptions of a stream run by step; every page of them."""

    async def erase(self, key: StreamKey) -> None:
        """Delete all rows of a stream run: its signals, what is remembered, its subscriptions.

        But not those of a stream run whose name only begins alike.
        """


class SignalQueue(Protocol):
    """The signal queue: groups by stream run, order within a group, batches of one group."""

    async def send(self, signals: Sequence[SignalSent]) -> None:
        """Send signals, in this order within each stream run, whatever `due` says.

        Of equal ids on one stream run within five minutes one may be dropped. All were sent when it
        returns; some may have been when it raises.
        """


class SignalTimers(Protocol):
    """Signals that are to be sent at a time. May be late, twice."""

    async def schedule(self, signal: SignalSent) -> None:
        """Make sure that a signal is sent at its `due`. Scheduling it again moves it there."""

    async def cancel(self, key: StreamKey, signal_id: str) -> None:
        """Forget a scheduled signal; it may still be sent. Nothing happens if there is none."""
