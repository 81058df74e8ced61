"""Every pair of state and event, legal or not, stated here once more and by hand."""

from __future__ import annotations

import typing

import pytest

from stepwell.core import events as e
from stepwell.core.lifecycle import (
    CHILD,
    HOOK,
    MAP,
    RUN,
    STEP,
    SUBSCRIPTION,
    TIMER,
    CorruptHistory,
    Table,
    follow,
)

STEP_STATES = [None, "started", "suspended", "retrying", "cancelled", "completed", "failed"]
STEP_EVENTS = [
    "StepStarted", "StepSuspended", "StepRetryScheduled", "StepCompleted", "StepFailed",
    "StepCancelled",
]  # fmt: skip
GOES_TO = {
    "StepStarted": "started",
    "StepSuspended": "suspended",
    "StepRetryScheduled": "retrying",
    "StepCompleted": "completed",
    "StepFailed": "failed",
    "StepCancelled": "cancelled",
}
HOOK_STATES = [None, "notifying", "open", "received", "expired", "closed", "failed"]
HOOK_EVENTS = [
    "HookOpened", "HookNotifyFailed", "HookReceived", "HookExpired", "HookClosed", "HookFailed",
]  # fmt: skip
TIMER_STATES = [None, "started", "fired", "cancelled"]
TIMER_EVENTS = ["TimerStarted", "TimerFired", "TimerCancelled"]
MAP_STATES = [None, "started", "ended"]
MAP_EVENTS = ["MapStarted", "MapEnded"]
CHILD_STATES = [None, "open", "cancelling", "ended"]
CHILD_EVENTS = ["ChildStarted", "ChildWaits", "ChildCancelRequested", "ChildEnded"]
SUBSCRIPTION_STATES = [None, "at rest", "at work", "ended"]
SUBSCRIPTION_EVENTS = [
    "SignalTaken", "SignalHandled", "SignalRetryScheduled", "SignalParked", "SignalsHeld",
    "SignalRedriven", "SignalDiscarded", "InboxPolled", "SubscriptionSnapshot",
]  # fmt: skip
RUN_STATES = [None, "running", "completed", "failed", "cancelled", "continued", "deleted"]
RUN_EVENTS = [
    "RunStarted", "RunCompleted", "RunFailed", "RunCancelled", "RunContinued", "RunRetried",
    "RunDeleted",
]  # fmt: skip


def step_goes(state: str | None, event: str) -> str | None:
    if state in ("completed", "failed"):
        return None
    if state == "cancelled":
        return "cancelled" if event in ("StepCompleted", "StepFailed") else None
    return GOES_TO[event]


def hook_goes(state: str | None, event: str) -> str | None:
    decisions = {"HookReceived": "received", "HookExpired": "expired", "HookClosed": "closed"}
    if state in (None, "notifying"):
        others = {"HookOpened": "open", "HookNotifyFailed": "notifying", "HookFailed": "failed"}
        return (decisions | others)[event]
    if state == "open":
        return decisions.get(event)
    if state == "failed":
        return "failed" if event in decisions else None
    return None


def timer_goes(state: str | None, event: str) -> str | None:
    return {
        (None, "TimerStarted"): "started",
        (None, "TimerFired"): "fired",
        ("started", "TimerFired"): "fired",
        ("started", "TimerCancelled"): "cancelled",
        ("cancelled", "TimerFired"): "cancelled",
    }.get((state, event))


def map_goes(state: str | None, event: str) -> str | None:
    return {
        (None, "MapStarted"): "started",
        ("started", "MapEnded"): "ended",
        ("ended", "MapStarted"): "started",
    }.get((state, event))


def child_goes(state: str | None, event: str) -> str | None:
    return {
        (None, "ChildStarted"): "open",
        (None, "ChildEnded"): "ended",
        ("open", "ChildWaits"): "open",
        ("cancelling", "ChildWaits"): "cancelling",
        ("open", "ChildCancelRequested"): "cancelling",
        ("open", "ChildEnded"): "ended",
        ("cancelling", "ChildEnded"): "ended",
    }.get((state, event))


