"""The part of the fold that is about signals: what a run emits, and what a subscription takes.

Of each signal, steps, hooks, timers and children are known while it is under way, and forgotten
with its end: its effects are all that stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from pydantic import TypeAdapter

from stepwell.core import stream_events as s
from stepwell.core.events import RunStarted
from stepwell.core.lifecycle import CHILD, SUBSCRIPTION, CorruptHistory, follow
from stepwell.core.lives import Lives
from stepwell.core.parts import ChildState, HookState, MapState, StepState, TimerState
from stepwell.core.records import Guards, Millis, Payload
from stepwell.core.signals import SentSignal
from stepwell.core.subscription import Handling, ParkedSignal, Subscription
from stepwell.errors import Failure

#: Characters of an error that stay with a parked signal; the event of it has all.
_ERROR_SHOWN = 500
#: For how long commits of a subscription are kept that no turn reads any more.
COMMITS_KEPT: Millis = 86_400_000
#: Requests that are known to have been made; older ones cannot come again.
_REQUESTS_KEPT = 100


class Folded(Protocol):
    """What is used here of a run's state."""

    last: int
    volume: int
    status: str | None
    started: RunStarted | None
    guards: Guards | None
    steps: dict[str, StepState]
    hooks: dict[str, HookState]
    timers: dict[str, TimerState]
    maps: dict[str, MapState]
    children: dict[str, ChildState]
    patches: set[str]
    attributes: dict[str, str]
    inbox: dict[str, Payload]
    entries: set[str]
    requests: set[str]
    lives: Lives
    emits: dict[str, s.SignalEmitted]
    polls: set[str]
    subscription: Subscription | None
    snapshot: int
    kept_from: int
    kept_from_at: Millis

    def do_again(self, again: Iterable[str], at: Millis) -> None:
        """Begin anew, with what succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """What a snapshot holds."""

    started: RunStarted
    subscription: Subscription
    attributes: dict[str, str]
    inbox: dict[str, Payload]
    entries: tuple[str, ...]
    requests: tuple[str, ...] = ()
    guards: Guards | None = None
    kept_from: int = 0
    kept_from_at: Millis = 0


@cache
def _snapshots() -> TypeAdapter[_Snapshot]:
    return TypeAdapter(_Snapshot)


def dump_snapshot(
    state: Folded,
    subscription: Subscription | None = None,
    attributes: dict[str, str] | None = None,
) -> Payload:
    """All that a subscription has come to, between two signals; or what it is to begin with."""
    assert state.started is not None
    assert state.subscription is not None
    snapshot = _Snapshot(
        started=state.started,
        subscription=subscription or state.subscription,
        attributes=state.attributes if attributes is None else attributes,
        inbox=state.inbox,
        entries=tuple(sorted(state.entries)),
        requests=tuple(sorted(state.requests)),
        guards=state.guards,
        kept_from=state.kept_from,
        kept_from_at=state.kept_from_at,
    )
    return _snapshots().dump_json(snapshot, exclude_none=True).decode()


def _of(state: Folded, event: s.StreamEvent) -> Subscription:
    """The subscription, if this can happen to it now."""
    known = state.subscription
    follow(SUBSCRIPTION, None if known is None else known.phase, event.type, "the subscription")
    assert known is not None
    return known


def _under_way(
    state: Folded, event: s.SignalHandled | s.SignalRetryScheduled | s.SignalParked
) -> tuple[Subscription, Handling]:
    known = _of(state, event)
    assert known.current is not None
    if known.current.sequence != event.sequence:
        raise CorruptHistory(
            f"{event.type} of signal {event.sequence}: {known.current.sequence} is under way"
        )
    return known, known.current


def begin(state: Folded, event: RunStarted) -> None:
    """A run begins that may be a subscription: then its workflow is `stream/step`."""
    stream, slash, step = event.workflow.partition("/")
    if slash and event.stream_run is not None:
        state.subscription = Subscription(stream=stream, stream_run=event.stream_run, step=step)


def signal_emitted(state: Folded, event: s.SignalEmitted) -> None:
    """The code emitted a signal."""
    state.emits[event.emit] = event


def inbox_polled(state: Folded, event: s.InboxPolled) -> None:
    """The code looked at the signals that wait."""
    _of(state, event)
    state.polls.add(event.poll)


def signal_taken(state: Folded, event: s.SignalTaken) -> None:
    """A signal is under way."""
    known = _of(state, event)
    if event.redriven:
        parked = known.parked_signal(event.sequence)
        if parked is None:
            raise CorruptHistory(f"signal {event.sequence} is not parked")
        known = known.without_parked(event.sequence)
        # What was begun under an id is begun anew; and no message of before is taken for a new one.
        state.lives = Lives(
            retried=state.last + 1, generations={**parked.hooks}, children={**parked.children}
        )
    current = Handling(
        sequence=event.sequence,
        number=state.last + 1,
        signal=_sent(event),
        held_from=event.held_from,
    )
    state.subscription = replace(known, begun=True, current=current)


def _sent(event: s.SignalTaken) -> SentSignal | None:
    if event.signal_id is None:
        return None
    assert event.signal_type is not None
    assert event.payload is not None
    assert event.published_at is not None
    return SentSignal(
        signal_id=event.signal_id,
        type=event.signal_type,
        payload=event.payload,
        published_at=event.published_at,
        metadata=event.metadata,
        source_run_id=event.source_run_id,
    )


def signal_handled(state: Folded, event: s.SignalHandled) -> None:
    """The signal under way has had its effects."""
    known, current = _under_way(state, event)
    cursor, ahead = _settled(known, current)
    for number in event.acknowledged or ():
        known = replace(known, cursor=cursor, ahead=ahead)
        cursor, ahead = known.settled(number, cursor + 1)
    suspended = event.status == "suspended"
    # What was held may be just what it waits for from here on.
    same = suspended and known.status == "suspended" and event.resume == known.resume
    state.subscription = replace(
        known,
        current=None,
        cursor=cursor,
        ahead=ahead,
        status=event.status,
        reason=event.reason,
        resume=event.resume if suspended else None,
        held=known.held if same else 0,
        checkpoint=known.checkpoint if event.checkpoint is None else event.checkpoint,
        result=known.result if event.result is None else event.result,
        handled=known.handled + (current.signal is not None) + len(event.acknowledged or ()),
    )
    _forget(state)


def _settled(known: Subscription, current: Handling) -> tuple[int, tuple[int, ...]]:
    """With the signal under way settled; what was redriven has been since it was parked."""
    at = current.sequence
    if at <= known.cursor or at in known.ahead:
        return known.cursor, known.ahead
    return known.settled(at, current.held_from)


def signal_retry_scheduled(state: Folded, event: s.SignalRetryScheduled) -> None:
    """Handling the signal under way failed, and is tried again."""
    known, current = _under_way(state, event)
    current = replace(current, attempt=event.attempt + 1, due=event.due)
    state.subscription = replace(known, current=current)
    state.do_again(event.redo or (), event.due)  # no time passes in between


def signal_parked(state: Folded, event: s.SignalParked) -> None:
    """The signal under way is given up for now."""
    known, current = _under_way(state, event)
    state.do_again((*state.steps, *state.timers, *state.children, *state.hooks), event.at)
    error = event.error
    parked = ParkedSignal(
        sequence=event.sequence,
        signal_type=None if current.signal is None else current.signal.type,
        at=event.at,
        attempts=event.attempt,
        error=Failure(error.type, error.message[:_ERROR_SHOWN]),
        blocks=bool(event.blocks),
        hooks={**state.lives.generations},
        children={**state.lives.children},
    )
    cursor, ahead = _settled(known, current)
    state.subscription = replace(
        known,
        current=None,
        cursor=cursor,
        ahead=ahead,
        parked=(*known.parked, parked),
        parked_total=known.parked_total + 1,
    )
    _forget(state)


def signals_held(state: Folded, event: s.SignalsHeld) -> None:
    """Nothing up to a number is what a suspended subscription waits for."""
    state.subscription = replace(_of(state, event), held=event.until)


def signal_redriven(state: Folded, event: s.SignalRedriven) -> None:
    """A parked signal is to be handled again."""
    known = _asked(_of(state, event), event.request_id)
    if known.parked_signal(event.sequence) is not None and event.sequence not in known.redrive:
        known = replace(known, redrive=(*known.redrive, event.sequence))
    state.subscription = known


def signal_discarded(state: Folded, event: s.SignalDiscarded) -> None:
    """A parked signal is given up for good."""
    known = _asked(_of(state, event), event.request_id)
    given_up = event.sequence > 0 and known.parked_signal(event.sequence) is not None
    state.subscription = replace(
        known.without_parked(event.sequence), discarded=known.discarded + given_up
    )


def _asked(known: Subscription, request_id: str) -> Subscription:
    return replace(known, requests=(*known.requests, request_id)[-_REQUESTS_KEPT:])


def snapshot_taken(state: Folded, event: s.SubscriptionSnapshot) -> None:
    """The log may be read from here on; where it is, this is all that came before.

    So is it for a subscription that has not begun: it succeeds another.
    """
    succeeds = state.status is not None and not _of(state, event).begun
    state.snapshot = state.last + 1
    state.volume = 0
    if state.status is None or succeeds:
        held = _snapshots().validate_json(event.state)
        state.status = "running"
        state.started = held.started
        state.guards = held.guards
        state.subscription = held.subscription
        state.attributes = dict(held.attributes)
        state.inbox = dict(held.inbox)
        state.entries = set(held.entries)
        state.requests = set(held.requests)
        state.kept_from, state.kept_from_at = held.kept_from, held.kept_from_at
    if not state.kept_from or event.at - state.kept_from_at > COMMITS_KEPT:
        state.kept_from, state.kept_from_at = state.snapshot, event.at


def child_waits(state: Folded, event: s.ChildWaits) -> None:
    """A child says what it waits for."""
    child = state.children.get(event.child)
    follow(CHILD, None if child is None else child.status, event.type, event.child)
    assert child is not None
    child.told, child.waits_for = event.order, event.reason


def _forget(state: Folded) -> None:
    """Forget what belonged to a signal that is not under way any more."""
    kinds: tuple[dict[str, Any], ...] = (
        state.steps,
        state.hooks,
        state.timers,
        state.maps,
        state.children,
    )
    for records in kinds:
        records.clear()
    state.emits.clear()
    state.polls.clear()
    state.patches.clear()
    state.lives = Lives()
