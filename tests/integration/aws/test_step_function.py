"""The step function: messages of the step queue become attempts."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stepwell import step, workflow
from stepwell.adapters.aws.environment import ClientEnvironment, StepEnvironment
from stepwell.adapters.aws.handlers.step import HOLD, StepFunction
from stepwell.adapters.aws.wiring import open_aws
from stepwell.core.messages import StepAttempt
from stepwell.core.records import RunStatus, StepRow
from stepwell.errors import UsageError
from tests.contract.given import run
from tests.integration.aws.deployment import MAX_RECEIVES, Deployed, LambdaContext


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def render(calls: list[str]) -> Any:
    @workflow
    async def render(name: str) -> str:
        return await draw(name)

    @step(dispatch="worker")
    async def draw(name: str) -> str:
        calls.append(name)
        return f"picture of {name}"

    return render


def test_a_dispatched_step_is_made_by_the_step_function(
    deployed: Deployed, render: Any, calls: list[str]
) -> None:
    handle = run(deployed.client.start(render, "a tree"))
    deployed.deliver("run.fifo")
    assert calls == []
    assert deployed.deliver("step") == []
    assert calls == ["a tree"]
    deployed.pump()
    header = deployed.header(handle.id)
    assert (header.status, header.result) == (RunStatus.COMPLETED, '"picture of a tree"')


def test_an_attempt_that_was_made_is_not_made_again_for_a_second_delivery(
    deployed: Deployed, render: Any, calls: list[str]
) -> None:
    handle = run(deployed.client.start(render, "a tree"))
    deployed.deliver("run.fifo")
    event = deployed.event("step")
    for _ in range(2):
        assert deployed.step.handle(event, LambdaContext()) == {"batchItemFailures": []}
    assert calls == ["a tree"]
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.COMPLETED


def test_a_message_is_held_for_a_minute_and_that_is_renewed_while_the_step_goes_on(
    deployed: Deployed,
) -> None:
    renewed = threading.Semaphore(0)
    holds: list[int] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        holds.append(params["VisibilityTimeout"])
        renewed.release()

    events = deployed.aws.clients.sqs.meta.events
    events.register("before-parameter-build.sqs.ChangeMessageVisibility", note)

    @step(dispatch="worker")
    def slow() -> str:
        for _ in range(3):
            assert renewed.acquire(timeout=30)
        return "done"

    @workflow
    async def patient() -> str:
        return await slow.aio()

    handle = run(deployed.client.start(patient))
    deployed.deliver("run.fifo")
    eager = StepFunction(deployed.aws, beat=0.001)
    assert eager.handle(deployed.event("step"), LambdaContext()) == {"batchItemFailures": []}
    eager.close()
    assert set(holds) == {HOLD}
    deployed.pump()
    assert deployed.header(handle.id).result == '"done"'


def test_a_second_receiver_waits_until_the_first_must_be_over(
    deployed: Deployed, render: Any, calls: list[str]
) -> None:
    run(deployed.client.start(render, "a tree"))
    deployed.deliver("run.fifo")
    row = _claimed_by_somebody(deployed)
    assert len(deployed.deliver("step")) == 1
    assert deployed.hidden_for("step") == [(row.until - deployed.clock.now()) // 1000]
    assert calls == []


def _claimed_by_somebody(deployed: Deployed) -> StepRow:
    (attempt,) = deployed.bodies("step")
    return run(
        deployed.aws.store.put_step(
            StepRow(
                run_id=attempt["run_id"],
                step=attempt["step"],
                revision=1,
                order=attempt["order"],
                claim="another-message#1#nonce",
                until=deployed.clock.now() + 90_000,
            )
        )
    )


def test_an_attempt_whose_report_fails_is_reported_by_the_next_receive(
    deployed: Deployed, render: Any, calls: list[str]
) -> None:
    handle = run(deployed.client.start(render, "a tree"))
    deployed.deliver("run.fifo")
    deployed.fault(deployed.aws.clients.sqs, "SendMessage", "denied")
    assert len(deployed.deliver("step")) == 1
    assert deployed.hidden_for("step") == [1]
    deployed.due_now("step")
    assert deployed.deliver("step") == []
    assert calls == ["a tree"]
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.COMPLETED


@pytest.mark.parametrize("body", ["no json", "{}", '{"type": "wake", "run_id": "r", "cause": "c"}'])
def test_what_is_no_attempt_becomes_a_dead_letter(deployed: Deployed, body: str) -> None:
    deployed.send("step", body)
    for _ in range(MAX_RECEIVES + 1):
        deployed.due_now("step")
        deployed.deliver("step")
    assert [message.body for message in deployed.held("step-dead")] == [body]


def test_each_attempt_of_a_batch_stands_for_itself(
    deployed: Deployed, render: Any, calls: list[str]
) -> None:
    run(deployed.client.start(render, "a tree"))
    deployed.deliver("run.fifo")
    (good,) = deployed.event("step")["Records"]
    bad = {**good, "messageId": "bad", "body": "no json"}
    response = deployed.step.handle({"Records": [bad, good]}, LambdaContext())
    assert response == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
    assert calls == ["a tree"]


def test_a_message_whose_visibility_cannot_be_renewed_is_worked_all_the_same(
    deployed: Deployed, render: Any
) -> None:
    handle = run(deployed.client.start(render, "a tree"))
    deployed.deliver("run.fifo")
    deployed.fault(deployed.aws.clients.sqs, "ChangeMessageVisibility", "denied")
    assert deployed.deliver("step") == []
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.COMPLETED


def test_no_function_but_the_worker_dispatches_or_times(deployed: Deployed) -> None:
    client = ClientEnvironment.model_validate(deployed.environment.model_dump())
    with open_aws(client, deployed.session) as aws:
        with pytest.raises(UsageError, match="only the worker dispatches"):
            run(aws.ports.steps.send(StepAttempt(run_id="r", step="s:1", name="s", order=2)))
        with pytest.raises(UsageError, match="only the worker dispatches"):
            run(aws.ports.steps.send_items([]))
    environment = StepEnvironment.model_validate(deployed.environment.model_dump())
    with open_aws(environment, deployed.session) as aws:
        with pytest.raises(UsageError, match="only the worker"):
            run(aws.ports.timers.start("r", "w", 1, 5))
        with pytest.raises(UsageError, match="only the worker"):
            run(aws.ports.timers.cancel("r", "w", 1))
