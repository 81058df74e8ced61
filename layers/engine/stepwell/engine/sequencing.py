"""Numbering signals: what comes out of the signal queue becomes the log of its stream run.

    find which are known → put a batch under the next number → remember → note → wake

The batch is the truth, and it claims its numbers by a conditional put; all else is found again from
it. Whoever dies in between is followed by one that gets the same signals again, meets the batch and
finishes what it stands for. So a signal that comes twice under one id has one number, and none is
skipped. Subscriptions are looked up after the batch stands, and they put themselves down before
they look for signals: one of the two sees the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from stepwell.core.definitions import StreamStepDefinition
from stepwell.core.messages import SignalsArrived, SignalSent
from stepwell.core.records import REMEMBERED, Millis
from stepwell.core.signals import (
    BATCH,
    NumberedSignal,
    SentSignal,
    SignalBatch,
    StreamHead,
    StreamKey,
    SubscriptionRow,
    with_counted,
)
from stepwell.engine.ports import Ports
from stepwell.engine.values import owner_of

#: Signals that are read at a time where the head lags.
_BEHIND = 10 * BATCH
#: Bytes that the signals of a row may take, below the 400 KB of an item.
_LARGEST = 384 * 1024
#: Bytes of a signal beside its texts, at most.
_ENVELOPE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequenced:
    """What came of some signals of one stream run.

    `last` is its last number, `fresh` how many of them were new, `woken` how many subscriptions
    were told, `age` for how long the oldest of the new ones had been on its way, in ms.
    """

    key: StreamKey
    last: int
    fresh: int
    woken: int
    subscribed: bool
    age: Millis


class Sequencer:
    """Numbers the signals of stream runs. One at a time works on one stream run, as a rule."""

    def __init__(
        self,
        ports: Ports,
        step_of: Callable[[str], StreamStepDefinition | None] = lambda _: None,
    ) -> None:
        """`step_of` gives the code of a stream step by its full name, if it is here."""
        self._ports = ports
        self._step_of = step_of

    async def take(self, signals: Sequence[SignalSent]) -> tuple[Sequenced, ...]:
        """Number signals, in their order within each stream run; durable when it returns.

        Their senders may have sent some of them before. Raises what a port raises; then all must
        come again.
        """
        groups: dict[StreamKey, list[SentSignal]] = {}
        for each in signals:
            groups.setdefault(each.key, []).append(each.signal)
        return tuple([await self._take(key, group) for key, group in groups.items()])

    async def _take(self, key: StreamKey, signals: Sequence[SentSignal]) -> Sequenced:
        streams = self._ports.streams
        head = await streams.head(key)
        last = 0 if head is None else head.last
        wanted: dict[str, SentSignal] = {}
        for each in signals:
            wanted.setdefault(each.signal_id, each)
        known = await streams.find(key, list(wanted))
        told: dict[int, str] = {}
        left: Sequence[SentSignal] = [s for s in wanted.values() if s.signal_id not in known]
        if max(known.values(), default=0) > last:
            # Who numbered them died before the head said so, and maybe before all were remembered.
            last, left = await self._catch_up(key, last, left, told)
        fresh = len(left)
        oldest = min((each.published_at for each in left), default=0)
        last = await self._number(key, last, left, told)
        now = self._ports.clock.now()
        if head is None or last > head.last:
            await self._move_head(key, head, last, told)
        rows = await streams.subscriptions(key)
        types = {*told.values(), *(signal.type for signal in wanted.values())}
        # Of those that came before, too: who numbered them may have died before he told of them.
        until = max([*told, *known.values(), 0])
        asked = [row.run_id for row in rows if not row.ended and self._takes(row, types)]
        await self._wake(asked, until)
        if all(row.ended for row in rows):
            await self._erase_late(key)
        return Sequenced(
            key=key,
            last=last,
            fresh=fresh,
            woken=len(asked),
            subscribed=bool(rows),
            age=now - oldest if fresh else 0,
        )

    async def _move_head(
        self, key: StreamKey, head: StreamHead | None, last: int, told: Mapping[int, str]
    ) -> None:
        """Note that a stream run has come to a number; `told` are the types of all up to there."""
        now, before = self._ports.clock.now(), 0 if head is None else head.last
        types = [told[number] for number in range(before + 1, last + 1)]
        await self._ports.streams.move_head(
            StreamHead(
                key=key,
                last=last,
                created_at=now if head is None else head.created_at,
                updated_at=now,
                counts=with_counted(None if head is None else head.counts, types),
            )
        )

    def _takes(self, row: SubscriptionRow, types: set[str]) -> bool:
        """Whether a subscription takes one of these types: as it put down, or its code says now.

        Woken by the second, it puts down what it takes now.
        """
        if not types.isdisjoint(row.types):
            return True
        step = self._step_of(f"{row.key.stream}/{row.step}")
        return step is not None and not types.isdisjoint(step.signals)

    async def _number(
        self, key: StreamKey, last: int, left: Sequence[SentSignal], told: dict[int, str]
    ) -> int:
        """Number signals behind the last one. The last number then; `told` gets what is new."""
        while left:
            batch = _batch(last + 1, _fitting(left))
            if await self._ports.streams.append(key, batch):
                told |= {number: signal.type for number, signal in batch.numbered()}
                await self._remember(key, batch.numbered())
                last, left = batch.last, left[len(batch.signals) :]
            else:
                last, left = await self._catch_up(key, last, left, told)
        return last

    async def _catch_up(
        self, key: StreamKey, last: int, left: Sequence[SentSignal], told: dict[int, str]
    ) -> tuple[int, Sequence[SentSignal]]:
        """The last number that stands, and what is left to be numbered. `told` gets what is behind.

        Up to the end of the last batch: in the middle of one, a number would be claimed twice.
        """
        while True:
            found = await self._ports.streams.read(key, after=last, limit=_BEHIND)
            await self._remember(key, found)
            told |= {number: signal.type for number, signal in found}
            standing = {signal.signal_id for _, signal in found}
            left = [each for each in left if each.signal_id not in standing]
            last += len(found)
            if len(found) < _BEHIND:
                return last, left

    async def _erase_late(self, key: StreamKey) -> None:
        """Delete what came to a stream run that was deleted meanwhile: nobody would any more."""
        owner = await self._ports.store.get_header(key.owner)
        if owner is not None and owner.deleted_at is not None:
            await self._ports.streams.erase(key)
            await self._ports.blobs.delete_all(owner_of(key.owner))

    async def _remember(self, key: StreamKey, signals: Iterable[NumberedSignal]) -> None:
        numbers: Mapping[str, int] = {signal.signal_id: number for number, signal in signals}
        until = self._ports.clock.now() + REMEMBERED
        await self._ports.streams.remember(key, numbers, until)

    async def _wake(self, runs: Sequence[str], until: int) -> None:
        await self._ports.queue.send_all(
            [SignalsArrived(run_id=run_id, until=until) for run_id in runs]
        )


def _fitting(signals: Sequence[SentSignal]) -> Sequence[SentSignal]:
    """The first of some signals, as many as surely fit into one row; one at least."""
    size = 0
    for n, each in enumerate(signals[:BATCH]):
        texts = (each.payload, each.metadata or "", each.signal_id, each.type)
        # JSON within JSON: a quote becomes two characters.
        size += 2 * sum(len(text.encode()) for text in texts) + _ENVELOPE
        if n and size > _LARGEST:
            return signals[:n]
    return signals[:BATCH]


def _batch(first: int, signals: Sequence[SentSignal]) -> SignalBatch:
    """A batch that recognises itself: whoever puts the same signals under the same number."""
    told = "".join(f"{len(each.signal_id)}:{each.signal_id}" for each in signals)
    batch_id = sha256(f"{first}|{told}".encode()).hexdigest()[:32]
    return SignalBatch(first=first, batch_id=batch_id, signals=tuple(signals))
