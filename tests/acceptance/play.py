"""Plays a scenario on the simulator, once or as often as its faults ask for, and judges each play.

    play(scenario)

raises `AssertionError` that says what was expected, what came, and by which way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

import tests.acceptance.workflows  # noqa: F401  # registers what is played by name
from examples.outside import connect
from stepwell.authoring.registry import registry
from stepwell.core.payload import Sizes
from stepwell.engine.settings import Limits
from stepwell.testing.simulation import Explorer, Faults, FirstOf, Pruned, Seeded, Simulation
from stepwell.testing.simulation.actions import possible
from stepwell.testing.simulation.choices import Choices
from tests.acceptance.acts import Stage, perform
from tests.acceptance.expecting import Came, came_of, judge
from tests.acceptance.faulting import Script
from tests.acceptance.scenario import Act, Scenario, Setup, Slip, Unreadable

#: Enough of every kind for a script, which says itself when one comes.
_PLENTY = Faults(
    crashes=99,
    freezes=9,
    throttled=99,
    lost_replies=99,
    denied=99,
    vanished=9,
    doubled=9,
    lost_timers=9,
)
_MOST_ACTIONS = 10_000


def play(scenario: Scenario) -> int:
    """Play it in all its ways, and judge each. Returns how many there were."""
    faults = scenario.fault
    ways = [faults.script != (), faults.everywhere != (), faults.seeds > 0, faults.explore]
    if sum(ways) > 1:
        raise Unreadable(f"{scenario.id}: one way of going wrong at a time")
    if faults.everywhere:
        return _everywhere(scenario)
    if faults.seeds:
        seeds = [Seeded(f"{scenario.id}/{n}") for n in range(faults.seeds)]
        return _all(scenario, seeds)
    if faults.explore:
        return _explored(scenario)
    return _all(scenario, [FirstOf()])


def _all(scenario: Scenario, ways: Iterable[Choices]) -> int:
    plain = _plain(scenario) if scenario.expect.same else None
    count = 0
    for choices in ways:
        _played(scenario, Faults(**scenario.fault.budget), choices, plain=plain)
        count += 1
    return count


def _plain(scenario: Scenario) -> Came:
    """What it comes to when nothing goes wrong."""
    with suppress(KeyError):
        return _PLAIN[scenario.id]
    _PLAIN[scenario.id] = _played(scenario, Faults(), FirstOf(), script=())[0]
    return _PLAIN[scenario.id]


_PLAIN: dict[str, Came] = {}


def _everywhere(scenario: Scenario) -> int:
    """One fault at every place at which it could come, each in a play of its own."""
    kinds, who = scenario.fault.everywhere, scenario.fault.who
    plain, script = _played(scenario, _PLENTY, FirstOf())
    places = [
        (number, call.kind)
        for number, call in script.offered
        if call.kind in kinds and who in ("", call.who.partition(" ")[0])
    ]
    assert places, f"{scenario.id}: no call at which {kinds} could come"
    expected = plain if scenario.expect.same else None
    for place in places:
        _played(scenario, _PLENTY, FirstOf(), single=place, plain=expected)
    return len(places)


def _explored(scenario: Scenario) -> int:
    explorer = Explorer(depth=scenario.fault.depth, limit=scenario.fault.limit)
    plain = _plain(scenario) if scenario.expect.same else None
    for _ in explorer.runs():
        with suppress(Pruned):
            _played(scenario, Faults(**scenario.fault.budget), explorer, plain=plain)
    return explorer.explored


def _played(
    scenario: Scenario,
    faults: Faults,
    choices: Choices,
    *,
    script: Sequence[Slip] | None = None,
    single: tuple[int, str] | None = None,
    plain: Came | None = None,
) -> tuple[Came, Script]:
    """One play, judged."""
    slips = scenario.fault.script if script is None else script
    world = connect(":memory:")
    with ExitStack() as layers, _deployed(scenario.setup, _PLENTY if slips else faults) as sim:
        layers.enter_context(registry.isolated())
        acting = Script(sim, choices, slips, single=single)
        acting.armed = all(act.do != "break" for act in scenario.setup.acts)
        show = Show(scenario, sim, acting, layers)
        try:
            show.go()
            assert not acting.missed, f"never came about: {acting.missed}"
            show.forgive()
            sim.check()
            came = came_of(show.stage, world)
            judge(scenario.expect, show.stage, came, plain)
        except Pruned:
            raise
        except Exception as error:
            what = f"{scenario.id}: {type(error).__name__}: {error}"
            raise AssertionError("\n".join([what, "by this way:", *sim.trace])) from error
        return came, acting


def _deployed(setup: Setup, faults: Faults) -> Simulation:
    sim = Simulation(
        faults=faults,
        workers=setup.workers,
        skews=setup.skews,
        paged=setup.paged,
        sizes=Sizes(inline_limit=setup.inline_limit, hard_limit=setup.hard_limit),
    )
    cluster = sim.cluster
    for n in range(2, setup.steppers + 1):
        cluster.steppers.append(cluster.new_process(f"stepper {n}"))
    if setup.limits:
        cluster.settings = replace(cluster.settings, limits=Limits(**setup.limits))
        for process in cluster.processes():
            assert process.engine is not None
            process.engine.settings = cluster.settings
    return sim


class Show:
    """One play as it goes on."""

    def __init__(
        self, scenario: Scenario, sim: Simulation, script: Script, layers: ExitStack
    ) -> None:
        self._sim = sim
        self._script = script
        fault = scenario.fault
        #: When those go on that freeze by a script; by chance they do so when they are chosen to.
        self._thaws = {slip.thaws for slip in fault.script if slip.kind == "freezes"}
        if "freezes" in fault.everywhere:
            self._thaws = {"quiet"}
        self.stage = Stage(scenario, sim, script, layers, self._settle)

    def go(self) -> None:
        """From the first act to the rest after the last."""
        for group in _groups(self.stage.scenario.setup.acts):
            self._script.phase += 1
            for act in group:
                perform(self.stage, act)
            self._settle()
        self._sim.run(self._script)
        if self._thaws & {"late", "quiet"} and self._thaw():
            self._sim.run(self._script)

    def forgive(self) -> None:
        """Take away the errors that are to come; each of them must have come."""
        wanted = self.stage.scenario.expect.errors
        unexpected = self._sim.cluster.record.unexpected
        came = {type(each).__name__ for each in unexpected}
        assert came >= set(wanted), f"{wanted} never came, {came} did"
        unexpected[:] = [each for each in unexpected if type(each).__name__ not in wanted]

    def _settle(self) -> None:
        """Let happen what can without time passing."""
        sim = self._sim
        for _ in range(_MOST_ACTIONS):
            sim.cluster.go_on()
            actions = possible(sim.cluster)
            if not actions or actions[0].label.endswith(" ms pass"):
                if not ("quiet" in self._thaws and self._thaw()):
                    return
                continue
            chosen = self._script.choose(actions, sim.cluster.state)
            sim.trace.append(actions[chosen].label)
            actions[chosen].do()
        raise AssertionError(f"no rest after {_MOST_ACTIONS} actions")

    def _thaw(self) -> bool:
        """Let those go on that froze. Whether there were any."""
        frozen = [each for each in self._sim.cluster.frozen if each.frozen]
        for process in frozen:
            process.frozen = False
            self._sim.trace.append(f"{process.label} thaws")
        return bool(frozen)


def _groups(acts: Iterable[Act]) -> Iterator[list[Act]]:
    group: list[Act] = []
    for act in acts:
        if group and not act.together:
            yield group
            group = []
        group.append(act)
    if group:
        yield group