def subscription_goes(state: str | None, event: str) -> str | None:
    if state is not None and event in ("SignalRedriven", "SignalDiscarded"):
        return state
    return {
        ("at rest", "SignalTaken"): "at work",
        ("at rest", "SignalsHeld"): "at rest",
        ("at rest", "SubscriptionSnapshot"): "at rest",
        ("at work", "InboxPolled"): "at work",
        ("at work", "SignalRetryScheduled"): "at work",
        ("at work", "SignalHandled"): "at rest",
        ("at work", "SignalParked"): "at rest",
    }.get((state, event))


def run_goes(state: str | None, event: str) -> str | None:
    return {
        (None, "RunStarted"): "running",
        ("running", "RunCompleted"): "completed",
        ("running", "RunFailed"): "failed",
        ("running", "RunCancelled"): "cancelled",
        ("failed", "RunRetried"): "running",
        ("cancelled", "RunRetried"): "running",
        ("running", "RunContinued"): "continued",
        ("completed", "RunDeleted"): "deleted",
        ("failed", "RunDeleted"): "deleted",
        ("cancelled", "RunDeleted"): "deleted",
        ("continued", "RunDeleted"): "deleted",
    }.get((state, event))


PAIRS = [
    (table, state, event, goes(state, event))
    for table, states, events, goes in (
        (STEP, STEP_STATES, STEP_EVENTS, step_goes),
        (HOOK, HOOK_STATES, HOOK_EVENTS, hook_goes),
        (TIMER, TIMER_STATES, TIMER_EVENTS, timer_goes),
        (MAP, MAP_STATES, MAP_EVENTS, map_goes),
        (CHILD, CHILD_STATES, CHILD_EVENTS, child_goes),
        (SUBSCRIPTION, SUBSCRIPTION_STATES, SUBSCRIPTION_EVENTS, subscription_goes),
        (RUN, RUN_STATES, RUN_EVENTS, run_goes),
    )
    for state in states
    for event in events
]


@pytest.mark.parametrize(("table", "state", "event", "expected"), PAIRS)
def test_what_may_follow_what(
    table: Table, state: str | None, event: str, expected: str | None
) -> None:
    if expected is not None:
        assert follow(table, state, event, "it") == expected
        return
    with pytest.raises(CorruptHistory) as caught:
        follow(table, state, event, "it")
    assert event in str(caught.value)
    assert (state or "unknown") in str(caught.value)


@pytest.mark.parametrize(
    ("table", "states"),
    [
        (STEP, STEP_STATES),
        (HOOK, HOOK_STATES),
        (TIMER, TIMER_STATES),
        (MAP, MAP_STATES),
        (CHILD, CHILD_STATES),
        (SUBSCRIPTION, SUBSCRIPTION_STATES),
        (RUN, RUN_STATES),
    ],
)
def test_the_tables_hold_these_states_and_lead_nowhere_else(
    table: Table, states: list[str | None]
) -> None:
    assert set(table) == set(states)
    assert {target for row in table.values() for target in row.values()} <= set(states)


#: What may come at any time while the run goes on.
FREE = {
    "AttributesSet",
    "CancelRequested",
    "GuardsReplaced",
    "InboxReceived",
    "LookRequested",
    "PatchMarked",
    "RunForked",
    "RunSuspended",
    "SignalEmitted",
    "StepSuperseded",
}


def test_every_event_but_the_free_ones_stands_in_one_table() -> None:
    known = {kind.__name__ for kind in typing.get_args(e.Event)}
    placed = [
        event
        for table in (STEP, HOOK, TIMER, MAP, CHILD, SUBSCRIPTION, RUN)
        for event in {name for row in table.values() for name in row}
    ]
    assert sorted(placed) == sorted(known - FREE)
