"""What may be put on the inbox queue from outside, as JSON; `type` says which it is.

    {"type": "start", "workflow": "…", "input": {…}, "idempotency_key": "…", "tags": ["…"],
     "context": …}
    {"type": "resume_hook", "token": "…", "payload": …, "actor": "…"}
    {"type": "put_inbox", "run_id": "…", "key": "…", "value": …, "entry_id": "…", "actor": "…"}
    {"type": "signal", "stream": "…", "signal_type": "…", "payload": …, "stream_run_id": "…",
     "metadata": {…}, "signal_id": "…", "idempotency_key": "…", "delay": "10m"}
    {"type": "resume", "run_id": "…", "actor": "…"}
    {"type": "cancel", "run_id": "…", "reason": "…", "actor": "…"}

Only `workflow`, `token`, `run_id`, `key`, `stream` and `signal_type` have to be there. A start
without a key, an entry without an id, and a signal without either, have the id of their SQS message
for one, so that a second delivery does nothing. A field that is not known is refused.

Whoever may send to the queue may do these things: its policy is the authorisation. The engine's own
messages are refused here, apart from timers and signals that are kept back: they would decide what
only a turn may decide.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from stepwell.adapters.aws.signal_queue import SignalLater
from stepwell.core.messages import TimerDue


class _Outside(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Start(_Outside):
    """Start a run."""

    type: Literal["start"]
    workflow: str
    input: dict[str, Any] = Field(default_factory=dict, repr=False)
    idempotency_key: str | None = None
    tags: tuple[str, ...] = ()
    context: Any = Field(default=None, repr=False)


class ResumeHook(_Outside):
    """Answer a hook."""

    type: Literal["resume_hook"]
    token: str = Field(repr=False)
    payload: Any = Field(default=None, repr=False)
    actor: str | None = None


class PutInbox(_Outside):
    """Put an entry into a run's inbox."""

    type: Literal["put_inbox"]
    run_id: str
    key: str
    value: Any = Field(default=None, repr=False)
    entry_id: str | None = None
    actor: str | None = None


class Signal(_Outside):
    """Send a signal to a stream run; with a delay, later."""

    type: Literal["signal"]
    stream: str
    signal_type: str
    payload: Any = Field(default=None, repr=False)
    stream_run_id: str | None = None
    metadata: dict[str, Any] | None = Field(default=None, repr=False)
    signal_id: str | None = None
    idempotency_key: str | None = None
    delay: str | float | None = None


class Resume(_Outside):
    """Let a run go on that is paused, or waits for input."""

    type: Literal["resume"]
    run_id: str
    actor: str | None = None


class Cancel(_Outside):
    """Cancel a run."""

    type: Literal["cancel"]
    run_id: str
    reason: str | None = None
    actor: str | None = None


Asked = Start | ResumeHook | PutInbox | Signal | Resume | Cancel
Received = Asked | TimerDue | SignalLater

_RECEIVED: TypeAdapter[Received] = TypeAdapter(Annotated[Received, Field(discriminator="type")])


def load_received(body: str) -> Received:
    """What a body of the inbox queue holds. Raises `pydantic.ValidationError` on anything else."""
    return _RECEIVED.validate_json(body)
