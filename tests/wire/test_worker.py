"""The worker on the wire: what AWS cannot do now is given back, and harms no run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import step, workflow
from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.adapters.aws.secret import KeySecret
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import Registry, registry
from stepwell.core.records import RunStatus
from stepwell.engine.ports import TransientError
from tests.contract.given import run
from tests.integration.aws.deployment import KEYS
from tests.wire.cloud import Account, Cloud, open_accounts
from tests.wire.door import Asked
from tests.wire.faults import CUT, HALF_JSON, HTML_502, LOST, RESET, SAID, THROTTLED, Fault
from tests.wire.wire import Nth, queue_of


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with open_accounts() as opened:
        yield opened


@pytest.fixture
def greet() -> Workflow[..., Any]:
    @workflow
    async def greet(name: str) -> str:
        return f"hello {await upper(name)}"

    @step
    async def upper(text: str) -> str:
        return text.upper()

    return greet


@pytest.fixture
def cloud(account: Account, greet: Workflow[..., Any]) -> Iterator[Cloud]:
    known = Registry()
    known.add_workflow(greet.definition)
    step_of_it = registry.step("upper")
    assert step_of_it is not None
    known.add_step(step_of_it)
    with account.cloud(known) as opened:
        yield opened


WORKER_FAULTS = [
    *(fault for fault, _, _ in SAID),
    THROTTLED,
    RESET,
    LOST,
    CUT,
    HTML_502,
    HALF_JSON,
]


@pytest.mark.parametrize("request_number", [1, 3])
@pytest.mark.parametrize("fault", WORKER_FAULTS, ids=str)
def test_a_turn_that_cannot_ask_aws_gives_its_message_back_and_harms_no_run(
    cloud: Cloud, greet: Workflow[..., Any], fault: Fault, request_number: int
) -> None:
    with cloud.unseen():
        handle = run(cloud.deployed.client.start(greet, "ann"))
    cloud.door.plan = plan = Nth(request_number, fault, ATTEMPTS)
    deployed = cloud.deployed
    assert len(deployed.deliver("run.fifo")) == 1
    assert plan.happened >= 1
    assert len(deployed.held("run.fifo")) == 1
    assert deployed.hidden_for("run.fifo") == [1]
    with cloud.unseen():
        before = deployed.header(handle.id)
        assert not before.status.terminal or before.status is RunStatus.COMPLETED
        assert before.attention is None
    cloud.settle()
    with cloud.unseen():
        assert deployed.header(handle.id).status is RunStatus.COMPLETED
        assert deployed.header(handle.id).result == '"hello ANN"'
    assert deployed.held("run.fifo") == []
    assert not any(cloud.dead())


@pytest.mark.parametrize("fault", [THROTTLED, RESET, CUT, HALF_JSON], ids=str)
def test_keys_that_cannot_be_read_in_passing_are_a_passing_failure(
    account: Account, fault: Fault
) -> None:
    secret = KeySecret(account.session, "keys", account.clock)
    account.door.plan = Nth(1, fault, ATTEMPTS)
    with pytest.raises(TransientError):
        secret.refresh()
    assert set(secret.refresh().keys) == set(KEYS)


class Slow:
    """A plan: the reply to the first send is lost, and the second comes when SQS has forgotten."""

    def __init__(self) -> None:
        self._sent = 0

    def __call__(self, asked: Asked) -> Fault | None:
        """What the door asks."""
        if asked.operation != "SendMessage":
            return None
        self._sent += 1
        if self._sent == 1:
            return LOST
        for message in queue_of("run.fifo")._messages:
            message.sent_timestamp -= 301_000
        return None


def test_a_start_that_is_there_twice_changes_nothing(
    cloud: Cloud, greet: Workflow[..., Any]
) -> None:
    cloud.door.plan = Slow()
    handle = run(cloud.deployed.client.start(greet, "ann"))
    assert len(cloud.deployed.bodies("run.fifo")) == 2
    cloud.settle()
    with cloud.unseen():
        assert cloud.deployed.header(handle.id).result == '"hello ANN"'
        assert len(run(cloud.deployed.client.history(handle.id))) == 3
    assert cloud.deployed.held("run.fifo") == []
    assert not any(cloud.dead())
