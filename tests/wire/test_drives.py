"""Whole runs over the wire, with a fault at each of their requests: they come to the same end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from examples.approval.workflow import refund
from examples.outside import Outside, outside, use
from stepwell import hook, sleep, step, workflow
from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import Registry, registry
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.records import RunStatus
from stepwell.testing.laws import check_history
from tests.contract.given import run
from tests.examples.given import ORDER
from tests.simulation.final import SEED, TIMES, normalise
from tests.wire.cloud import Account, Cloud, open_accounts
from tests.wire.door import Asked, Plan, no_faults
from tests.wire.faults import CUT, HTML_502, LOST, RESET, THROTTLED, Fault
from tests.wire.wire import Nth

KINDS = ("draft", "review asked", "payment", "confirmation", "label", "parcel")
MINUTE = 60_000
HOUR = 60 * MINUTE
LARGE = "x" * 20_000
READS = frozenset({"GetItem", "GetObject", "GetSecretValue", "Query"})


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a drive, without what may differ from one to the next."""

    status: RunStatus
    result: str | None
    events: tuple[dict[str, Any], ...]
    effects: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with open_accounts() as opened:
        yield opened


@pytest.fixture
def world() -> Iterator[Outside]:
    opened = use(Outside(":memory:"))
    yield opened
    opened.close()


def approval(cloud: Cloud) -> str:
    """The example, over HTTP: a start, a question in the middle of a step, and its answer."""
    order = {"order": json.loads(ORDER.model_dump_json())}
    started = cloud.http(
        "POST", "/v1/workflows/refund/runs", {"input": order}, idempotency_key="one"
    )
    cloud.settle()
    (question,) = cloud.hooks(started["run_id"])
    cloud.http("POST", f"/hooks/{question.token}", {"approved": True, "reviewer": "ann"})
    cloud.settle()
    run_id: str = started["run_id"]
    return run_id


def parcel(cloud: Cloud) -> str:
    """By messages: a dispatched step, a large value, waits short and long, and an answer."""
    start = {"type": "start", "workflow": "parcel", "input": {"to": "ann"}}
    cloud.put("inbox", {**start, "idempotency_key": "one"})
    cloud.settle()
    with cloud.unseen():
        (header,) = run(cloud.aws.store.list_runs(workflow="parcel")).items
    cloud.wait(3 * HOUR)
    (question,) = cloud.hooks(header.run_id)
    cloud.put("inbox", {"type": "resume_hook", "token": question.token, "payload": "left"})
    cloud.settle()
    return header.run_id


def parcel_workflow() -> Workflow[..., Any]:
    @step(dispatch="worker")
    def label(to: str) -> str:
        return outside().request("label", to, "label") + LARGE

    @step
    async def send(text: str) -> str:
        return outside().request("parcel", text[:8], "sent")

    @workflow
    async def parcel(to: str) -> str:
        text = await label.aio(to)
        await sleep(MINUTE // 1000)
        sent = await send(text)
        await sleep(2 * HOUR // 1000)
        return f"{sent}, {await hook('where')}"

    return parcel


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workflow, and how it is started, answered and waited for."""

    workflow: Workflow[..., Any]
    drive: Callable[[Cloud], str]

    def driven(
        self, account: Account, world: Outside, plan: Plan = no_faults
    ) -> tuple[Final, list[str]]:
        """What a drive comes to, and the operations that it asked for. All laws are checked."""
        world._database.executescript("DELETE FROM requests; DELETE FROM effects")
        definition = self.workflow.definition
        with account.cloud(_only(definition)) as cloud:
            cloud.door.plan = plan
            run_id = self.drive(cloud)
            requests = {asked.request: asked.operation for asked in cloud.door.seen}
            with cloud.unseen():
                header = run(cloud.aws.store.get_header(run_id))
                history = run(cloud.deployed.client.history(run_id))
            assert header is not None
            check_history([each.event for each in history], header, definition)
            assert not any(cloud.dead())
        final = Final(
            status=header.status,
            result=header.result,
            events=normalise(history, {**SEED, **TIMES}),
            effects={kind: world.effects(kind) for kind in KINDS},
        )
        return final, list(requests.values())


def _only(definition: WorkflowDefinition) -> Registry:
    """What is deployed: one workflow, and every step that there is."""
    known = Registry()
    known.add_workflow(definition)
    for each in registry.steps().values():
        known.add_step(each)
    return known


@pytest.fixture(params=["approval", "parcel"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    if request.param == "approval":
        return Scenario(refund, approval)
    return Scenario(parcel_workflow(), parcel)


def test_the_same_drive_twice_comes_to_the_same(
    scenario: Scenario, account: Account, world: Outside
) -> None:
    first, requests = scenario.driven(account, world)
    assert first.status is RunStatus.COMPLETED
    assert scenario.driven(account, world) == (first, requests)


class Always:
    """A plan: the first attempts at every request end with a fault."""

    def __init__(self, fault: Fault, times: int) -> None:
        self._fault = fault
        self._times = times

    def __call__(self, asked: Asked) -> Fault | None:
        """What the door asks."""
        return self._fault if asked.attempt <= self._times else None


@pytest.mark.parametrize(
    ("fault", "times"),
    [(LOST, ATTEMPTS - 1), (THROTTLED, ATTEMPTS - 1), (RESET, 1), (HTML_502, 2)],
    ids=str,
)
def test_a_fault_at_the_first_attempts_of_all_requests_changes_nothing(
    fault: Fault, times: int, scenario: Scenario, account: Account, world: Outside
) -> None:
    expected, _ = scenario.driven(account, world)
    assert scenario.driven(account, world, Always(fault, times))[0] == expected
    assert max(account.door.attempts()) == times + 1


#: A fault, at how many attempts, and at every how manyth request.
FAULTS = [
    pytest.param(LOST, ATTEMPTS, 1, id="lost each time"),
    pytest.param(THROTTLED, ATTEMPTS, 2, id="throttled each time"),
    pytest.param(LOST, 1, 6, id="lost once"),
    pytest.param(THROTTLED, 1, 9, id="throttled once"),
    pytest.param(RESET, 1, 9, id="reset once"),
    pytest.param(CUT, ATTEMPTS, 9, id="cut each time"),
]


@pytest.mark.parametrize(("fault", "times", "stride"), FAULTS)
def test_a_fault_at_any_request_changes_nothing_in_the_end(
    fault: Fault,
    times: int,
    stride: int,
    scenario: Scenario,
    account: Account,
    world: Outside,
) -> None:
    expected, requests = scenario.driven(account, world)
    for number, operation in list(enumerate(requests, 1))[::stride]:
        if fault is LOST and operation in READS:
            continue  # nothing was done
        plan = Nth(number, fault, times)
        final, _ = scenario.driven(account, world, plan)
        assert final == expected, (number, plan.seen)
        assert plan.happened == (1 if plan.seen == "GetObject" and fault is CUT else times)
