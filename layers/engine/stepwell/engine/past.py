"""What a run came to before its workflow began again from its top.

A workflow that raises `Suspend` unwinds, and runs anew once there is input. What its steps, hooks
and timers came to before is then at hand: code that asks for one of them is told at once, in the
order of asking, and need not ask for all of them, for with other input it may go another way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepwell.core import events as e
from stepwell.core.records import Payload

#: Events that are an outcome of something that workflow code waits for.
_OUTCOMES = (
    e.StepCompleted,
    e.StepFailed,
    e.HookReceived,
    e.HookExpired,
    e.HookFailed,
    e.TimerFired,
    e.ChildEnded,
    e.MapEnded,
)
ChildEvent = e.ChildStarted | e.ChildCancelRequested | e.ChildEnded


@dataclass(slots=True)
class Past:
    """Outcomes by what they are of; `asked` are those that code asks for and is not told yet.

    `known` are the ids of all that was recorded; `inbox` is what has come into it so far, later
    entries too. `children` holds what there is to be told of children that code has not asked for
    since it began again, `items` those of dispatched maps that the run has taken over. It changes
    as code asks and is told.
    """

    outcomes: dict[str, e.Event] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    inbox: dict[str, Payload] = field(default_factory=dict)
    asked: deque[str] = field(default_factory=deque)
    children: dict[str, list[ChildEvent]] = field(default_factory=dict)
    items: dict[str, list[e.StepStarted]] = field(default_factory=dict)

    def ask(self, identity: str) -> None:
        """Code asks for something."""
        if identity in self.outcomes:
            self.asked.append(identity)

    def receive(self, event: e.InboxReceived) -> None:
        """An entry has come into the inbox."""
        self.inbox.pop(event.key, None)
        self.inbox[event.key] = event.payload

    def keep(self, event: ChildEvent) -> None:
        """Something is told of a child that code has not asked for."""
        self.children.setdefault(event.child, []).append(event)

    def next(self) -> e.Event:
        """The outcome that was asked for first."""
        return self.outcomes.pop(self.asked.popleft())


def before_epoch(history: Sequence[e.Event], epoch: int) -> tuple[Past, Sequence[e.Event]]:
    """What lies before event `epoch` or is it, and what code has to be told when it begins:
    the start, then the rest.
    """
    past = Past()
    known: set[str] = set()
    told: list[e.Event] = []
    for event in history[:epoch]:
        identity = subject(event)
        if identity is not None:
            known.add(identity)
            if isinstance(event, ChildEvent):
                past.keep(event)
            elif isinstance(event, _OUTCOMES):
                if not isinstance(event, e.MapEnded) or event.outcomes is not None:
                    past.outcomes[identity] = event
            elif isinstance(event, e.StepStarted) and event.input is not None:
                past.items.setdefault(identity.partition("#")[0], []).append(event)
        elif isinstance(event, e.InboxReceived):
            past.receive(event)
        elif isinstance(event, e.CancelRequested):
            told.append(event)
    past.known = frozenset(known)
    return past, [history[0], *told, *history[epoch:]]


def subject(event: e.Event) -> str | None:
    """The step, hook, timer or child of the workflow that an event is about; None for what a step
    holds and for the run itself."""
    hook: str | None = getattr(event, "hook", None)
    if hook is not None:
        return hook if getattr(event, "step", None) is None else None
    found: str | None = None
    for name in ("step", "timer", "map", "child"):
        found = found or getattr(event, name, None)
    return found
