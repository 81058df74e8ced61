"""Signals from outside: what the inbox makes of them, and those that it keeps back for a while.

The id of a signal that has none is that of its SQS message, so that a second delivery is no second
signal. What is kept back was sent by the engine, or by somebody who may send to the inbox: it is
looked at once more, lest a signal show what belongs to another run.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic_core import from_json

from stepwell.adapters.aws.handlers.batch import Record
from stepwell.adapters.aws.handlers.outside import Signal
from stepwell.client import Client
from stepwell.core.durations import to_millis
from stepwell.core.ids import check_key
from stepwell.core.messages import SignalSent
from stepwell.core.records import is_reference, reference_key
from stepwell.core.signals import SignalDraft
from stepwell.engine.values import owner_of
from stepwell.errors import UsageError
from stepwell.streams.emitting import drafted


async def send_signal(client: Client, asked: Signal, record: Record) -> str:
    """Send a signal, now or later. The run that owns its stream run, or would.

    Raises as `Client.emit` does, and `UsageError`.
    """
    if asked.delay is not None:
        try:
            to_millis(asked.delay)
        except ValueError as error:
            raise UsageError(f"delay: {error}") from None
    draft = _draft(asked, record)
    await client.send_signal(draft, asked.delay)
    return draft.key.owner


def _draft(asked: Signal, record: Record) -> SignalDraft:
    key = asked.idempotency_key
    if key is not None and asked.signal_id is not None:
        raise UsageError("give a signal_id or an idempotency_key, not both")
    draft = drafted(
        asked.stream,
        asked.signal_type,
        asked.payload,
        stream_run_id=asked.stream_run_id,
        metadata=asked.metadata,
        idempotency_key=f"sqs-{record.message_id}" if key is None else key,
    )
    if asked.signal_id is None:
        return draft
    return replace(draft, given_id=check_key("signal", asked.signal_id))


def is_sound(signal: SignalSent) -> bool:
    """Whether a signal that was kept back holds JSON, or blobs of its stream run."""
    own = f"{owner_of(signal.key.owner)}/"
    return all(
        reference_key(each).startswith(own) if is_reference(each) else _is_json(each)
        for each in (signal.payload, signal.metadata)
        if each is not None
    )


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True
