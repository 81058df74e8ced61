"""Runs on AWS are paused, retried, forked and ended by force."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import RetryPolicy, hook, step, workflow
from stepwell.core.records import RunStatus
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed


@pytest.fixture
def asks() -> Any:
    @workflow
    async def asks() -> Any:
        return await hook("go")

    return asks


def answered(deployed: Deployed, run_id: str, payload: Any) -> None:
    page = run(deployed.client.list_hooks(run_id=run_id))
    run(deployed.client.resume_hook(page.items[0].token, payload))
    deployed.pump()


def test_a_paused_run_is_found_and_goes_on_when_it_is_resumed(
    deployed: Deployed, asks: Any
) -> None:
    client = deployed.client
    run_id = run(client.start(asks)).id
    deployed.pump()
    run(client.pause(run_id, "a look first", actor="Ada"))
    answered(deployed, run_id, 7)
    assert deployed.header(run_id).status is RunStatus.SUSPENDED
    found = run(client.list_runs(attention="PAUSED"))
    assert [header.run_id for header in found.items] == [run_id]
    run(client.resume(run_id))
    deployed.pump()
    header = deployed.header(run_id)
    assert (header.status, header.result, header.attention) == (RunStatus.COMPLETED, "7", None)


def test_a_failed_run_is_retried_and_its_cancel_flag_is_gone(deployed: Deployed) -> None:
    down = True

    @step(retry=RetryPolicy(max_attempts=1))
    async def call() -> str:
        if down:
            raise OSError("down")
        return "up"

    @workflow
    async def calls() -> str:
        return await call()

    client = deployed.client
    run_id = run(client.start(calls)).id
    deployed.pump()
    assert deployed.header(run_id).status is RunStatus.FAILED
    run(client.cancel(run_id))
    deployed.pump()
    down = False
    run(client.retry(run_id, actor="Ada"))
    reopened = deployed.header(run_id)
    assert (reopened.status, reopened.cancel_requested) == (RunStatus.SUSPENDED, False)
    assert reopened.retry is not None
    deployed.pump()
    header = deployed.header(run_id)
    assert (header.status, header.result, header.retry) == (RunStatus.COMPLETED, '"up"', None)


def test_a_fork_leaves_every_item_of_the_other_run_as_it_is(deployed: Deployed, asks: Any) -> None:
    client = deployed.client
    run_id = run(client.start(asks)).id
    deployed.pump()
    answered(deployed, run_id, 1)
    before = items(deployed, run_id)
    [number] = [e.number for e in run(client.history(run_id)) if e.event.type == "HookReceived"]
    fork = run(client.fork(run_id, edits={number: 2}, fork_id="the-fork"))
    deployed.pump()
    assert deployed.header(fork.id).result == "2"
    assert items(deployed, run_id) == before


def items(deployed: Deployed, run_id: str) -> list[Any]:
    """All items of a run, as the table holds them."""
    table = deployed.aws.table
    found = table.client.scan(TableName=table.name, ConsistentRead=True)["Items"]
    return sorted((i for i in found if i["pk"]["S"] == f"R#{run_id}"), key=lambda i: i["sk"]["S"])


def test_a_run_is_ended_by_force(deployed: Deployed, asks: Any) -> None:
    client = deployed.client
    run_id = run(client.start(asks)).id
    deployed.pump()
    run(client.cancel(run_id, "gone", force=True))
    deployed.pump()
    assert deployed.header(run_id).status is RunStatus.CANCELLED
    assert run(client.list_hooks(run_id=run_id)).items == ()
