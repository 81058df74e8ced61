"""Which event may follow which. Everything that affects a transition is in this file.

For a run, for each step, map, hook, timer and child in it, and for a subscription, a table leads
from a state and an event type to the next state; what is not in the table cannot happen and a log
that says so is corrupt. The tables know nothing of turns, messages or clocks.

Late truths are legal: an outcome may be recorded for a step that was cancelled, and a decision for
a hook that never got its HookOpened because a process died first.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.errors import StepwellError

#: state → event type → next state. The state None is "not seen before".
Table = Mapping[str | None, Mapping[str, str]]


class CorruptHistory(StepwellError):
    """A log holds an event that cannot follow the ones before it."""


_STEP_OPEN = {
    "StepStarted": "started",
    "StepSuspended": "suspended",
    "StepRetryScheduled": "retrying",
    "StepCompleted": "completed",
    "StepFailed": "failed",
    "StepCancelled": "cancelled",
}

STEP: Table = {
    None: _STEP_OPEN,
    "started": _STEP_OPEN,
    "suspended": _STEP_OPEN,
    "retrying": _STEP_OPEN,
    "cancelled": {"StepCompleted": "cancelled", "StepFailed": "cancelled"},
    "completed": {},
    "failed": {},
}

MAP: Table = {
    None: {"MapStarted": "started"},
    "started": {"MapEnded": "ended"},
    "ended": {"MapStarted": "started"},
}

_HOOK_ENDS = {
    "HookReceived": "received",
    "HookExpired": "expired",
    "HookClosed": "closed",
    "HookFailed": "failed",
}

HOOK: Table = {
    None: {"HookOpened": "open", "HookNotifyFailed": "notifying", **_HOOK_ENDS},
    "notifying": {"HookOpened": "open", "HookNotifyFailed": "notifying", **_HOOK_ENDS},
    "open": {k: v for k, v in _HOOK_ENDS.items() if k != "HookFailed"},
    "received": {},
    "expired": {},
    "closed": {},
    # The row of a hook that failed to notify is closed too, or was answered all the same.
    "failed": {"HookClosed": "failed", "HookReceived": "failed", "HookExpired": "failed"},
}

TIMER: Table = {
    None: {"TimerStarted": "started", "TimerFired": "fired"},
    "started": {"TimerFired": "fired", "TimerCancelled": "cancelled"},
    "cancelled": {"TimerFired": "cancelled"},
    "fired": {},
}

CHILD: Table = {
    # One that cannot be started ends without having been.
    None: {"ChildStarted": "open", "ChildEnded": "ended"},
    "open": {"ChildWaits": "open", "ChildCancelRequested": "cancelling", "ChildEnded": "ended"},
    "cancelling": {"ChildWaits": "cancelling", "ChildEnded": "ended"},
    "ended": {},
}

SUBSCRIPTION: Table = {
    # A run that is none has no signals.
    None: {},
    "at rest": {
        "SignalTaken": "at work",
        "SignalsHeld": "at rest",
        "SignalRedriven": "at rest",
        "SignalDiscarded": "at rest",
        "SubscriptionSnapshot": "at rest",
    },
    "at work": {
        "InboxPolled": "at work",
        "SignalHandled": "at rest",
        "SignalRetryScheduled": "at work",
        "SignalParked": "at rest",
        "SignalRedriven": "at work",
        "SignalDiscarded": "at work",
    },
    # It takes no more; what is parked can still be given up.
    "ended": {"SignalRedriven": "ended", "SignalDiscarded": "ended"},
}

RUN: Table = {
    None: {"RunStarted": "running"},
    "running": {
        "RunCompleted": "completed",
        "RunFailed": "failed",
        "RunCancelled": "cancelled",
        "RunContinued": "continued",
    },
    "completed": {"RunDeleted": "deleted"},
    "failed": {"RunRetried": "running", "RunDeleted": "deleted"},
    "cancelled": {"RunRetried": "running", "RunDeleted": "deleted"},
    "continued": {"RunDeleted": "deleted"},
    "deleted": {},
}


def follow(table: Table, state: str | None, event: str, what: str) -> str:
    """The next state. Raises `CorruptHistory` naming what cannot follow what."""
    try:
        return table[state][event]
    except KeyError:
        raise CorruptHistory(f"{event} cannot follow: {what} is {state or 'unknown'}") from None
