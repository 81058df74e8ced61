"""Events of signals: those that any run emits, and those of a subscription.

As all events: see `core.events`. A subscription's signal is in its log from when it is taken, so
that the log alone can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepwell.core.records import Millis, Payload
from stepwell.core.subscription import Rest
from stepwell.errors import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalEmitted:
    """The code emitted a signal; it is sent after this is durable. With `due`, not before that."""

    at: Millis
    emit: str
    stream: str
    stream_run: str
    signal_id: str
    signal_type: str
    payload: Payload
    digest: str
    metadata: Payload | None = None
    due: Millis | None = None
    type: Literal["SignalEmitted"] = "SignalEmitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTaken:
    """A subscription begins with a signal; number 0 is its start, which has none.

    `held_from` is the first signal that it was taken ahead of, None in its turn. `redriven` says
    that it was parked before.
    """

    at: Millis
    sequence: int
    signal_id: str | None = None
    signal_type: str | None = None
    payload: Payload | None = None
    published_at: Millis | None = None
    metadata: Payload | None = None
    source_run_id: str | None = None
    held_from: int | None = None
    redriven: bool | None = None
    type: Literal["SignalTaken"] = "SignalTaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalHandled:
    """What a signal came to: all of its effects on the subscription, None where there is none.

    `passed`: the lifecycle was not called for it. `acknowledged` are later signals that it took
    from the inbox, which are not delivered any more.
    """

    at: Millis
    sequence: int
    status: Rest
    reason: str | None = None
    resume: tuple[str, ...] | None = None
    checkpoint: Payload | None = None
    result: Payload | None = None
    passed: bool | None = None
    acknowledged: tuple[int, ...] | None = None
    type: Literal["SignalHandled"] = "SignalHandled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRetryScheduled:
    """Handling a signal failed; it is tried again at `due`. `redo` is what that does again."""

    at: Millis
    sequence: int
    attempt: int
    error: Failure
    due: Millis
    redo: tuple[str, ...] | None = None
    type: Literal["SignalRetryScheduled"] = "SignalRetryScheduled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalParked:
    """A signal failed for good, or does not fit its schema: it is kept, and later ones go on.

    Unless it `blocks` them.
    """

    at: Millis
    sequence: int
    attempt: int
    error: Failure
    blocks: bool | None = None
    type: Literal["SignalParked"] = "SignalParked"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsHeld:
    """A suspended subscription looked at all signals up to a number and waits for another kind."""

    at: Millis
    until: int
    type: Literal["SignalsHeld"] = "SignalsHeld"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRedriven:
    """Somebody wants a parked signal to be handled again."""

    at: Millis
    sequence: int
    request_id: str
    actor: str | None = None
    type: Literal["SignalRedriven"] = "SignalRedriven"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalDiscarded:
    """Somebody gave a parked signal up."""

    at: Millis
    sequence: int
    request_id: str
    actor: str | None = None
    type: Literal["SignalDiscarded"] = "SignalDiscarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPolled:
    """The code looked at the signals that wait: `signals` are these, as JSON."""

    at: Millis
    poll: str
    signals: Payload
    type: Literal["InboxPolled"] = "InboxPolled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSnapshot:
    """All that a subscription has come to, as JSON: a log may be read from here on."""

    at: Millis
    state: Payload
    type: Literal["SubscriptionSnapshot"] = "SubscriptionSnapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWaits:
    """A child says what it waits for: `reason`, or nothing in particular any more.

    `order` is the number of its last event then; an older word changes nothing.
    """

    at: Millis
    child: str
    name: str
    order: int
    reason: str | None = None
    type: Literal["ChildWaits"] = "ChildWaits"


StreamEvent = (
    SignalEmitted
    | SignalTaken
    | SignalHandled
    | SignalRetryScheduled
    | SignalParked
    | SignalsHeld
    | SignalRedriven
    | SignalDiscarded
    | InboxPolled
    | SubscriptionSnapshot
    | ChildWaits
)
