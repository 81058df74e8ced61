"""Any program of rules over the client and the world: what holds always holds after each of them.

    STEPWELL_EXAMPLES=5000 python -m pytest tests/simulation/test_state_machine.py

plays that many random programs instead of the few that are always the same. Of a failure the
shortest program is printed, rule by rule, with all that happened below each.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stepwell.testing.simulation import Faults
from tests.simulation.machine import World
from tests.simulation.offers import CODES, OFFERS, PAYLOADS

_EXAMPLES = os.environ.get("STEPWELL_EXAMPLES")
_SETTINGS = settings(
    max_examples=int(_EXAMPLES or 220),
    stateful_step_count=40,
    derandomize=_EXAMPLES is None,
    database=None,
    deadline=None,
    print_blob=True,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
_TIMES = {"1 s": 1_000, "30 s": 30_000, "3 min": 180_000, "1 h": 3_600_000, "25 h": 90_000_000}
_MOST_STARTS, _MOST_CANCELS = 4, 2
_which = st.integers(0, 5)
_what = st.sampled_from(list(OFFERS))
_key = st.sampled_from([None, "k"])
_usual = st.integers(0, 4)
#: What goes wrong at a process comes more often, so that it comes at the right moment.
_OFTEN = ("crashes", "lost_replies")
_fault = st.tuples(st.sampled_from([*_OFTEN, *_OFTEN, *Faults().budget()]), _which)
_move = st.one_of(_usual, _usual, _usual, _usual, _fault)
Move = int | tuple[str, int]


class Deployment(RuleBasedStateMachine):
    """The rules. Each lets one thing happen, and says what did."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self._told = 0

    @initialize(paged=st.booleans(), skewed=st.booleans(), what=_what, key=_key)
    def begin(self, paged: bool, skewed: bool, what: str, key: str | None) -> None:
        self.world = World(paged=paged, skewed=skewed)
        self.world.start(what, key, 0)

    @property
    def _world(self) -> World:
        assert self.world is not None
        return self.world

    def _say(self) -> None:
        trace = self._world.sim.trace
        for line in trace[self._told :]:
            note(f"    # {line}")
        self._told = len(trace)

    def _has_room(self) -> bool:
        return self.world is not None and self.world.count("starts") < _MOST_STARTS

    @precondition(_has_room)
    @rule(what=_what, key=_key, variant=st.booleans())
    def start(self, what: str, key: str | None, variant: bool) -> None:
        self._world.start(what, key, int(variant))

    @rule(moves=st.lists(_move, min_size=6, max_size=24))
    def go_on(self, moves: list[Move]) -> None:
        """One thing after the other: a number is one of the usual things, a pair is a fault."""
        world = self._world
        for move in moves:
            if isinstance(move, int):
                world.act(world.usual(), move)
            else:
                world.disturb(*move)

    @rule(before=st.integers(0, 12), which=_which)
    def freeze(self, before: int, which: int) -> None:
        """One stops in the middle, and its message comes again."""
        for _ in range(before):
            self._world.act(self._world.usual(), 0)
        self._world.disturb("freezes", which)

    def _is_frozen(self) -> bool:
        return self.world is not None and bool(self.world.cluster.frozen)

    @precondition(_is_frozen)
    @rule(which=_which)
    def thaw(self, which: int) -> None:
        self._world.disturb("thaws", which)

    @rule()
    def settle(self) -> None:
        self._world.settle()

    @rule(time=st.sampled_from(list(_TIMES)))
    def wait(self, time: str) -> None:
        self._world.wait(_TIMES[time])

    def _has_hooks(self) -> bool:
        return self.world is not None and bool(self.world.hooks())

    def _has_runs(self) -> bool:
        return self.world is not None and bool(self.world.seen)

    @precondition(_has_hooks)
    @rule(which=_which, payload=st.sampled_from(PAYLOADS), settled=st.booleans())
    def answer(self, which: int, payload: Any, settled: bool) -> None:
        self._world.answer(_pick(self._world.hooks(), which), payload)
        if settled:
            self._world.settle()

    def _has_whom_to_cancel(self) -> bool:
        return self._has_runs() and self._world.count("cancels") < _MOST_CANCELS

    @precondition(_has_whom_to_cancel)
    @rule(which=_which)
    def cancel(self, which: int) -> None:
        self._world.cancel(_pick(list(self._world.seen), which))

    @precondition(_has_runs)
    @rule(how=st.sampled_from(["look", "wake", "sweep", "forge"]), which=_which)
    def meddle(self, how: str, which: int) -> None:
        """What must make no difference."""
        run_id = _pick(list(self._world.seen), which)
        if how == "look":
            self._world.look(run_id)
        elif how == "wake":
            self._world.wake(run_id)
        elif how == "sweep":
            self._world.sweep()
        elif self._has_hooks():
            self._world.forge(_pick(self._world.hooks(), which))

    def _changes(self) -> bool:
        return self.world is not None and any(
            each.offer is OFFERS["changing"] for each in self.world.asked
        )

    @precondition(_changes)
    @rule(code=st.sampled_from(list(CODES)), publish=st.booleans())
    def deploy(self, code: str, publish: bool) -> None:
        self._world.deploy(code, publish=publish)

    @invariant()
    def holds(self) -> None:
        if self.world is not None:
            self._say()
            self.world.watch()

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            if sys.exc_info()[0] is None:
                self.world.rest()
                self._say()
                self.world.check()
        finally:
            self.world.close()


def _pick(many: list[Any], which: int) -> Any:
    return many[min(which, len(many) - 1)]


def test_every_program_of_rules_keeps_laws_and_promises(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "stepwell.engine")  # of thousands of faults: nobody reads it
    run_state_machine_as_test(Deployment, settings=_SETTINGS)
