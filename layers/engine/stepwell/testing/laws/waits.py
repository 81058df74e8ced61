"""Laws of the hooks and timers in a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.core import events as e
from stepwell.core.records import Millis

#: What ends a hook.
DECISIONS = (e.HookReceived, e.HookExpired, e.HookClosed, e.HookFailed)
_HOOKS = (e.HookOpened, e.HookNotifyFailed, *DECISIONS)
_HookEvent = (
    e.HookOpened | e.HookNotifyFailed | e.HookReceived | e.HookExpired | e.HookClosed | e.HookFailed
)
_TimerEvent = e.TimerStarted | e.TimerFired | e.TimerCancelled


@dataclass(slots=True)
class _Hook:
    name: str
    step: str | None
    notified: int = 0
    opened: bool = False
    ended: str = ""


@dataclass(slots=True)
class _Timer:
    name: str
    due: Millis | None = None
    ended: str = ""


def check_hooks(events: Sequence[e.Event]) -> None:
    """A hook is opened at most once, decided at most once, and nothing follows its decision.

    A decision may come without an opening: who opened the hook died before it could say so, and
    what a row says of it is the business of `check_hook_rows`. Name and step stay.
    """
    hooks: dict[str, _Hook] = {}
    for number, event in enumerate(events, 1):
        if isinstance(event, _HOOKS):
            where = f"event {number}: {event.type} of hook {event.hook!r}"
            step: str | None = getattr(event, "step", None)
            hook = hooks.setdefault(event.hook, _Hook(event.name, step))
            same = (hook.name, hook.step) == (event.name, step)
            assert same, f"{where}: {event.name!r} in {step}, was {hook.name!r} in {hook.step}"
            _check_hook(hook, event, where)


def _check_hook(hook: _Hook, event: _HookEvent, where: str) -> None:
    assert not hook.ended, f"{where}: after its {hook.ended}"
    if isinstance(event, e.HookOpened):
        assert not hook.opened, f"{where}: it was opened before"
        hook.opened = True
    elif isinstance(event, e.HookNotifyFailed):
        assert not hook.opened, f"{where}: somebody has been told of it"
        assert event.attempt == hook.notified + 1, f"{where}: {event.attempt} after {hook.notified}"
        hook.notified = event.attempt
    else:
        told = isinstance(event, e.HookFailed) and hook.opened
        assert not told, f"{where}: somebody has been told of it"
        hook.ended = event.type


def check_timers(events: Sequence[e.Event]) -> None:
    """A timer is started at most once, ends at most once, and is due when it was due at first.

    It may fire without having been started: in the turn that asked for it.
    """
    timers: dict[str, _Timer] = {}
    for number, event in enumerate(events, 1):
        if isinstance(event, (e.TimerStarted, e.TimerFired, e.TimerCancelled)):
            where = f"event {number}: {event.type} of timer {event.timer!r}"
            known = event.timer in timers
            timer = timers.setdefault(event.timer, _Timer(event.name))
            assert timer.name == event.name, f"{where}: {event.name!r}, was {timer.name!r}"
            _check_timer(timer, event, where, known=known)


def _check_timer(timer: _Timer, event: _TimerEvent, where: str, *, known: bool) -> None:
    assert not timer.ended, f"{where}: after its {timer.ended}"
    if isinstance(event, e.TimerStarted):
        assert not known, f"{where}: it was started before"
        timer.due = event.due
        return
    timer.ended = event.type
    if isinstance(event, e.TimerCancelled):
        assert known, f"{where}: it was never started"
    elif known:
        assert event.due == timer.due, f"{where}: due {event.due}, was {timer.due}"
