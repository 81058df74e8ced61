"""Deleting runs on AWS: what the worker deletes, and what the sweeper has deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell import FatalError, RetryPolicy, hook, step, workflow
from stepwell.adapters.aws.wiring import open_aws
from stepwell.core.records import REMEMBERED, RunStatus, tombstone
from stepwell.core.retention import Retention
from stepwell.errors import DefinitionError, RunDeleted
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed, LambdaContext

_TICK = {"source": "aws.events", "detail-type": "Scheduled Event"}
DAY = 86_400_000


@pytest.fixture
def talk() -> Any:
    @step(dispatch="worker", timeout="5m")
    async def speak(text: str) -> str:
        return text

    @workflow
    async def talk(text: str) -> Any:
        await speak(text)
        return await hook("go")

    return talk


def ended(deployed: Deployed, talk: Any) -> str:
    handle = run(deployed.client.start(talk, "x" * 20_000))
    deployed.pump()
    (question,) = run(deployed.client.list_hooks(run_id=handle.id)).items
    run(deployed.client.resume_hook(question.token, "y" * 20_000))
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.COMPLETED
    return handle.id


def items(deployed: Deployed, run_id: str) -> list[Any]:
    """Everything that the table holds of a run."""
    found = deployed.aws.table.client.scan(TableName="stepwell")["Items"]
    return [each for each in found if run_id in each["pk"]["S"]]


def objects(deployed: Deployed) -> list[str]:
    """The keys of all values in the bucket."""
    found = deployed.aws.clients.s3.list_objects_v2(Bucket=deployed.environment.bucket)
    return [each["Key"] for each in found.get("Contents", ())]


def test_the_worker_deletes_a_run_and_what_is_left_goes_by_itself(
    deployed: Deployed, talk: Any
) -> None:
    run_id, other = ended(deployed, talk), ended(deployed, talk)
    assert len([key for key in objects(deployed) if run_id in key]) >= 2
    run(deployed.client.delete(run_id))
    deployed.pump()
    with pytest.raises(RunDeleted):
        run(deployed.client.get(run_id))
    assert not [key for key in objects(deployed) if run_id in key]
    assert [key for key in objects(deployed) if other in key]
    left = items(deployed, run_id)
    gone_at = deployed.clock.now() + REMEMBERED
    assert {each["sk"]["S"][:2] for each in left} == {"A", "E#"}
    for each in left:
        assert int(each["expires_at"]["N"]) >= gone_at // 1000
        assert {"listed_in", "wanted_in", "expires_in"}.isdisjoint(each)
        assert "xxx" not in str(each)
        assert "yyy" not in str(each)
    assert run(deployed.client.result(other)) == "y" * 20_000


def test_the_sweeper_has_a_run_deleted_when_its_time_is_over(deployed: Deployed, talk: Any) -> None:
    object.__setattr__(deployed.aws, "_retention", Retention(completed=DAY))
    run_id = ended(deployed, talk)
    assert deployed.header(run_id).kept_until is not None
    deployed.sweeper.handle(_TICK, LambdaContext())
    deployed.pump()
    assert deployed.header(run_id).deleted_at is None
    deployed.clock.move_to(deployed.clock.now() + 2 * DAY)
    deployed.sweeper.handle(_TICK, LambdaContext())
    deployed.pump()
    assert deployed.header(run_id).deleted_at is not None


def test_the_environment_says_for_how_long_runs_are_kept(deployed: Deployed) -> None:
    changed = deployed.environment.model_copy(
        update={"retain_completed": "90d", "retain_failed": "1h"}
    )
    with open_aws(changed, deployed.session) as aws:
        assert aws.settings.retention == Retention(completed=90 * DAY, failed=3_600_000)
    wrong = deployed.environment.model_copy(update={"retain_failed": "soon"})
    with pytest.raises(DefinitionError, match="retention of failed runs"):
        open_aws(wrong, deployed.session)


def test_the_rows_of_dispatched_maps_go_too_also_after_a_crash(deployed: Deployed) -> None:
    @step(dispatch="worker", timeout="5m")
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def doubled() -> list[int]:
        return await double.map([1, 2, 3])

    handle = run(deployed.client.start(doubled))
    deployed.pump()
    assert run(deployed.client.result(handle.id)) == [2, 4, 6]
    assert [each for each in items(deployed, handle.id) if each["pk"]["S"].startswith("P#")]
    # A worker that has died after it wrote the tombstone.
    header = deployed.header(handle.id)
    left = replace(tombstone(header, deployed.clock.now()), last_event=header.last_event + 1)
    assert run(deployed.aws.store.bury(left))
    run(deployed.client.delete(handle.id))
    deployed.pump()
    assert {each["sk"]["S"][:2] for each in items(deployed, handle.id)} == {"A", "E#"}


def test_the_rows_of_the_maps_of_every_life_go(deployed: Deployed) -> None:
    broken = [True]

    @step(dispatch="worker", retry=RetryPolicy(max_attempts=1))
    async def halve(n: int) -> int:
        if n % 2 and broken:
            raise FatalError("odd")
        return n // 2

    @workflow
    async def halves() -> list[int]:
        return await halve.map([2, 3, 4])

    handle = run(deployed.client.start(halves))
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.FAILED
    broken.clear()
    run(deployed.client.retry(handle.id))
    deployed.pump()
    assert run(deployed.client.result(handle.id)) == [1, 1, 2]
    maps = {each["pk"]["S"] for each in items(deployed, handle.id)} - {f"R#{handle.id}"}
    assert len(maps) == 2
    run(deployed.client.delete(handle.id))
    deployed.pump()
    assert {each["pk"]["S"] for each in items(deployed, handle.id)} == {f"R#{handle.id}"}
