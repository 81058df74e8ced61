"""What a client offers for streams."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from stepwell.core.ids import check_key
from stepwell.core.signals import SentSignal, SignalDraft, StreamKey, stream_key
from stepwell.core.subscription import ParkedSignal
from stepwell.engine.streaming import Streaming, StreamStanding
from stepwell.errors import DurationLike
from stepwell.streams.declare import StreamWorkflow
from stepwell.streams.emitting import drafted
from stepwell.streams.signals import Signal, shown_signal

#: A stream: what `@stream_workflow` gave, or its name.
StreamLike = str | StreamWorkflow[..., Any]
#: What becomes of a parked signal.
MendAction = Literal["redrive", "discard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSignal:
    """A signal to be emitted with others; as the arguments of `Client.emit`."""

    signal_type: str
    payload: Any = None
    metadata: Mapping[str, Any] | None = None
    idempotency_key: str | None = None


class StreamCalls:
    """The part of a client that is about streams. Without `stream_run_id`, "default" is meant."""

    _streaming: Streaming

    async def emit(
        self,
        stream: StreamLike,
        signal_type: str,
        payload: Any = None,
        *,
        stream_run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Signal:
        """Send a signal to a stream run; durable when it returns. Its number is given on its way.

        One that comes before the stream run is started waits for it. The same `idempotency_key` on
        the same stream run is the same signal, for 30 days. Raises `SignalRejected` when the
        payload does not fit what is published of the stream, `StreamEnded`, `PayloadError`.
        """
        draft = drafted(
            stream,
            signal_type,
            payload,
            stream_run_id=stream_run_id,
            metadata=metadata,
            idempotency_key=idempotency_key,
        )
        return await self.send_signal(draft)

    async def emit_all(
        self, stream: StreamLike, signals: Iterable[NewSignal], *, stream_run_id: str | None = None
    ) -> tuple[Signal, ...]:
        """Send signals to one stream run, in this order; all of them, or none of one is rejected.

        Raises as `emit` does.
        """
        drafts = [
            drafted(
                stream,
                each.signal_type,
                each.payload,
                stream_run_id=stream_run_id,
                metadata=each.metadata,
                idempotency_key=each.idempotency_key,
            )
            for each in signals
        ]
        sent = await self._streaming.send(drafts, None)
        return tuple(_shown(draft, each) for draft, each in zip(drafts, sent, strict=True))

    async def schedule_signal(
        self,
        stream: StreamLike,
        signal_type: str,
        payload: Any = None,
        *,
        when: DurationLike | datetime,
        stream_run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Signal:
        """Send a signal after a delay or at a time; durable when it returns. As `emit`."""
        draft = drafted(
            stream,
            signal_type,
            payload,
            stream_run_id=stream_run_id,
            metadata=metadata,
            idempotency_key=idempotency_key,
        )
        return await self.send_signal(draft, when)

    async def send_signal(
        self, draft: SignalDraft, when: DurationLike | datetime | None = None
    ) -> Signal:
        """As `emit` and `schedule_signal`, of a signal that was drafted."""
        (sent,) = await self._streaming.send([draft], when)
        return _shown(draft, sent)

    async def cancel_signal(
        self, stream: StreamLike, signal_id: str, *, stream_run_id: str | None = None
    ) -> None:
        """Take a scheduled signal back, unless it is on its way already.

        Nothing happens if there is none. Raises `DefinitionError` on what can be no id.
        """
        key = _key(stream, stream_run_id)
        await self._streaming.unschedule(key, check_key("signal", signal_id))

    async def signals(
        self,
        stream: StreamLike,
        *,
        stream_run_id: str | None = None,
        after: int = 0,
        before: int | None = None,
        types: Collection[str] | None = None,
        source_run_id: str | None = None,
        limit: int = 200,
    ) -> tuple[Signal, ...]:
        """Signals of a stream run with a number above `after` and below `before`, in order.

        Of these types, emitted by that run, at most `limit`. Raises `ValueError` on a bad range.
        """
        key = _key(stream, stream_run_id)
        found = await self._streaming.read(
            key,
            after=after,
            before=before,
            types=types,
            source_run_id=source_run_id,
            limit=limit,
        )
        return tuple(shown_signal(key, sent, number) for number, sent in found)

    async def stream(
        self, stream: StreamLike, *, stream_run_id: str | None = None
    ) -> StreamStanding:
        """A stream run as it stands, with its subscriptions; also one that nobody has started."""
        return await self._streaming.standing(_key(stream, stream_run_id))

    async def parked_signals(
        self, stream: StreamLike, step: str, *, stream_run_id: str | None = None
    ) -> tuple[ParkedSignal, ...]:
        """Signals that a step could not handle, oldest first. Raises `SubscriptionNotFound`."""
        return await self._streaming.parked(_key(stream, stream_run_id), step)

    async def redrive_signal(
        self,
        stream: StreamLike,
        step: str,
        sequence: int,
        *,
        stream_run_id: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Have a parked signal handled again, from its beginning.

        Raises `SubscriptionNotFound`, `SignalNotParked`, and `RunEnded` when the step has ended.
        """
        await self.mend_signal(
            stream, step, sequence, "redrive", stream_run_id=stream_run_id, actor=actor
        )

    async def discard_signal(
        self,
        stream: StreamLike,
        step: str,
        sequence: int,
        *,
        stream_run_id: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Give a parked signal up for good. Raises as `redrive_signal` does."""
        await self.mend_signal(
            stream, step, sequence, "discard", stream_run_id=stream_run_id, actor=actor
        )

    async def mend_signal(
        self,
        stream: StreamLike,
        step: str,
        sequence: int,
        action: MendAction,
        *,
        stream_run_id: str | None = None,
        actor: str | None = None,
    ) -> None:
        """As `redrive_signal` or `discard_signal`."""
        key = _key(stream, stream_run_id)
        await self._streaming.mend(key, step, sequence, action, actor)


def _shown(draft: SignalDraft, sent: SentSignal) -> Signal:
    """A signal that was sent, with its values as they were drafted."""
    whole = replace(sent, payload=draft.payload, metadata=draft.metadata)
    return shown_signal(draft.key, whole)


def _key(stream: StreamLike, stream_run_id: str | None) -> StreamKey:
    stream_id = stream.stream_id if isinstance(stream, StreamWorkflow) else stream
    return stream_key(stream_id, stream_run_id)
