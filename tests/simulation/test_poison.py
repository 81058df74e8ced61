"""Code that kills its process: what came before it is not blamed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.outside import Outside, connect
from stepwell import workflow
from stepwell.core.records import RunStatus
from stepwell.testing.simulation import Simulation
from tests.simulation.scenarios import note


@pytest.fixture
def world() -> Iterator[Outside]:
    world = connect(":memory:")
    yield world
    world.close()


def test_workflow_code_that_kills_its_process_leaves_its_run_stuck_and_its_steps_done(
    world: Outside,
) -> None:
    killing = True

    @workflow(name="poison.after_a_step")
    async def flow() -> str:
        receipt = await note("before")
        if killing:
            for process in sim.cluster.workers:
                process.die()
        return receipt

    with Simulation(workers=1) as sim:
        sim.ask("starts", lambda client: client.start(flow))
        while not (notes := [each.attention for each in sim.headers() if each.attention]):
            sim.step()
        assert notes[0].kind == "STUCK"
        [run_id] = sim.run_ids()
        recorded = [event.type for event in sim.facts(run_id).events]
        assert recorded == ["RunStarted", "StepStarted", "StepCompleted"]
        # The first delivery counts no attempts, and nothing of it is durable.
        assert world.requests("note") == 2
        killing = False
        sim.run()
        sim.check()
        assert sim.headers()[0].status is RunStatus.COMPLETED
        assert world.requests("note") == 2
