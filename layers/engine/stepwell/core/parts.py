"""What a run's state is made of: its steps, hooks, timers, maps and children, and its alarms.

The fold alone changes them; see `core.state`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from stepwell.core.events import MapStarted
from stepwell.core.records import ChildEnding, Guards, Millis, OnParentClose, Payload


class Alarm(NamedTuple):
    """When a run has to be woken, and for what: a wait and the number of its arm.

    A wait is armed anew (a retry after another), so its id alone does not say which.
    """

    due: Millis
    wait_id: str
    arm: int


@dataclass(slots=True)
class StepState:
    """One step. `attempts` counts the attempts that are spent: failed, or begun and not heard of.

    `woken` says that a hook it waits for was decided since it suspended. `output` is where its
    streamed output stood when it last suspended, `reason` for what it did so, if for an input.
    `saves` maps the checkpoint that an entry saved
    last to the output position at which that entry suspended; `entries` counts suspensions. While
    a dispatched attempt is under way `order` is the number of its `StepStarted`, else 0; `input` is
    what it was dispatched with, `options` what that call changed of the step's declaration and
    `context` the run's context then.
    """

    id: str
    name: str
    digest: str
    status: str
    attempts: int = 0
    entries: int = 0
    due: Millis | None = None
    since: Millis = 0
    woken: bool = False
    output: int = 0
    saves: dict[str, int] = field(default_factory=dict)
    order: int = 0
    input: Payload | None = None
    options: str | None = None
    context: Payload | None = None
    reason: str | None = None


@dataclass(slots=True)
class HookState:
    """One hook, at workflow level when `step` is None."""

    id: str
    name: str
    step: str | None
    status: str
    since: Millis
    expires_at: Millis | None = None
    due_at: Millis | None = None
    payload: Payload | None = None
    notify_attempts: int = 0
    notify_due: Millis | None = None
    question: str | None = None

    @property
    def open(self) -> bool:
        """Whether an answer can still come."""
        return self.status in ("open", "notifying")


@dataclass(slots=True)
class TimerState:
    """One timer that was started or fired."""

    id: str
    name: str
    status: str
    since: Millis
    due: Millis


@dataclass(slots=True)
class MapState:
    """One map of a step over items. `order` is the number of the event that `started` it.

    `left` is the number of the event that ended it while items of it could still be made, else 0;
    `told` says that its end has outcomes.
    """

    id: str
    name: str
    status: str
    since: Millis
    total: int
    order: int
    started: MapStarted
    left: int = 0
    told: bool = False

    @property
    def dispatched(self) -> bool:
        """Whether its items are made elsewhere, and are not in the log."""
        return self.started.inputs is not None


@dataclass(slots=True)
class ChildState:
    """One child. `order` is the number of its `ChildStarted`, 0 if it was never started.

    `run_id` is the run that was started, `ending` how it ended, None while it is open. `input` and
    `context` are what it begins with, until it has ended; `guards` those that its start gave it.
    `stream_run` is the stream run that it is to be. `waits_for` is what it said last that it waits
    for, with its event `told`. An end of it up to its event `after` is one of before.
    """

    id: str
    name: str
    status: str
    since: Millis
    order: int = 0
    run_id: str = ""
    digest: str = ""
    version: str = ""
    input: Payload = ""
    context: Payload | None = None
    guards: Guards | None = None
    on_parent_close: OnParentClose = "cancel"
    reason: str | None = None
    ending: ChildEnding | None = None
    stream_run: str | None = None
    told: int = 0
    waits_for: str | None = None
    after: int = 0

    @property
    def open(self) -> bool:
        """Whether it has not ended, as far as its parent knows."""
        return self.ending is None
