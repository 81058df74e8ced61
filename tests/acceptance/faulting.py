"""Scripted faults: at the nth call of a name, something else becomes of it than usual.

`Script` lets another one choose and steps in where its script says. What has happened so far it
reads from the trace of the simulation, in which every call stands, also one that was no choice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from stepwell.testing.simulation.choices import Choices, Option
from stepwell.testing.simulation.simulation import Simulation
from tests.acceptance.scenario import Slip

_CALL = re.compile(
    r"(?P<who>.+?) (?:turn of \S+|attempt of \S+|asks|sweeps): "
    r"(?P<call>[a-z]+\.[a-z_]+)(?: \(\d+\))?(?:: (?P<kind>.+))?"
)
_SCHEDULE = re.compile(r"schedule (?P<key>.+) (?P<kind>fires|is lost|fires, and will again)")


@dataclass(frozen=True, slots=True)
class Called:
    """One call in a trace: by whom, which one, and what became of it when that was a fault."""

    who: str
    call: str
    kind: str


def called(label: str) -> Called | None:
    """The call that an action is about, None when it is about something else."""
    found = _CALL.fullmatch(label)
    if found is not None:
        return Called(found["who"], found["call"], found["kind"] or "")
    found = _SCHEDULE.fullmatch(label)
    if found is not None:
        kind = "" if found["kind"] == "fires" else found["kind"]
        return Called("scheduler", "schedule", kind)
    return None


def _same(slip: Slip, call: Called) -> bool:
    by = slip.who
    return call.call == slip.at and (not by or call.who in (by, f"caller {by}") or _kind(call, by))


def _kind(call: Called, by: str) -> bool:
    """Whether somebody is one of many, as "worker 2" is a worker."""
    return call.who.partition(" ")[0] == by


@dataclass(slots=True)
class Script:
    """Steps in where a fault is written down. `missed` are those that never came about."""

    sim: Simulation
    base: Choices
    slips: Iterable[Slip]
    #: What could have gone wrong at each call that was made: its number, and the fault.
    offered: list[tuple[int, Called]] = field(default_factory=list)
    #: A fault at the call of this number, whatever it is.
    single: tuple[int, str] | None = None
    phase: int = 0
    armed: bool = True
    _left: list[Slip] = field(init=False)
    _came: list[Slip] = field(default_factory=list)
    _read: int = 0
    _calls: list[Called] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = list(self.slips)

    @property
    def missed(self) -> list[Slip]:
        """Faults that should have come, and did not."""
        return [slip for slip in self._left if not (slip.nth == 0 and slip in self._came)]

    def end(self) -> None:
        """Nothing goes wrong any more. What was to go wrong every time must have done so."""
        assert not self.missed, f"never came about: {self.missed}"
        self._left.clear()

    def choose(self, options: Sequence[Option], state: Callable[[], Hashable]) -> int:
        """As the other one chooses, with the fault in place of what it should happen to."""
        self._follow()
        at = 0
        if len(options) > 1:
            at = self.base.choose(options, lambda: (self.phase, state()))
        call = called(options[at].label)
        if call is None or call.kind:
            return at
        number = len(self._calls)
        kinds = {}
        for n, option in enumerate(options):
            other = called(option.label)
            if other is not None and other.kind and _begins(option, options[at]):
                kinds[other.kind] = n
                self.offered.append((number, other))
        return kinds.get(self._wanted(number, call, kinds), at)

    def _follow(self) -> None:
        for label in self.sim.trace[self._read :]:
            call = called(label)
            if call is not None:
                self._calls.append(call)
        self._read = len(self.sim.trace)

    def _wanted(self, number: int, call: Called, kinds: Container[str]) -> str:
        """The fault that is written down for a call, "" when there is none."""
        if self.single is not None:
            return self.single[1] if self.single[0] == number else ""
        for slip in self._left if self.armed else ():
            if not _same(slip, call) or slip.kind not in kinds:
                continue
            before = sum(_same(slip, each) for each in self._calls)
            if slip.nth in (0, before + 1):
                self._came.append(slip)
                if slip.nth:
                    self._left.remove(slip)
                return slip.kind
        return ""


def _begins(one: Option, other: Option) -> bool:
    """Whether one is about the same call as the other, with another end."""
    if called(other.label) is not None and other.label.startswith("schedule "):
        return one.label.startswith(other.label.removesuffix(" fires"))
    return one.label.startswith(f"{other.label}: ")
