"""What was decided outside a run and is not yet in its log, as events.

Whatever woke the turn, the same is asked: which hook rows are decided, which timers are due, was a
cancel asked for. So any message may come first, late, twice or never. Pure: rows, message and time
come in, events go out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from stepwell.core import events as e
from stepwell.core.messages import (
    CancelRun,
    ChildNoted,
    HookDecided,
    InboxPut,
    LookAgain,
    MendSignal,
    Message,
    TimerDue,
    load_message,
)
from stepwell.core.records import (
    Decision,
    GuardChange,
    HookRow,
    HookStatus,
    InboxRow,
    Millis,
    RetryRequest,
    RunHeader,
    StepRow,
)
from stepwell.core.state import RunState
from stepwell.errors import Failure

_FAILURE: TypeAdapter[Failure] = TypeAdapter(Failure)
_UNNOTIFIED = "unnotified"


def reference_time(message: Message, now: Millis) -> Millis:
    """The time a turn judges by: a timer message is due by its own time, not by a slow clock."""
    return max(now, message.due) if isinstance(message, TimerDue) else now


def first_event(header: RunHeader) -> e.RunStarted:
    """The beginning of a log; a function of the header, so it is the same whoever writes it."""
    fork = header.forked_from
    return e.RunStarted(
        at=header.created_at if fork is None else fork.started_at,
        workflow=header.workflow,
        version=header.version,
        input=header.input,
        seed=header.seed,
        context=header.context,
        guards=header.guards,
        stream_run=header.stream_run,
    )


def due_decisions(rows: Sequence[HookRow], message: Message, now: Millis) -> dict[str, Decision]:
    """Decisions to try on PENDING rows, by hook id: the message's answer, and passed deadlines.

    The answer a message carries comes first: its sender may already have been promised it.
    """
    tries: dict[str, Decision] = {}
    for row in rows:
        if row.status is not HookStatus.PENDING:
            continue
        if isinstance(message, HookDecided) and message.hook_id == row.hook_id:
            tries[row.hook_id] = answer(message)
        elif row.expires_at is not None and row.expires_at <= now:
            tries[row.hook_id] = expiry(row)
    return tries


def answer(message: HookDecided) -> Decision:
    """The decision that an answer's message carries."""
    return Decision(
        status=HookStatus.RECEIVED,
        decision_id=message.decision_id,
        decided_at=message.decided_at,
        payload=message.payload,
        actor=message.actor,
    )


def expiry(row: HookRow) -> Decision:
    """The decision that a passed deadline is."""
    assert row.expires_at is not None
    return Decision(status=HookStatus.EXPIRED, decision_id="deadline", decided_at=row.expires_at)


def closing(at: Millis) -> Decision:
    """The decision that the end of all waiting for a hook is."""
    return Decision(status=HookStatus.CLOSED, decision_id="closed", decided_at=at)


def unnotified(failure: Failure, at: Millis) -> Decision:
    """The decision that a hook is whose `on_created` failed for good; it carries the failure."""
    return Decision(
        status=HookStatus.CLOSED,
        decision_id=_UNNOTIFIED,
        decided_at=at,
        payload=_FAILURE.dump_json(failure).decode(),
    )


def decide(
    state: RunState,
    rows: Iterable[HookRow],
    message: Message,
    now: Millis,
    steps: Iterable[StepRow] = (),
    *,
    inbox: Iterable[InboxRow] = (),
    children: Iterable[e.ChildEnded] = (),
) -> list[e.Event]:
    """Events for all that was decided outside and is not recorded, earliest decision first.

    `children` are the ends of open children, at their own times.
    """
    found: list[tuple[Millis, str, e.Event]] = []
    rows, ended = list(rows), {child.child: child for child in children}
    # A deadline may have been decided by a clock that is ahead of this one; it is never early.
    passed = [row.expires_at or 0 for row in rows if row.status is HookStatus.EXPIRED]
    at = max(now, state.at, *passed)
    for row in rows:
        event = decided_event(state, row, at)
        if event is not None and not state.is_item_elsewhere(row.step):
            found.append((row.decided_at or 0, row.hook_id, event))
    for timer in state.timers.values():
        if timer.status == "started" and timer.due <= now:
            fired = e.TimerFired(at=at, timer=timer.id, name=timer.name, due=timer.due)
            found.append((timer.due, timer.id, fired))
    for step in steps:
        found += [(event.at, step.step, replace(event, at=at)) for event in reported(state, step)]
    found += [(row.sent_at, row.entry_id, event) for row, event in _received(state, inbox, at)]
    found += [(child.at, child.child, replace(child, at=at)) for child in ended.values()]
    found.sort(key=lambda item: item[:2])
    events = _told_once(state, [event for _, _, event in found])
    resumed = _resumed(state, message, at)
    if resumed is not None:
        events.append(resumed)
    told = _told_of(state, message, at, ended)
    if told is not None:
        events.append(told)
    if isinstance(message, CancelRun) and state.cancel is None:
        events.append(
            e.CancelRequested(
                at=at, request_id=message.request_id, reason=message.reason, actor=message.actor
            )
        )
    return events


