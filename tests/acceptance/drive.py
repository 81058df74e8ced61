"""Drives a simulation step by step, by short lines of text: who makes which call, and who dies.

    ann comes                          somebody asks for what he was given to ask for
    worker: store.append               the call that this process waits to make is made
    worker: store.append: dies before  … or something else becomes of it
    zombie: store.append               a call of the process that froze, after `zombie thaws`
    a day passes                       time goes by; what comes due only comes due
    the deadline comes                 time goes by until the schedule is due, and no further
    the schedule fires

A line about a call that the process does not wait to make is an error, which says what it waits
for: so a script that the engine does not allow fails at that line, and at no other.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from stepwell.client import Client
from stepwell.core.records import HookRow
from stepwell.testing.facts import RunFacts
from stepwell.testing.simulation import Faults, Simulation
from stepwell.testing.simulation.actions import pass_until, possible
from stepwell.testing.simulation.cluster import Request
from stepwell.testing.simulation.processes import PortCall, Process, Verdict

_TIMES = {
    "a day passes": 86_400_000,
    "the visibility is over": 150_001,
}


class Impossible(Exception):
    """What a line asks for cannot happen now."""


class Drive:
    """One simulated deployment with one worker, and those who ask for something."""

    def __init__(self, *, skew: int = 0) -> None:
        self.sim = Simulation(faults=Faults(freezes=9), workers=1, skews=(skew,))
        self._come: set[str] = set()

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        self.sim.__exit__()

    def ask(self, name: str, ask: Callable[[Client], Coroutine[Any, Any, Any]]) -> Request:
        """Somebody who will ask for something, once the drive says that he comes."""
        return self.sim.ask(name, ask, when=lambda: name in self._come)

    def answer(self, name: str, hook: str, payload: Any) -> Request:
        """Somebody who will answer a hook."""

        async def answer(client: Client) -> Any:
            row = self.row(hook)
            token = self.sim.cluster.settings.keyring.token(row.key_id, row.run_id, row.hook_id)
            return await client.resume_hook(token, payload)

        return self.ask(name, answer)

    def follow(self, script: str) -> None:
        """All lines of a script, one after the other."""
        for line in filter(None, map(str.strip, script.splitlines())):
            self._line(line)

    def waits_for(self, who: str) -> list[str]:
        """The calls that a process waits to make."""
        process = self._process(who)
        return [] if process is None else [call.name for call in process.calls]

    def finish(self) -> RunFacts:
        """Let the rest happen as on any day, hold all laws and promises, and tell of the run."""
        self.sim.run()
        self.sim.check()
        return self.facts()

    def facts(self) -> RunFacts:
        """All that can be seen of the one run."""
        [run_id] = self.sim.run_ids()
        return self.sim.facts(run_id)

    def log(self) -> list[str]:
        """The types of what is recorded."""
        return [event.type for event in self.facts().events]

    def row(self, hook: str) -> HookRow:
        """The row of a hook."""
        [row] = self.sim.hooks(hook)
        return row

    def _line(self, line: str) -> None:
        if line == "the deadline comes":
            due = self.sim.cluster.scheduler.next_due()
            assert due is not None
            pass_until(self.sim.cluster, due)
        elif line in _TIMES:
            pass_until(self.sim.cluster, self.sim.cluster.loop.now() + _TIMES[line])
        elif line.endswith(" comes"):
            self._come.add(line.removesuffix(" comes"))
        elif line == "zombie thaws":
            [zombie] = self.sim.cluster.frozen
            zombie.frozen = False
        elif line == "the schedule fires":
            self._perform(line, lambda label: label.startswith("schedule ") and "fires" in label)
        else:
            who, name, *kind = line.split(": ")
            self._call(who, name, kind[0] if kind else Verdict.DONE, line)
        self._begin()

    def _call(self, who: str, name: str, kind: str, line: str) -> None:
        process = self._process(who)
        calls = [] if process is None else [call for call in process.calls if call.name == name]
        if process is None or not calls:
            raise Impossible(f"{line!r}: {who} waits for {self.waits_for(who)}")
        self.sim.trace.append(line)
        if kind == "freezes":
            wanted = f"{process.label}: {name}: freezes"
            self._perform(line, lambda label: label == wanted)
        else:
            _give(calls[0], Verdict(kind))
        self.sim.cluster.go_on()

    def _process(self, who: str) -> Process | None:
        cluster = self.sim.cluster
        if who == "zombie":
            return next(iter(cluster.frozen), None)
        everybody = [*cluster.workers, *cluster.steppers, *cluster.callers, cluster.sweeper]
        return next(
            (each for each in everybody if each.name in (f"{who} 1", f"caller {who}")), None
        )

    def _perform(self, line: str, wanted: Callable[[str], bool]) -> None:
        found = [each for each in possible(self.sim.cluster) if wanted(each.label)]
        if not found:
            raise Impossible(line)
        found[0].do()

    def _begin(self) -> None:
        """Let whoever has something to begin with begin: nobody else can tell when that was."""
        while True:
            self.sim.cluster.go_on()
            first = next(iter(possible(self.sim.cluster)), None)
            if first is None or not (" gets " in first.label or first.label.endswith(" comes")):
                return
            first.do()


def _give(call: PortCall, verdict: Verdict) -> None:
    call.verdict.set_result(verdict)
