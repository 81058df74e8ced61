"""Signals of a run on their way out.

`SignalEmitted` is durable before its signal is sent; it is sent before the header names the event.
So a turn that finds a header behind its log sends again what lies between, and that changes
nothing: a signal's id is made from its run and the place in its code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from stepwell.core import events as e
from stepwell.core.durations import due_at
from stepwell.core.messages import SignalSent
from stepwell.core.signals import SentSignal, SignalDraft, StreamKey, emitted_signal_id
from stepwell.engine.journal import Journal
from stepwell.engine.ports import Ports
from stepwell.engine.values import Values
from stepwell.errors import DurationLike


class Outbox:
    """Signals of one run that are recorded, and not known to have been sent."""

    def __init__(self, ports: Ports, run_id: str, journal: Journal) -> None:
        self._ports = ports
        self._run_id = run_id
        self._journal = journal
        self._left: list[tuple[int, e.SignalEmitted]] = []

    def put(self, number: int, event: e.SignalEmitted) -> None:
        """A signal is recorded as event `number`."""
        self._left.append((number, event))

    def put_unsent(self, log: Iterable[tuple[int, e.Event]], sent: int) -> None:
        """Put all those in a log behind event `sent`."""
        for number, event in log:
            if number > sent and isinstance(event, e.SignalEmitted):
                self.put(number, event)

    async def send(self) -> None:
        """Send those that are durable, in the order in which they were emitted."""
        durable = self._journal.durable
        ready = [event for number, event in self._left if number <= durable]
        if not ready:
            return
        now = [self._message(event) for event in ready if event.due is None]
        if now:
            await self._ports.signals.send(now)
        for event in ready:
            if event.due is not None:
                await self._ports.signal_timers.schedule(self._message(event))
        self._left = self._left[len(ready) :]

    @property
    def waits(self) -> bool:
        """Whether something durable is left to be sent."""
        return bool(self._left and self._left[0][0] <= self._journal.durable)

    def _message(self, event: e.SignalEmitted) -> SignalSent:
        return SignalSent.of(
            StreamKey(event.stream, event.stream_run),
            SentSignal(
                signal_id=event.signal_id,
                type=event.signal_type,
                payload=event.payload,
                published_at=event.at,
                metadata=event.metadata,
                source_run_id=self._run_id,
            ),
            event.due,
        )


async def send_from_step(
    ports: Ports,
    values: Values,
    run_id: str,
    draft: SignalDraft,
    place: str,
    *,
    when: DurationLike | datetime | None,
) -> SentSignal:
    """Send a signal from a step's body, at once: `place` is that of the same call in each attempt.

    `values` are those of its run.
    """
    values, now = values.of(draft.key.owner), ports.clock.now()
    payload = await values.put(draft.payload, f"payload of signal {draft.type!r}")
    metadata = draft.metadata
    if metadata is not None:
        metadata = await values.put(metadata, f"metadata of signal {draft.type!r}")
    sent = SentSignal(
        signal_id=draft.signal_id(emitted_signal_id(run_id, place)),
        type=draft.type,
        payload=payload,
        published_at=now,
        metadata=metadata,
        source_run_id=run_id,
    )
    if when is None:
        await ports.signals.send([SignalSent.of(draft.key, sent)])
    else:
        message = SignalSent.of(draft.key, sent, due_at(when, now))
        await ports.signal_timers.schedule(message)
    return replace(sent, payload=draft.payload, metadata=draft.metadata)
