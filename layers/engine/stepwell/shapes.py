"""The JSON that commands print and the HTTP API answers with: one stable shape for each noun,
every key always there.

Values are JSON, not text that holds JSON; times are ISO 8601 in UTC.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from stepwell.client import InboxEntry, OutputChunk, PendingHook, Recorded, Resumed
from stepwell.core.durations import to_datetime
from stepwell.core.records import (
    HookRow,
    Millis,
    Payload,
    PublishedWorkflow,
    RunHeader,
    Wait,
)
from stepwell.core.subscription import ParkedSignal
from stepwell.engine.streaming import StreamStanding, SubscriptionStanding
from stepwell.errors import Failure
from stepwell.streams.signals import Signal

Shape = dict[str, Any]

#: Fields of events that are times, and those that are values.
_TIMES = ("at", "due", "due_at", "expires_at")
_VALUES = ("input", "result", "payload", "attributes", "context")


def iso(at: Millis) -> str:
    """A time as text: ISO 8601, UTC, milliseconds."""
    return to_datetime(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_of(at: datetime) -> str:
    """A moment as text, as `iso` writes it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(at: Millis | None) -> str | None:
    return None if at is None else iso(at)


def _value(payload: Payload | None) -> Any:
    return None if payload is None else json.loads(payload)


def _failure(failure: Failure | None) -> Shape | None:
    return None if failure is None else asdict(failure)


def _wait(wait: Wait) -> Shape:
    return {
        "kind": wait.kind,
        "id": wait.id,
        "name": wait.name,
        "since": iso(wait.since),
        "until": _time(wait.until),
        "done": wait.done,
        "total": wait.total,
        "reason": wait.reason,
    }


def run_summary(header: RunHeader) -> Shape:
    """A run in a list: all but its values."""
    attention, fork = header.attention, header.forked_from
    return {
        "run_id": header.run_id,
        "workflow": header.workflow,
        "version": header.version,
        "status": header.status.value,
        "created_at": iso(header.created_at),
        "updated_at": iso(header.updated_at),
        "last_event": header.last_event,
        "waiting": [_wait(wait) for wait in header.waiting],
        "attention": None
        if attention is None
        else {"kind": attention.kind, "reason": attention.reason, "since": iso(attention.since)},
        "cancel_requested": header.cancel_requested,
        "idempotency_key": header.idempotency_key,
        "tags": list(header.tags),
        "attributes": _value(header.attributes) or {},
        "forked_from": None if fork is None else {"run_id": fork.run_id, "event": fork.event},
        "parent": None if header.parent is None else asdict(header.parent),
        "continued_from": header.continued_from,
        "continued_to": header.continued_to,
        "error": _failure(header.error),
        "kept_until": _time(header.kept_until),
    }


def run_shape(header: RunHeader) -> Shape:
    """A run with its input and result."""
    return {
        **run_summary(header),
        "input": _value(header.input),
        "context": _value(header.context),
        "result": _value(header.result),
    }


def hook_shape(hook: PendingHook) -> Shape:
    """An open hook, with its token."""
    return {
        "run_id": hook.run_id,
        "hook_id": hook.hook_id,
        "name": hook.name,
        "step": hook.step,
        "token": hook.token,
        "created_at": iso(hook.created_at),
        "expires_at": _time(hook.expires_at),
        "due_at": _time(hook.due_at),
        "question": hook.question,
        "schema": _value(hook.schema),
    }


def hook_view(hook: HookRow) -> Shape:
    """A hook as its link shows it: neither its run nor its answer."""
    return {
        "name": hook.name,
        "status": hook.status.value,
        "created_at": iso(hook.created_at),
        "expires_at": _time(hook.expires_at),
        "due_at": _time(hook.due_at),
        "decided_at": _time(hook.decided_at),
        "question": hook.question,
        "schema": _value(hook.schema),
    }


def event_shape(recorded: Recorded) -> Shape:
    """An event with its number; its own fields as they are recorded."""
    fields = asdict(recorded.event)
    shape: Shape = {"number": recorded.number, "type": fields.pop("type")}
    for name, value in fields.items():
        if name in _TIMES:
            shape[name] = _time(value)
        elif name in _VALUES:
            shape[name] = _value(value)
        else:
            shape[name] = value
    return shape


def chunk_shape(chunk: OutputChunk) -> Shape:
    """A piece of a step's output, or a reset mark."""
    return {
        "position": chunk.position,
        "number": chunk.number,
        "reset": chunk.reset,
        "value": chunk.value,
    }


def entry_shape(entry: InboxEntry) -> Shape:
    """An entry of an inbox."""
    return {
        "run_id": entry.run_id,
        "entry_id": entry.entry_id,
        "key": entry.key,
        "value": entry.value,
        "sent_at": iso(entry.sent_at),
        "actor": entry.actor,
        "event": entry.event,
    }


def resumed_shape(resumed: Resumed) -> Shape:
    """An answer that was taken."""
    return asdict(resumed)


def workflow_summary(workflow: PublishedWorkflow) -> Shape:
    """A published workflow in a list: all but its schemas."""
    return {
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.description,
        "digest": workflow.digest,
        "published_at": iso(workflow.published_at),
    }


def workflow_shape(workflow: PublishedWorkflow) -> Shape:
    """A published workflow with its JSON schemas."""
    return {
        **workflow_summary(workflow),
        "input_schema": _value(workflow.input_schema),
        "result_schema": _value(workflow.result_schema),
    }


def signal_shape(signal: Signal) -> Shape:
    """A signal. Its number is null for one that was just sent."""
    return {
        "signal_id": signal.signal_id,
        "stream": signal.stream_id,
        "stream_run_id": signal.stream_run_id,
        "type": signal.signal_type,
        "payload": signal.payload,
        "published_at": iso_of(signal.published_at),
        "sequence": signal.sequence,
        "source_run_id": signal.source_run_id,
        "metadata": dict(signal.metadata),
    }


def stream_shape(stream: StreamStanding) -> Shape:
    """A stream run and its subscriptions."""
    return {
        "stream": stream.stream,
        "stream_run_id": stream.stream_run,
        "run_id": stream.run_id,
        "last": stream.last,
        "last_signal_at": _time(stream.last_signal_at),
        "status": stream.status,
        "reason": stream.reason,
        "subscriptions": [_subscription(each) for each in stream.subscriptions],
    }


def _subscription(each: SubscriptionStanding) -> Shape:
    return {**asdict(each), "types": list(each.types)}


def parked_shape(parked: ParkedSignal) -> Shape:
    """A signal that a step could not handle."""
    return {
        "sequence": parked.sequence,
        "type": parked.signal_type,
        "parked_at": iso(parked.at),
        "attempts": parked.attempts,
        "error": _failure(parked.error),
        "blocks": parked.blocks,
    }
