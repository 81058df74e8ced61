"""The workflow that a fresh deployment comes with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.adapters.aws.handlers.code import import_workflows
from stepwell.authoring.registry import registry
from stepwell.core.records import RunStatus
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed

LARGE = {"request": {"employee": "ann", "purpose": "train", "amount": "120.50"}}


@pytest.fixture
def sample(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "functions"))
    import_workflows("workflows")
    run(deployed.client.publish([each.definition for each in _workflows()]))
    yield deployed
    for name in [each for each in sys.modules if each.split(".")[0] == "workflows"]:
        del sys.modules[name]


def _workflows() -> list[Any]:
    return [sys.modules["workflows.claims"].claim]


def timers_fire(deployed: Deployed) -> None:
    deployed.clock.advance(10_000)
    deployed.due_now("inbox")
    deployed.deliver("inbox")
    deployed.pump()


def test_a_small_claim_is_paid(sample: Deployed) -> None:
    small = {"request": {"employee": "ann", "purpose": "pens", "amount": "12.00"}}
    handle = run(sample.client.start_named("claim", small))
    sample.pump()
    timers_fire(sample)
    assert '"paid"' in (sample.header(handle.id).result or "")


def test_a_large_claim_waits_for_somebodys_word(sample: Deployed) -> None:
    handle = run(sample.client.start_named("claim", LARGE))
    sample.pump()
    assert sample.header(handle.id).status is RunStatus.SUSPENDED
    (hook,) = run(sample.client.list_hooks()).items
    run(sample.client.resume_hook(hook.token, {"approved": False}))
    sample.pump()
    assert '"declined"' in (sample.header(handle.id).result or "")


def test_a_large_claim_ends_when_nobody_answers(sample: Deployed) -> None:
    handle = run(sample.client.start_named("claim", LARGE))
    sample.pump()
    sample.clock.advance(3 * 24 * 3_600_000)
    (schedule,) = sample.aws.clients.scheduler.list_schedules(GroupName="stepwell")["Schedules"]
    target = sample.aws.clients.scheduler.get_schedule(GroupName="stepwell", Name=schedule["Name"])[
        "Target"
    ]
    sample.aws.clients.sqs.send_message(
        QueueUrl=sample.url("run.fifo"), MessageBody=target["Input"], MessageGroupId=handle.id
    )
    sample.pump()
    assert '"unanswered"' in (sample.header(handle.id).result or "")
    assert "claim" in registry.workflows()
