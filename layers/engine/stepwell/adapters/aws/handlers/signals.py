"""Signals from outside: what the inbox makes of them, and those that it keeps back for a while.

The id of a signal that has none is that of its SQS message, so that a second delivery is no second
signal. What is kept back was sent by the engine, or by somebody who may send to the inbox: it is
looked at once more, lest a signal show what belongs to another run.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from stepwell.adapters.aws.handlers.batch import Record
from stepwell.adapters.aws.handlers.outside import Signal
from stepwell.core.durations import due_at
from stepwell.core.ids import check_key
from stepwell.core.messages import SignalSent
from stepwell.core.payload import Sizes, codec
from stepwell.core.records import Millis, Payload, is_reference, reference_key
from stepwell.core.signals import StreamKey, keyed_signal_id, stream_key
from stepwell.engine.ports import Ports
from stepwell.engine.values import Values, owner_of
from stepwell.errors import UsageError


async def send_signal(ports: Ports, sizes: Sizes, asked: Signal, record: Record) -> StreamKey:
    """Send a signal, or have it sent later. The stream run that it is for.

    Raises `DefinitionError` for names that cannot be, `UsageError`, `PayloadError`, `ItemTooLarge`.
    """
    key = stream_key(asked.stream, asked.stream_run_id)
    now = ports.clock.now()
    due = None if asked.delay is None else _due(asked.delay, now)
    values = Values(ports.blobs, sizes, key.owner)
    what = f"signal {check_key('signal type', asked.signal_type)!r}"
    signal = SignalSent(
        stream=key.stream,
        stream_run=key.run,
        signal_id=_signal_id(key, asked, record),
        signal_type=asked.signal_type,
        payload=await _kept(values, what, asked.payload),
        metadata=None
        if asked.metadata is None
        else await _kept(values, f"metadata of {what}", asked.metadata),
        published_at=now,
        due=due,
    )
    if due is None or due <= now:
        await ports.signals.send([signal])
    else:
        await ports.signal_timers.schedule(signal)
    return key


def is_sound(signal: SignalSent) -> bool:
    """Whether a signal that was kept back holds JSON objects, or blobs of its stream run."""
    values = (signal.payload, "{}" if signal.metadata is None else signal.metadata)
    own = f"{owner_of(signal.key.owner)}/"
    return all(
        reference_key(each).startswith(own) if is_reference(each) else _is_object(each)
        for each in values
    )


def _is_object(text: str) -> bool:
    try:
        return isinstance(from_json(text), dict)
    except ValueError:
        return False


def _due(delay: str | float, now: Millis) -> Millis:
    try:
        return due_at(delay, now)
    except ValueError as error:
        raise UsageError(f"delay: {error}") from None


def _signal_id(key: StreamKey, asked: Signal, record: Record) -> str:
    if asked.signal_id is not None:
        if asked.idempotency_key is not None:
            raise UsageError("give a signal_id or an idempotency_key, not both")
        return check_key("signal", asked.signal_id)
    if asked.idempotency_key is not None:
        return keyed_signal_id(key, check_key("idempotency", asked.idempotency_key))
    return keyed_signal_id(key, f"sqs-{record.message_id}")


async def _kept(values: Values, what: str, value: dict[str, Any]) -> Payload:
    """A JSON object as it is recorded."""
    return await values.put(codec(dict[str, Any], what).encode(value), what)
