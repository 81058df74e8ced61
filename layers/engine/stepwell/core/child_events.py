"""Events of a run about its children. As all events: see `core.events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepwell.core.records import ChildEnding, Guards, Millis, OnParentClose, Payload
from stepwell.errors import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStarted:
    """A child is to run: from this event alone, whoever sends for it.

    `on_parent_close` None: it is cancelled with its parent. `context` is what it begins with,
    `guards` are those of its steps. With `after`, its run is there and ended so with this event: a
    stream run is the same one also when its parent is retried, and is retried with it.
    """

    at: Millis
    child: str
    name: str
    run_id: str
    digest: str
    version: str
    input: Payload
    on_parent_close: OnParentClose | None = None
    stream_run: str | None = None
    context: Payload | None = None
    guards: Guards | None = None
    after: int | None = None
    type: Literal["ChildStarted"] = "ChildStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCancelRequested:
    """The code does not want an open child any more; it is sent for after this is durable."""

    at: Millis
    child: str
    name: str
    reason: str | None = None
    type: Literal["ChildCancelRequested"] = "ChildCancelRequested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnded:
    """A child has ended, or could not begin. `run_id` is the run that ended: its last link."""

    at: Millis
    child: str
    name: str
    run_id: str
    status: ChildEnding
    result: Payload | None = None
    error: Failure | None = None
    reason: str | None = None
    type: Literal["ChildEnded"] = "ChildEnded"
