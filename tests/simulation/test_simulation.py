"""The simulation itself: what it can do, that it repeats itself, and that it finds faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from examples.outside import connect
from stepwell.core.events import Commit
from stepwell.core.records import Decision, HookRow, RunHeader, RunStatus
from stepwell.testing.simulation import (
    ANY,
    Chosen,
    Explorer,
    Faults,
    Pruned,
    Seeded,
    Simulation,
    Unsettled,
)
from stepwell.testing.simulation.actions import possible
from tests.simulation import scenarios
from tests.simulation.stories import BY_NAME, STORIES, Story


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    world = connect(":memory:")
    yield
    world.close()


def _play(story: Story, seed: int, faults: Faults = ANY) -> Simulation:
    sim = Simulation(faults=faults, seed=seed, skews=(0, 1_500), paged=True)
    story.begin(sim)
    connect(":memory:")
    sim.run(Seeded(seed))
    return sim


#: What is waited for at the end of a story that leaves its last question open.
WAITS_AT_LAST = {"checkpoints": ["ask"], "reopened, cancelled": ["question"]}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_without_faults_a_story_comes_to_its_end(story: Story) -> None:
    with Simulation() as sim:
        story.begin(sim)
        sim.run()
        sim.check()
        started = [each for each in sim.headers() if not (each.parent or each.continued_from)]
        waits = [wait.name for each in started if not each.status.terminal for wait in each.waiting]
        assert waits == WAITS_AT_LAST.get(story.name, [])
        assert len([each for each in started if not each.status.terminal]) == len(waits)
        assert sum(sim.injected().values()) == 0


def test_one_seed_gives_one_history() -> None:
    with _play(BY_NAME["agent"], 5) as one, _play(BY_NAME["agent"], 5) as other:
        assert one.trace == other.trace
        assert one.facts(one.run_ids()[0]) == other.facts(other.run_ids()[0])
        assert sum(one.injected().values()) > 0


def test_what_was_chosen_can_be_played_again() -> None:
    story = BY_NAME["approval contested"]
    with (
        _play(story, 7) as first,
        Simulation(faults=ANY, seed=7, skews=(0, 1_500), paged=True) as again,
    ):
        story.begin(again)
        again.run(Chosen(first.chosen))
        assert again.trace == first.trace


def test_other_seeds_give_other_histories() -> None:
    traces = set()
    for seed in range(5):
        with _play(BY_NAME["approval"], seed) as sim:
            traces.add(tuple(sim.trace))
    assert len(traces) == 5


def test_an_explorer_goes_through_every_order_once() -> None:
    """Two callers who each make calls that touch what the other reads: all orders are tried."""
    explorer = Explorer(10_000)
    traces = set()
    for _ in explorer.runs():
        with Simulation() as sim:
            BY_NAME["sequence"].begin(sim)
            try:
                sim.run(explorer)
            except Pruned:
                continue
            traces.add(tuple(sim.trace))
    assert explorer.exhausted
    assert not explorer.cut
    assert len(traces) == explorer.explored > 10


def test_a_sweep_whose_index_lags_finds_it_the_next_time() -> None:
    with Simulation(faults=Faults(lost_timers=1, stale=1)) as sim:
        sim.ask("starts", lambda client: client.start(scenarios.slept))
        while not sim.cluster.scheduler.due():
            sim.step()
        sim.perform("is lost")
        while sim.trace[-1] != "the sweep finds what is overdue":
            sim.step()
        sim.perform("store.overdue_runs: stale")
        sim.run()
        sim.check()
        assert sim.headers()[0].status is RunStatus.COMPLETED
        assert sim.cluster.record.swept == 2


def test_a_simulation_that_goes_round_in_circles_says_so() -> None:
    """A process that dies whenever it takes up its message never comes to an end."""

    class Merciless:
        def choose(self, options: object, state: Callable[[], object]) -> int:
            labels = [option.label for option in options]  # type: ignore[attr-defined]
            return next((n for n, each in enumerate(labels) if "dies before" in each), 0)

    with Simulation(faults=Faults(crashes=10**9)) as sim:
        sim.ask("starts", lambda client: client.start(scenarios.asked))
        with pytest.raises(Unsettled):
            sim.run(Merciless())


def test_each_kind_of_fault_comes() -> None:
    found: set[str] = set()
    plenty = replace(ANY, lost_timers=9, stale=9)
    for seed in range(40):
        for name in ("asked elsewhere", "sleep"):
            with _play(BY_NAME[name], seed, plenty) as sim:
                found |= {kind for kind, count in sim.injected().items() if count}
    assert found == set(ANY.budget())


def test_time_stands_still_until_nothing_else_can_happen() -> None:
    with Simulation() as sim:
        sim.ask("starts", lambda client: client.start(scenarios.slept))
        sim.run()
        passing = [line for line in sim.trace if line.endswith("pass")]
        assert passing == ["3600000 ms pass", "600000 ms pass", "600000 ms pass"]


def test_who_waited_in_vain_to_ask_is_named() -> None:
    with Simulation() as sim:
        sim.ask("starts", lambda client: client.start(scenarios.asked))
        sim.answer("question", 1)
        sim.answer("qeustion", 2)
        sim.run()
        assert sim.unasked == ["answers qeustion"]


def test_a_lost_timer_is_made_up_for_by_the_sweep_alone() -> None:
    with Simulation(faults=Faults(lost_timers=1)) as sim:
        sim.ask("starts", lambda client: client.start(scenarios.slept))
        while not sim.cluster.scheduler.due():
            sim.cluster.go_on()
            possible(sim.cluster)[0].do()
        sim.perform("is lost")
        sim.run()
        sim.check()
        [header] = sim.headers()
        assert header.status is RunStatus.COMPLETED
        assert "the sweep finds what is overdue" in sim.trace


# What follows breaks a port, as a store without one of its conditions would be, and is found.


def _append_nothing(sim: Simulation) -> None:
    async def append(run_id: str, commit: Commit) -> bool:
        del run_id, commit
        return True

    _put(sim, "append", append)


def _decide_anyway(sim: Simulation) -> None:
    store = sim.cluster.local.store

    async def decide(run_id: str, hook_id: str, decision: Decision) -> HookRow | None:
        await store.decide_hook(run_id, hook_id, decision)
        row = await store.get_hook(run_id, hook_id)
        assert row is not None
        return replace(
            row,
            status=decision.status,
            decision_id=decision.decision_id,
            payload=decision.payload,
            decided_at=decision.decided_at,
        )

    _put(sim, "decide_hook", decide)


def _update_nothing(sim: Simulation) -> None:
    async def update(header: RunHeader, *, over: RunHeader | None = None) -> bool:
        del header, over
        return True

    _put(sim, "update_header", update)


def _put(sim: Simulation, method: str, function: object) -> None:
    """Let the processes of a simulation have a store with another method."""

    class Broken:
        def __getattr__(self, name: str) -> object:
            return function if name == method else getattr(sim.cluster.local.store, name)

    sim.cluster.ports = replace(sim.cluster.ports, store=Broken())  # type: ignore[arg-type]
    cluster = sim.cluster
    cluster.workers = [cluster.new_process(each.name) for each in cluster.workers]


@pytest.mark.parametrize("broken", [_append_nothing, _decide_anyway, _update_nothing])
def test_a_store_that_keeps_no_promise_is_found_out(broken: Callable[[Simulation], None]) -> None:
    story = BY_NAME["one hook"]
    wrong = 0
    for seed in range(30):
        with Simulation(faults=Faults(crashes=1), seed=seed) as sim:
            broken(sim)
            story.begin(sim)
            try:
                sim.run(Seeded(seed))
                sim.check()
            except AssertionError:
                wrong += 1
    assert wrong > 0
