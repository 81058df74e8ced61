"""Dispatched maps on AWS: items are made by the step function, and cost what they did."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.maps import bill_of
from benchmarks.tally import Tallied
from benchmarks.workflows import map_elsewhere, map_in_lanes
from stepwell import FatalError, RetryPolicy, step, step_hook, workflow
from stepwell.core.messages import MapItem
from stepwell.core.records import RunStatus
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed


def test_items_are_made_by_the_step_function(deployed: Deployed) -> None:
    @step(dispatch="worker", retry=RetryPolicy(max_attempts=1))
    async def odd(n: int) -> int:
        if n % 2:
            raise FatalError(str(n))
        return n

    @workflow
    async def flow() -> list[Any]:
        whole = await odd.map([0, 2, 4], max_concurrency=2)
        found = await odd.map(range(60), on_error="collect", max_concurrency=40)
        return [whole, len(found.results), len(found.errors)]

    handle = run(deployed.client.start(flow))
    deployed.pump()
    header = deployed.header(handle.id)
    assert (header.status, header.result) == (RunStatus.COMPLETED, "[[0,2,4],30,30]")


def test_an_item_waits_for_an_answer(deployed: Deployed) -> None:
    @step(dispatch="worker")
    async def asks(n: int) -> int:
        answer: int = await step_hook("answer", key=str(n))
        return answer + n

    @workflow
    async def flow() -> list[int]:
        return await asks.map([1, 2])

    handle = run(deployed.client.start(flow))
    deployed.pump()
    for hook in run(deployed.client.list_hooks(run_id=handle.id)).items:
        run(deployed.client.resume_hook(hook.token, 10))
    deployed.pump()
    header = deployed.header(handle.id)
    assert (header.status, header.result) == (RunStatus.COMPLETED, "[11,12]")


def test_an_item_that_is_a_dead_letter_marks_its_run(deployed: Deployed) -> None:
    @step(dispatch="worker")
    async def fine(n: int) -> int:
        return n

    @workflow
    async def flow() -> list[int]:
        return await fine.map([1])

    handle = run(deployed.client.start(flow))
    deployed.deliver("run.fifo")
    item = MapItem(run_id=handle.id, map="fine*:1", order=2, name="fine", total=1, index=0)
    deployed.send("step-dead", item)
    deployed.deliver("step-dead")
    note = deployed.header(handle.id).attention
    assert note is not None
    assert note.kind == "STUCK"
    assert "map_item" in note.reason


EXPECTED = {
    # Header and two commits, the shard and ten outcomes; ten changes of the shard, two headers.
    # Messages of items leave in one batch; one wakes the run.
    map_elsewhere: Tallied(
        10,
        requests={
            "SendMessage": 2,
            "SendMessageBatch": 1,
            "PutItem": 14,
            "GetItem": 11,
            "Query": 3,
            "UpdateItem": 12,
            "ChangeMessageVisibility": 10,
        },
        written=26,
        read=14,
        messages=12,
        invocations=12,
        turns=2,
    ),
    map_in_lanes: Tallied(
        10,
        requests={
            "SendMessage": 2,
            "SendMessageBatch": 1,
            "PutItem": 14,
            "GetItem": 11,
            "Query": 3,
            "UpdateItem": 12,
            "ChangeMessageVisibility": 10,
        },
        written=26,
        read=14,
        messages=12,
        invocations=12,
        turns=2,
    ),
}


@pytest.mark.parametrize("flow", EXPECTED, ids=lambda flow: flow.definition.name)
def test_a_map_costs_what_it_did(flow: Any) -> None:
    assert bill_of(flow, 10) == EXPECTED[flow]


@pytest.mark.parametrize("flow", EXPECTED, ids=lambda flow: flow.definition.name)
def test_each_item_costs_as_much_as_the_one_before(flow: Any) -> None:
    few, more = bill_of(flow, 20), bill_of(flow, 40)
    assert more.turns == few.turns == 2
    assert more.messages - few.messages == 20
    assert 20 <= more.read - few.read <= 21
    # Two units for each item; the map's own events grow by a KB now and then.
    assert 40 <= more.written - few.written <= 42


#: Requests, units written and read, messages and turns of a hundred items, none held back.
HUNDRED = (422, 210, 107, 102, 2)


def test_hundreds_of_items_cost_as_much_each_as_tens() -> None:
    few, more = bill_of(map_elsewhere, 100), bill_of(map_elsewhere, 400)
    spent = (sum(few.requests.values()), few.written, few.read, few.messages, few.turns)
    assert spent == HUNDRED
    assert more.turns == few.turns == 2
    assert more.messages - few.messages == 300
    # Four requests for each, its part of a batch of messages, and some ten for each shard.
    grown = sum(more.requests.values()) - sum(few.requests.values())
    assert 4.1 * 300 <= grown <= 4.2 * 300
    assert 2 * 300 <= more.written - few.written <= 2.05 * 300
