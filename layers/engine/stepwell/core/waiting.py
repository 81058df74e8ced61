"""What a run waits for, and when it has to be woken: views of its state."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.core import events as e
from stepwell.core.lives import Lives
from stepwell.core.parts import Alarm, ChildState, HookState, MapState, StepState, TimerState
from stepwell.core.records import Millis, Wait
from stepwell.core.subscription import Subscription, handling_id


class Waiting:
    """The part of a run's state that says what it waits for."""

    __slots__ = ()

    at: Millis
    started: e.RunStarted | None
    steps: dict[str, StepState]
    hooks: dict[str, HookState]
    timers: dict[str, TimerState]
    maps: dict[str, MapState]
    children: dict[str, ChildState]
    lives: Lives
    suspended: e.RunSuspended | None
    subscription: Subscription | None

    def open_children(self) -> list[ChildState]:
        """Children that have not ended, as far as this run knows."""
        return [child for child in self.children.values() if child.open]

    def waits(self) -> tuple[Wait, ...]:
        """All that the run waits for, oldest first."""
        found = [
            Wait(
                kind="retry" if h.status == "notifying" else "hook",
                id=h.id,
                name=h.name,
                since=h.since,
                until=h.notify_due or h.expires_at or h.due_at,
                reason=h.question,
            )
            for h in self.hooks.values()
            if h.open
        ]
        found += [
            Wait(kind="timer", id=t.id, name=t.name, since=t.since, until=t.due)
            for t in self.timers.values()
            if t.status == "started"
        ]
        found += [
            Wait(kind="retry", id=s.id, name=s.name, since=s.since, until=s.due)
            for s in self.steps.values()
            if s.due is not None
        ]
        found += [
            Wait(kind="step", id=s.id, name=s.name, since=s.since)
            for s in self.steps.values()
            if s.order
        ]
        found += [
            Wait(
                kind="map",
                id=m.id,
                name=m.name,
                since=m.since,
                done=None if m.dispatched else sum(self.outcomes(m)),
                total=m.total,
                away=m.dispatched,
            )
            for m in self.maps.values()
            if m.status == "started"
        ]
        found += [
            Wait(kind="child", id=c.id, name=c.name, since=c.since, reason=c.waits_for)
            for c in self.open_children()
        ]
        found += self._inputs()
        found += self._signals()
        return tuple(sorted(found, key=lambda wait: (wait.since, wait.id)))

    def outcomes(self, map: MapState) -> tuple[int, int]:
        """How many items of a map have completed, and how many have failed."""
        prefix = f"{map.id}#"
        ends = [step.status for step in self.steps.values() if step.id.startswith(prefix)]
        return ends.count("completed"), ends.count("failed")

    def _inputs(self) -> Iterator[Wait]:
        for s in self.steps.values():
            if s.reason is not None:
                yield Wait(kind="input", id=s.id, name=s.name, since=s.since, reason=s.reason)
        if self.suspended is not None:
            at, reason = self.suspended.at, self.suspended.reason
            name = "" if self.started is None else self.started.workflow
            yield Wait(kind="input", id=name, name=name, since=at, reason=reason)

    def _signals(self) -> Iterator[Wait]:
        """What a subscription waits for beyond what its code asks for."""
        known = self.subscription
        if known is None or known.ended:
            return
        current = known.current
        if current is None:
            blocked = known.blocked_by
            reason = known.reason if blocked is None else f"signal {blocked.sequence} is parked"
            yield Wait(
                kind="signal", id=known.step, name=known.stream, since=self.at, reason=reason
            )
        elif self.retry_due is not None:
            yield Wait(
                kind="retry",
                id=handling_id(current.sequence),
                name=known.step,
                since=self.at,
                until=self.retry_due,
            )

    @property
    def retry_due(self) -> Millis | None:
        """When the signal under way is tried again; None if it is tried now.

        Once anything has happened at that time or later, its code is at it, and may wait for
        something else.
        """
        current = None if self.subscription is None else self.subscription.current
        due = None if current is None else current.due
        return None if due is None or due <= self.at else due

    @property
    def wants_input(self) -> bool:
        """Whether code waits that raised `Suspend`."""
        return self.suspended is not None or any(s.reason is not None for s in self.steps.values())

    def alarms(self) -> Iterator[Alarm]:
        """Every time at which something that the run waits for comes due.

        What waits under one id in several lives has other arms in each: more events than arms lie
        before a retry. Else a message of the life before would swallow one of this.
        """
        for hook in self.hooks.values():
            if hook.open and hook.notify_due is not None:
                yield Alarm(hook.notify_due, hook.id, hook.notify_attempts)
            elif hook.open and hook.expires_at is not None:
                yield Alarm(hook.expires_at, hook.id, 0)
        for timer in self.timers.values():
            if timer.status == "started":
                yield Alarm(timer.due, timer.id, self.lives.retried)
        for step in self.steps.values():
            if step.due is not None:
                yield Alarm(step.due, step.id, self.lives.retried + step.attempts)
        if self.retry_due is not None:
            assert self.subscription is not None
            current = self.subscription.current
            assert current is not None
            arm = current.number + current.attempt
            yield Alarm(self.retry_due, handling_id(current.sequence), arm)

    def next_alarm(self, after: Millis | None = None) -> Alarm | None:
        """The earliest one. A run needs no other: the turn that it wakes sees to the next.

        With `after`, the earliest that comes due later than that.
        """
        return min(
            (alarm for alarm in self.alarms() if after is None or alarm.due > after), default=None
        )
