"""A run's history as a timeline: number, time, offset, event, what it is about, details.

Durations are shown where the log knows them: it records the beginning of hooks and timers, and of
those steps whose attempts are counted before they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stepwell.cli.render import count, offset, one_line, short
from stepwell.client import Recorded
from stepwell.core import events as e
from stepwell.core.durations import format_millis
from stepwell.core.records import Millis, Payload
from stepwell.core.subscription import handling_id
from stepwell.errors import Failure
from stepwell.shapes import iso

COLUMNS = ("#", "time", "offset", "event", "name", "id", "details")

_OF_A_SIGNAL = (
    e.SignalTaken
    | e.SignalHandled
    | e.SignalRetryScheduled
    | e.SignalParked
    | e.SignalRedriven
    | e.SignalDiscarded
)

_BEGINNINGS = (
    "StepStarted",
    "MapStarted",
    "HookOpened",
    "TimerStarted",
    "ChildStarted",
    "SignalTaken",
)


def timeline(history: Iterable[Recorded]) -> list[tuple[str, ...]]:
    """The rows of the timeline, for `COLUMNS`."""
    rows: list[tuple[str, ...]] = []
    first: Millis | None = None
    began: dict[str, Millis] = {}
    for recorded in history:
        event = recorded.event
        first = event.at if first is None else first
        name, identity = _subject(event)
        since = first if event.type.startswith("Run") else began.pop(identity, None)
        if event.type in _BEGINNINGS:
            began[identity] = event.at
        took = None if since is None else event.at - since
        details = " · ".join(part for part in _details(event, took) if part)
        rows.append(
            (
                str(recorded.number),
                iso(event.at),
                offset(event.at - first),
                event.type,
                name,
                one_line(identity),
                details,
            )
        )
    return rows


def _subject(event: e.Event) -> tuple[str, str]:
    """Name and id of what an event is about; no id for the run itself."""
    if isinstance(event, e.RunStarted):
        return event.workflow, ""
    if isinstance(event, e.SignalEmitted):
        return event.signal_type, event.emit
    if isinstance(event, e.InboxPolled):
        return "", event.poll
    if isinstance(event, _OF_A_SIGNAL):
        return getattr(event, "signal_type", None) or "", handling_id(event.sequence)
    for kind in ("step", "map", "hook", "timer", "child"):
        # A hook's event names the step that holds it as well: the hook is what it is about.
        if event.type.lower().startswith(kind):
            return getattr(event, "name", ""), getattr(event, kind, "")
    return "", ""


Details = list[str]


def _details(event: e.Event, took: Millis | None) -> Details:
    describe: Callable[[Any, str], Details] = _DETAILS[event.type]
    return describe(event, "" if took is None else format_millis(took))


def _run_started(event: e.RunStarted, _: str) -> Details:
    return [f"version {event.version}", f"input {_shown(event.input)}"]


def _step_started(event: e.StepStarted, _: str) -> Details:
    return [f"attempt {event.attempt}"]


def _step_completed(event: e.StepCompleted, took: str) -> Details:
    output = f"{count(event.output, 'chunk')} of output" if event.output else ""
    guard = "" if event.guard is None else f"given by guard {short(event.guard)}"
    result = f"result {_shown(event.result)}"
    return [f"attempt {event.attempt}", _took(took), output, result, guard]


def _step_failed(event: e.StepFailed, took: str) -> Details:
    reason = "" if event.reason == "error" else event.reason
    return [f"attempt {event.attempt}", _took(took), reason, _error(event.error)]


def _step_retry(event: e.StepRetryScheduled, took: str) -> Details:
    again = f"again in {format_millis(event.due - event.at)}"
    return [f"attempt {event.attempt}", _took(took), _error(event.error), again]


def _step_suspended(event: e.StepSuspended, _: str) -> Details:
    return [f"attempt {event.attempt}", f"entry {event.entry}", short(event.reason or "")]


def _map_started(event: e.MapStarted, _: str) -> Details:
    return [count(event.total, "item")]


def _map_ended(_: e.MapEnded, took: str) -> Details:
    return [_took(took)]


def _hook_opened(event: e.HookOpened, _: str) -> Details:
    expires = "" if event.expires_at is None else f"until {iso(event.expires_at)}"
    due = "" if event.due_at is None else f"due {iso(event.due_at)}"
    return [short(event.question or ""), expires, due]


def _hook_notify_failed(event: e.HookNotifyFailed, _: str) -> Details:
    again = f"again in {format_millis(event.due - event.at)}"
    return [f"attempt {event.attempt}", _error(event.error), again]


def _hook_received(event: e.HookReceived, took: str) -> Details:
    by = "" if event.actor is None else f"by {short(event.actor)}"
    return [_waited(took), by, f"answer {_shown(event.payload)}"]


def _hook_failed(event: e.HookFailed, _: str) -> Details:
    return [_error(event.error)]


def _waited_for(_: e.HookExpired | e.HookClosed | e.TimerFired, waited: str) -> Details:
    return [_waited(waited)]


def _timer_started(event: e.TimerStarted, _: str) -> Details:
    return [f"due {iso(event.due)}"]


def _by(actor: str | None) -> str:
    return "" if actor is None else f"by {short(actor)}"


def _inbox_received(event: e.InboxReceived, _: str) -> Details:
    return [f"{short(event.key)} = {_shown(event.payload)}", _by(event.actor)]


def _run_suspended(event: e.RunSuspended, _: str) -> Details:
    return [short(event.reason)]


def _look_requested(event: e.LookRequested, _: str) -> Details:
    return [_by(event.actor)]


def _guards_replaced(event: e.GuardsReplaced, _: str) -> Details:
    guards = event.guards
    names = () if guards is None else (*guards.before, *guards.after)
    return [short(", ".join(names)) or "none", _by(event.actor)]


def _child_started(event: e.ChildStarted, _: str) -> Details:
    closing = "" if event.on_parent_close is None else "goes on when this run ends"
    return [f"run {event.run_id}", closing, f"input {_shown(event.input)}"]


def _child_cancel_requested(event: e.ChildCancelRequested, _: str) -> Details:
    return [short(event.reason or "")]


def _child_ended(event: e.ChildEnded, took: str) -> Details:
    details = [event.status, f"run {event.run_id}", _took(took)]
    if event.result is not None:
        details.append(f"result {_shown(event.result)}")
    if event.error is not None:
        details.append(_error(event.error))
    return [*details, short(event.reason or "")]


def _child_waits(event: e.ChildWaits, _: str) -> Details:
    return [short(event.reason or "for nothing in particular")]


def _signal_emitted(event: e.SignalEmitted, _: str) -> Details:
    due = "" if event.due is None else f"due {iso(event.due)}"
    to = short(f"to {event.stream}/{event.stream_run}")
    return [to, due, _shown(event.payload), event.signal_id]


def _signal_taken(event: e.SignalTaken, _: str) -> Details:
    ahead = "" if event.held_from is None else f"ahead of signal {event.held_from}"
    again = "redriven" if event.redriven else ""
    return [ahead, again, "" if event.payload is None else _shown(event.payload)]


def _signal_handled(event: e.SignalHandled, took: str) -> Details:
    passed = "the step was not called" if event.passed else ""
    status = event.status if event.reason is None else f"{event.status}: {short(event.reason)}"
    result = "" if event.result is None else f"result {_shown(event.result)}"
    also = event.acknowledged
    taken = "" if not also else f"took {', '.join(map(str, also))} from the inbox"
    return [_took(took), passed, status, result, taken]


def _signal_retry(event: e.SignalRetryScheduled, _: str) -> Details:
    again = f"again in {format_millis(event.due - event.at)}"
    return [f"attempt {event.attempt}", _error(event.error), again]


def _signal_parked(event: e.SignalParked, took: str) -> Details:
    blocks = "later signals wait" if event.blocks else ""
    return [f"attempt {event.attempt}", _took(took), _error(event.error), blocks]


def _signals_held(event: e.SignalsHeld, _: str) -> Details:
    return [f"up to signal {event.until}"]


def _signal_mended(event: e.SignalRedriven | e.SignalDiscarded, _: str) -> Details:
    return [_by(event.actor)]


def _inbox_polled(event: e.InboxPolled, _: str) -> Details:
    return [_shown(event.signals)]


def _cancel_requested(event: e.CancelRequested, _: str) -> Details:
    by = "" if event.actor is None else f"by {short(event.actor)}"
    return [by, short(event.reason or "")]


def _patch_marked(event: e.PatchMarked, _: str) -> Details:
    return [one_line(event.patch)]


def _attributes_set(event: e.AttributesSet, _: str) -> Details:
    return [_shown(event.attributes)]


def _run_completed(event: e.RunCompleted, took: str) -> Details:
    return [_took(took), f"result {_shown(event.result)}"]


def _run_failed(event: e.RunFailed, took: str) -> Details:
    return [_took(took), _error(event.error)]


def _run_cancelled(event: e.RunCancelled, took: str) -> Details:
    return [_took(took), "by force" if event.forced else "", short(event.reason or "")]


def _run_retried(event: e.RunRetried, _: str) -> Details:
    return ["" if event.actor is None else f"by {short(event.actor)}"]


def _run_forked(event: e.RunForked, _: str) -> Details:
    by = "" if event.actor is None else f"by {short(event.actor)}"
    return [by, f"from event {event.event} of run {event.source}"]


def _run_continued(event: e.RunContinued, took: str) -> Details:
    return [_took(took), f"as run {event.next}", f"input {_shown(event.input)}"]


def _run_deleted(event: e.RunDeleted, _: str) -> Details:
    return ["" if event.actor is None else f"by {short(event.actor)}"]


def _nothing(_: e.Event, __: str) -> Details:
    return []


_DETAILS: dict[str, Callable[[Any, str], Details]] = {
    "RunStarted": _run_started,
    "RunDeleted": _run_deleted,
    "StepStarted": _step_started,
    "StepCompleted": _step_completed,
    "StepFailed": _step_failed,
    "StepRetryScheduled": _step_retry,
    "StepSuspended": _step_suspended,
    "StepCancelled": _nothing,
    "MapStarted": _map_started,
    "MapEnded": _map_ended,
    "HookOpened": _hook_opened,
    "HookNotifyFailed": _hook_notify_failed,
    "HookReceived": _hook_received,
    "HookExpired": _waited_for,
    "HookFailed": _hook_failed,
    "HookClosed": _waited_for,
    "TimerStarted": _timer_started,
    "TimerFired": _waited_for,
    "TimerCancelled": _nothing,
    "PatchMarked": _patch_marked,
    "AttributesSet": _attributes_set,
    "InboxReceived": _inbox_received,
    "RunSuspended": _run_suspended,
    "LookRequested": _look_requested,
    "GuardsReplaced": _guards_replaced,
    "ChildStarted": _child_started,
    "ChildCancelRequested": _child_cancel_requested,
    "ChildEnded": _child_ended,
    "ChildWaits": _child_waits,
    "SignalEmitted": _signal_emitted,
    "SignalTaken": _signal_taken,
    "SignalHandled": _signal_handled,
    "SignalRetryScheduled": _signal_retry,
    "SignalParked": _signal_parked,
    "SignalsHeld": _signals_held,
    "SignalRedriven": _signal_mended,
    "SignalDiscarded": _signal_mended,
    "InboxPolled": _inbox_polled,
    "SubscriptionSnapshot": _nothing,
    "CancelRequested": _cancel_requested,
    "RunCompleted": _run_completed,
    "RunFailed": _run_failed,
    "RunCancelled": _run_cancelled,
    "RunRetried": _run_retried,
    "StepSuperseded": _nothing,
    "RunForked": _run_forked,
    "RunContinued": _run_continued,
}


def _took(duration: str) -> str:
    return duration and f"took {duration}"


def _waited(duration: str) -> str:
    return duration and f"waited {duration}"


def _shown(payload: Payload) -> str:
    return short(payload)


def _error(failure: Failure) -> str:
    return short(str(failure), 120)
