"""Emitting signals: now or later, from workflows, stream steps, steps, and anywhere else."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from stepwell.authoring.checkpoints import value_codec
from stepwell.authoring.context import RUN, STEP, STREAM_RUN, RunContext, StepContext, coloured
from stepwell.authoring.registry import registry
from stepwell.core.ids import check_key, check_name
from stepwell.core.payload import codec
from stepwell.core.signals import SignalDraft, stream_key
from stepwell.errors import DurationLike, PayloadError, SignalRejected, UsageError
from stepwell.streams.declare import StreamWorkflow
from stepwell.streams.signals import Signal, shown_signal

#: Where a client is made for code that is in no run.
_CLIENT = "stepwell.client"


def emit(
    stream: str | StreamWorkflow[..., Any],
    signal_type: str,
    payload: Any = None,
    *,
    stream_run_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Any:
    """Send a signal to a stream run; await it in `async` code. Gives the `Signal`.

    Without `stream_run_id` it goes to the stream run that this code belongs to, by the same name on
    another stream, and where there is none to the shared run "default". `payload` is JSON or a
    model, by default `{}`. One stream run takes one signal under one `idempotency_key`; in a run
    each call has a key of its own without it, the same on every replay and attempt.

    In a workflow it is recorded, then sent; in a step it is sent at once. Raises `SignalRejected`
    when the payload does not fit what a step of the stream takes, and then nothing is sent;
    `PayloadError` on what cannot be carried; outside of runs also `StreamEnded`.
    """
    draft = drafted(
        stream,
        signal_type,
        payload,
        stream_run_id=_current() if stream_run_id is None else stream_run_id,
        metadata=metadata,
        idempotency_key=idempotency_key,
    )
    step, run = STEP.get(), RUN.get()
    if step is None and run is not None:
        # Composed here, not further in: whoever forgets to await it is told where it was called.
        return coloured(run, run.compose(_emitted(run, draft, None), "emit"))
    return _emit_outside(step, draft, None)


def schedule_signal(
    stream: str | StreamWorkflow[..., Any],
    signal_type: str,
    payload: Any = None,
    *,
    delay: DurationLike | None = None,
    delay_seconds: float | None = None,
    at: datetime | None = None,
    stream_run_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Any:
    """Send a signal later: after a delay, or at a time; as `emit`. Gives the `Signal`.

    It is sent whatever becomes of the run that asked for it. `Client.cancel_signal` takes it back.
    Raises `UsageError` unless one of `delay`, `delay_seconds` and `at` is given.
    """
    when = [each for each in (delay, delay_seconds, at) if each is not None]
    if len(when) != 1:
        raise UsageError("schedule_signal: give one of delay, delay_seconds and at")
    draft = drafted(
        stream,
        signal_type,
        payload,
        stream_run_id=_current() if stream_run_id is None else stream_run_id,
        metadata=metadata,
        idempotency_key=idempotency_key,
    )
    step, run = STEP.get(), RUN.get()
    if step is None and run is not None:
        return coloured(run, run.compose(_emitted(run, draft, when[0]), "schedule_signal"))
    return _emit_outside(step, draft, when[0])


def _current() -> str | None:
    """The stream run that the code here belongs to."""
    step, run = STEP.get(), RUN.get()
    if step is not None:
        return step.stream_run
    return None if run is None else STREAM_RUN.get() or run.stream_run


def drafted(
    stream: str | StreamWorkflow[..., Any],
    signal_type: str,
    payload: Any,
    *,
    stream_run_id: str | None,
    metadata: Mapping[str, Any] | None,
    idempotency_key: str | None,
) -> SignalDraft:
    """A signal to be sent, checked against what is registered here."""
    stream_id = stream.stream_id if isinstance(stream, StreamWorkflow) else stream
    key = stream_key(stream_id, stream_run_id)
    check_name("signal", signal_type)
    if idempotency_key is not None:
        check_key("signal", idempotency_key)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise UsageError(f"signal {signal_type!r}: metadata is an object by name, not {metadata!r}")
    owner = f"payload of signal {signal_type!r}"
    payload = {} if payload is None else payload
    text = value_codec(payload, owner).encode(payload)
    draft = SignalDraft(
        key=key,
        type=signal_type,
        payload=text,
        metadata=None
        if metadata is None
        else codec(dict[str, Any], f"metadata of signal {signal_type!r}").encode(dict(metadata)),
        idempotency_key=idempotency_key,
    )
    check_registered(draft)
    return draft


def check_registered(draft: SignalDraft) -> None:
    """Check a payload against the steps of its stream. Raises `SignalRejected`."""
    for step in registry.stream_steps(draft.key.stream).values():
        schema = step.signals.get(draft.type)
        if schema is None:
            continue
        try:
            schema.decode(draft.payload)
        except PayloadError as error:
            problem = {"pointer": error.path, "message": error.reason}
            raise SignalRejected(*draft.key, draft.type, step.name, [problem]) from None


def _emit_outside(
    step: StepContext | None, draft: SignalDraft, when: DurationLike | datetime | None
) -> Any:
    """In a step, or in code that is in no run."""
    if step is not None:
        sending = _emitted(step, draft, when)
        # What a step that forgets to await it is told to have called.
        word = "emit" if when is None else "schedule_signal"
        sending.__name__ = word  # type: ignore[attr-defined]
        return coloured(step, sending)
    client = importlib.import_module(_CLIENT).Client.from_env()
    return client.send_signal(draft, when)


async def _emitted(
    context: RunContext | StepContext, draft: SignalDraft, when: DurationLike | datetime | None
) -> Signal:
    return shown_signal(draft.key, await context.emit(draft, when))