def _told_of(
    state: RunState, message: Message, at: Millis, ended: Collection[str]
) -> e.Event | None:
    """What a message says of a child, or asks of a parked signal; None where that is old.

    What a child says that has `ended` by now is.
    """
    if isinstance(message, ChildNoted):
        child = state.children.get(message.child)
        if child is None or not child.open or child.run_id != message.child_run:
            return None
        if child.id in ended:
            return None
        if message.order <= child.told:
            return None
        return e.ChildWaits(
            at=at, child=child.id, name=child.name, order=message.order, reason=message.reason
        )
    known = state.subscription
    if not isinstance(message, MendSignal) or known is None:
        return None
    parked = known.parked_signal(message.sequence)
    if parked is None or message.request_id in known.requests:
        return None
    kind = e.SignalRedriven if message.action == "redrive" else e.SignalDiscarded
    return kind(
        at=at, sequence=message.sequence, request_id=message.request_id, actor=message.actor
    )


def entry_of(message: InboxPut) -> InboxRow:
    """The entry that a message carries."""
    return InboxRow(
        run_id=message.run_id,
        entry_id=message.entry_id,
        key=message.key,
        payload=message.payload,
        sent_at=message.sent_at,
        actor=message.actor,
    )


def _received(
    state: RunState, rows: Iterable[InboxRow], at: Millis
) -> Iterable[tuple[InboxRow, e.Event]]:
    """Entries of the inbox that are not recorded yet, with the events that record them."""
    for row in rows:
        if row.entry_id not in state.entries:
            yield (
                row,
                e.InboxReceived(
                    at=at,
                    entry=row.entry_id,
                    key=row.key,
                    payload=row.payload,
                    actor=row.actor,
                    first=True if state.last == 1 else None,
                ),
            )


def guards_replaced(
    state: RunState, asked: LookAgain | RetryRequest, change: GuardChange, at: Millis
) -> e.GuardsReplaced:
    """The event that a request leads to which gives the run other guards."""
    guards = change.over(state.guards)
    return e.GuardsReplaced(at=at, request_id=asked.request_id, guards=guards, actor=asked.actor)


def _resumed(state: RunState, message: Message, at: Millis) -> e.Event | None:
    """What a request to go on comes to; None where it was recorded, or nothing waits for it."""
    if not isinstance(message, LookAgain) or message.request_id in state.requests:
        return None
    if message.change is not None:
        return guards_replaced(state, message, message.change, at)
    if not state.wants_input:
        return None
    return e.LookRequested(at=at, request_id=message.request_id, actor=message.actor)


def lost_cancel(state: RunState, header: RunHeader, at: Millis) -> e.CancelRequested | None:
    """The event of a cancel whose message may be among those that were never worked on.

    A run is marked STUCK for such a message. A cancel was promised to whoever asked for it, so the
    flag on the header is enough then; otherwise the message comes and says who asked and why.
    """
    note = header.note
    if note is None or note.kind != "STUCK" or not header.cancel_requested or state.cancel:
        return None
    request_id, reason, actor = "lost", None, None
    with suppress(ValidationError):
        message = load_message(note.message or "")
        if isinstance(message, CancelRun):
            request_id, reason, actor = message.request_id, message.reason, message.actor
    return e.CancelRequested(at=at, request_id=request_id, reason=reason, actor=actor)


def reported(state: RunState, row: StepRow) -> Sequence[e.Event]:
    """What came of a dispatched attempt that the run still waits for; empty while nothing did."""
    known = state.steps.get(row.step)
    if row.outcome is None or known is None or known.order != row.order:
        return ()
    return e.load_events(row.outcome)


def _told_once(state: RunState, events: Iterable[e.Event]) -> list[e.Event]:
    """Without what is known of a hook already: its row and a dispatched attempt both tell of it."""
    known = set(state.hooks)
    ended = {hook.id for hook in state.hooks.values() if not hook.open}
    kept: list[e.Event] = []
    for event in events:
        if isinstance(event, e.HookOpened):
            if event.hook in known:
                continue
        elif isinstance(event, e.HookReceived | e.HookExpired | e.HookClosed | e.HookFailed):
            if event.hook in ended:
                continue
            ended.add(event.hook)
        known.add(getattr(event, "hook", ""))
        kept.append(event)
    return kept


def decided_event(state: RunState, row: HookRow, at: Millis) -> e.Event | None:
    """The event that records a decided row; None when it is pending or already recorded."""
    known = state.hooks.get(row.hook_id)
    if row.status is HookStatus.PENDING or (known is not None and not known.open):
        return None
    if row.status is HookStatus.RECEIVED:
        assert row.payload is not None
        assert row.decision_id is not None
        return e.HookReceived(
            at=at,
            hook=row.hook_id,
            name=row.name,
            step=row.step,
            decision_id=row.decision_id,
            payload=row.payload,
            actor=row.actor,
        )
    if row.decision_id == _UNNOTIFIED:
        assert row.payload is not None
        error = _FAILURE.validate_json(row.payload)
        return e.HookFailed(at=at, hook=row.hook_id, name=row.name, error=error)
    ended = e.HookExpired if row.status is HookStatus.EXPIRED else e.HookClosed
    return ended(at=at, hook=row.hook_id, name=row.name, step=row.step)
