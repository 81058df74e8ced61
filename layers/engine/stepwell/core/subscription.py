"""A subscription: what a stream step has come to, as a fold over the events of its run.

    taken → handled                the effects of a signal, all in one event
          → retry scheduled → …    its lifecycle failed and is called again, later
          → parked                 it failed for good, or did not fit: kept, with the error

`cursor` is the number up to which all signals are settled. One that is taken while others before it
are held stands `ahead` of it. A `Subscription` is never changed: each event makes a new one, and a
snapshot is one of them, from which the log may be read instead of from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from stepwell.core.records import Millis, Payload
from stepwell.core.signals import SentSignal
from stepwell.errors import Failure

#: What a lifecycle can leave its subscription as.
Rest = Literal["waiting", "suspended", "terminated", "cancelled"]
#: What a reader sees.
SubscriptionStatus = Rest | Literal["running"]
#: What becomes of later signals when one has failed for good.
OnFailure = Literal["skip", "block"]


def handling_id(sequence: int) -> str:
    """The scope in which the code counts that handles a signal, and what its retry waits under."""
    return f"s{sequence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The signal under way; number 0 is the start, which has none.

    `number` is that of the event that took it. `attempt` is the one that is made now or, while
    `due` is set, next. `held_from` is the first signal that it was taken ahead of.
    """

    sequence: int
    number: int
    signal: SentSignal | None
    attempt: int = 1
    due: Millis | None = None
    held_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedSignal:
    """A signal that was not handled, and why, in short. It can be redriven, or discarded.

    Number 0 is the start, which has no type. `hooks` and `children` count, by id, how often each
    was begun, so that whoever handles it again begins them anew. `blocks`: later signals wait.
    """

    sequence: int
    signal_type: str | None
    at: Millis
    attempts: int
    error: Failure
    blocks: bool = False
    hooks: dict[str, int] = field(default_factory=dict)
    children: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a subscription has come to.

    `ahead` are the numbers above the cursor that are settled, in order; `held` is the last one that
    was looked at and is held. `resume` are the types that wake a suspended one, None for any that
    it takes. `handled`, `parked_total` and `discarded` count signals. `redrive` are the numbers of
    parked signals that are to be handled again, in the order in which that was asked for.
    """

    stream: str
    stream_run: str
    step: str
    status: Rest = "waiting"
    reason: str | None = None
    resume: tuple[str, ...] | None = None
    cursor: int = 0
    ahead: tuple[int, ...] = ()
    held: int = 0
    begun: bool = False
    current: Handling | None = None
    checkpoint: Payload | None = None
    result: Payload | None = None
    parked: tuple[ParkedSignal, ...] = ()
    redrive: tuple[int, ...] = ()
    requests: tuple[str, ...] = ()
    handled: int = 0
    parked_total: int = 0
    discarded: int = 0

    @property
    def ended(self) -> bool:
        """Whether it takes no more signals."""
        return self.status in ("terminated", "cancelled")

    @property
    def phase(self) -> Literal["at rest", "at work", "ended"]:
        """What can happen to it: a state of `lifecycle.SUBSCRIPTION`."""
        if self.current is not None:
            return "at work"
        return "ended" if self.ended else "at rest"

    @property
    def shown(self) -> SubscriptionStatus:
        """Its status as a reader sees it."""
        return "running" if self.current is not None else self.status

    @property
    def blocked_by(self) -> ParkedSignal | None:
        """The parked signal that the later ones wait for."""
        return next((each for each in self.parked if each.blocks), None)

    @property
    def taken(self) -> int:
        """Signals that it has done with; those that are parked too, and the start is none."""
        return self.handled + self.discarded + sum(each.sequence > 0 for each in self.parked)

    @property
    def note(self) -> str | None:
        """What its stream is told that it waits for, beyond signals: why it is suspended."""
        if self.current is None and self.status == "suspended":
            return self.reason
        return None

    def parked_signal(self, sequence: int) -> ParkedSignal | None:
        """The parked signal of a number."""
        return next((each for each in self.parked if each.sequence == sequence), None)

    def settled(self, sequence: int, held_from: int | None) -> tuple[int, tuple[int, ...]]:
        """Cursor and those ahead, with a signal settled: in its turn, or ahead of held ones."""
        if held_from is None and not self.ahead:
            return max(self.cursor, sequence), ()
        cursor, ahead = self.cursor, {*self.ahead}
        if held_from is not None:
            cursor = max(cursor, held_from - 1)
            ahead.add(sequence)
        else:
            cursor = max(cursor, sequence)
        while cursor + 1 in ahead:
            cursor += 1
        return cursor, tuple(sorted(each for each in ahead if each > cursor))

    def without_parked(self, sequence: int) -> Subscription:
        """Without a parked signal."""
        return replace(
            self,
            parked=tuple(each for each in self.parked if each.sequence != sequence),
            redrive=tuple(each for each in self.redrive if each != sequence),
        )
