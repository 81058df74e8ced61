"""The worker: messages of the run queue become turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import hook, sleep, step, workflow
from stepwell.adapters.aws.handlers.worker import Worker
from stepwell.adapters.aws.wiring import open_aws
from stepwell.authoring.decorators import Workflow
from stepwell.core.messages import CancelRun, Wake
from stepwell.core.records import RunStatus
from tests.contract.given import run
from tests.integration.aws.deployment import (
    MAX_RECEIVES,
    Deployed,
    LambdaContext,
    open_deployment,
)


@pytest.fixture
def greet() -> Any:
    @workflow
    async def greet(name: str) -> str:
        return f"hello {await upper(name)}"

    @step
    async def upper(text: str) -> str:
        return text.upper()

    return greet


def test_a_started_run_is_worked_to_its_end(deployed: Deployed, greet: Any) -> None:
    handle = run(deployed.client.start(greet, "ann"))
    assert deployed.deliver("run.fifo") == []
    header = deployed.header(handle.id)
    assert (header.status, header.result) == (RunStatus.COMPLETED, '"hello ANN"')
    assert deployed.held("run.fifo") == []


def test_a_start_whose_sender_died_before_the_row_is_worked_too(
    deployed: Deployed, greet: Any
) -> None:
    left = deployed.fault(deployed.aws.table.client, "PutItem", "denied")
    with pytest.raises(Exception, match="AccessDenied"):
        run(deployed.client.start(greet, "ann"))
    assert left == []
    (body,) = deployed.bodies("run.fifo")
    deployed.deliver("run.fifo")
    assert deployed.header(body["run_id"]).status is RunStatus.COMPLETED


def test_a_long_wait_stands_as_a_schedule_and_a_short_one_on_the_inbox(deployed: Deployed) -> None:
    @workflow
    async def wait(seconds: int) -> str:
        await sleep(seconds)
        return "woken"

    long = run(deployed.client.start(wait, 3600))
    short = run(deployed.client.start(wait, 60))
    deployed.deliver("run.fifo")
    (schedule,) = deployed.aws.clients.scheduler.list_schedules(GroupName="stepwell")["Schedules"]
    assert schedule["Name"].startswith(long.id)
    (timer,) = deployed.bodies("inbox")
    assert timer["run_id"] == short.id
    deployed.clock.advance(60_000)
    deployed.due_now("inbox")
    deployed.deliver("inbox")
    deployed.pump()
    assert deployed.header(short.id).status is RunStatus.COMPLETED
    assert deployed.header(long.id).status is RunStatus.SUSPENDED


@pytest.mark.parametrize(
    "body",
    [
        " ",
        "no json",
        "[]",
        "{}",
        '{"type": "wake"}',
        '{"type": "wake", "run_id": "r", "cause": "c", "more": 1}',
        '{"type": "of_a_newer_version", "run_id": "r"}',
        '{"type": "step_attempt", "run_id": "r", "step": "s:1", "name": "s", "order": 2}',
    ],
)
def test_what_is_no_message_becomes_a_dead_letter_and_is_never_dropped(
    deployed: Deployed, body: str
) -> None:
    deployed.send("run.fifo", body)
    for _ in range(MAX_RECEIVES):
        deployed.due_now("run.fifo")
        assert len(deployed.deliver("run.fifo")) == 1
        assert deployed.hidden_for("run.fifo") == [5]
    deployed.due_now("run.fifo")
    deployed.deliver("run.fifo")
    assert [message.body for message in deployed.held("run-dead.fifo")] == [body]


def test_a_message_whose_turn_fails_comes_again_later_and_later(
    deployed: Deployed, greet: Any
) -> None:
    handle = run(deployed.client.start(greet, "ann"))
    client = deployed.aws.table.client
    deployed.fault(client, "Query", *["denied"] * 2)
    assert len(deployed.deliver("run.fifo")) == 1
    assert deployed.hidden_for("run.fifo") == [1]
    deployed.due_now("run.fifo")
    assert len(deployed.deliver("run.fifo")) == 1
    assert deployed.hidden_for("run.fifo") == [2]
    deployed.due_now("run.fifo")
    assert deployed.deliver("run.fifo") == []
    assert deployed.header(handle.id).status is RunStatus.COMPLETED


def test_a_message_stays_hidden_as_it_was_when_it_cannot_be_given_back(
    deployed: Deployed, greet: Any
) -> None:
    run(deployed.client.start(greet, "ann"))
    deployed.fault(deployed.aws.table.client, "Query", "denied")
    deployed.fault(deployed.aws.clients.sqs, "ChangeMessageVisibility", "denied")
    assert len(deployed.deliver("run.fifo")) == 1
    assert deployed.hidden_for("run.fifo") == [150]


def test_a_run_is_marked_stuck_before_its_last_try_and_the_mark_goes_when_that_works(
    deployed: Deployed, greet: Any
) -> None:
    handle = run(deployed.client.start(greet, "ann"))
    client = deployed.aws.table.client
    for _ in range(MAX_RECEIVES - 1):
        deployed.fault(client, "Query", "denied")
        deployed.deliver("run.fifo")
        deployed.due_now("run.fifo")
    left = deployed.fault(client, "Query", "denied")
    deployed.deliver("run.fifo")
    assert left == []
    note = deployed.header(handle.id).attention
    assert note is not None
    assert note.kind == "STUCK"
    deployed.send("run.fifo", Wake(run_id=handle.id, cause="mended"))
    for _ in range(2):
        deployed.due_now("run.fifo")
        deployed.deliver("run.fifo")
    assert deployed.header(handle.id).status is RunStatus.COMPLETED
    assert deployed.header(handle.id).attention is None


def test_what_follows_a_failed_message_of_a_batch_fails_with_it(
    deployed: Deployed, greet: Any
) -> None:
    handle = run(deployed.client.start(greet, "ann"))
    event = deployed.event("run.fifo")
    bad = {**event["Records"][0], "messageId": "bad", "body": "no json"}
    late = {**event["Records"][0], "messageId": "late"}
    response = deployed.worker.handle(
        {"Records": [event["Records"][0], bad, late]}, LambdaContext()
    )
    assert response == {
        "batchItemFailures": [{"itemIdentifier": "bad"}, {"itemIdentifier": "late"}]
    }
    assert deployed.header(handle.id).status is RunStatus.COMPLETED


def test_keys_that_cannot_be_read_give_the_message_back(deployed: Deployed, greet: Any) -> None:
    run(deployed.client.start(greet, "ann"))
    deployed.session.create_client("secretsmanager").put_secret_value(
        SecretId="keys", SecretString="{}"
    )
    aws = open_aws(deployed.environment, deployed.session, clock=deployed.clock)
    fresh = Worker(aws, MAX_RECEIVES, deployed.environment.signal_dead_letter_url)
    response = fresh.handle(deployed.event("run.fifo"), LambdaContext())
    assert len(response["batchItemFailures"]) == 1
    fresh.close()
    aws.close()


def test_workflows_are_published_after_the_first_turn_and_only_then(
    deployed: Deployed, greet: Any
) -> None:
    run(deployed.client.start(greet, "ann"))
    deployed.deliver("run.fifo")
    found = run(deployed.aws.store.get_definition("greet"))
    assert found is not None
    assert found.published_at == deployed.clock.now()
    deployed.aws.table.client.delete_item(
        TableName="stepwell", Key={"pk": {"S": "W#greet"}, "sk": {"S": "current"}}
    )
    run(deployed.client.start(greet, "bob"))
    deployed.deliver("run.fifo")
    assert run(deployed.aws.store.get_definition("greet")) is None


def test_a_turn_counts_although_publishing_fails_and_the_next_one_publishes(
    deployed: Deployed, greet: Any
) -> None:
    handle = run(deployed.client.start(greet, "ann"))
    left = deployed.fault(deployed.aws.table.client, "GetItem", "denied")
    assert deployed.deliver("run.fifo") == []
    assert left == []
    assert deployed.header(handle.id).status is RunStatus.COMPLETED
    assert run(deployed.aws.store.get_definition("greet")) is None
    run(deployed.client.start(greet, "bob"))
    deployed.deliver("run.fifo")
    assert run(deployed.aws.store.get_definition("greet")) is not None


def test_publishing_is_left_to_the_next_turn_when_time_is_short(
    deployed: Deployed, greet: Any
) -> None:
    run(deployed.client.start(greet, "ann"))
    deployed.deliver("run.fifo", left=15_000)
    assert run(deployed.aws.store.get_definition("greet")) is None


def test_a_cancel_reaches_a_waiting_run(deployed: Deployed) -> None:
    @workflow
    async def ask() -> str:
        return str(await hook("answer"))

    handle = run(deployed.client.start(ask))
    deployed.deliver("run.fifo")
    deployed.send("run.fifo", CancelRun(run_id=handle.id, request_id="q", reason="enough"))
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.CANCELLED


def test_an_event_that_is_no_batch_fails_the_function(deployed: Deployed) -> None:
    with pytest.raises(ValueError, match="Records"):
        deployed.worker.handle({"detail": {}}, LambdaContext())


@pytest.fixture
def retiring() -> Iterator[tuple[Deployed, list[int]]]:
    left: list[int] = []
    with open_deployment(leave=left.append) as opened:
        yield opened, left


def test_a_def_workflow_that_waits_leaves_no_thread_behind(
    retiring: tuple[Deployed, list[int]],
) -> None:
    deployed, left = retiring

    @workflow
    def patient() -> str:
        sleep("1h")
        return "done"

    handle = run(deployed.client.start(patient))
    assert deployed.deliver("run.fifo") == []
    assert deployed.header(handle.id).status is RunStatus.SUSPENDED
    assert left == []


def _stubborn(release: threading.Event) -> Workflow[[], str]:
    """A workflow whose thread does not end before it is released."""

    @workflow
    def stubborn() -> str:
        try:
            sleep("1h")
        finally:
            release.wait()
        return "done"

    return stubborn


def test_a_process_whose_def_workflow_does_not_end_is_given_up_after_its_message_is_deleted(
    retiring: tuple[Deployed, list[int]],
) -> None:
    deployed, left = retiring
    release = threading.Event()
    stubborn = _stubborn(release)
    handle = run(deployed.client.start(stubborn))
    try:
        event = deployed.event("run.fifo")
        assert deployed.worker.handle(event, LambdaContext()) == {"batchItemFailures": []}
        assert left == [1]
        assert deployed.held("run.fifo") == []
        assert deployed.header(handle.id).status is RunStatus.SUSPENDED
    finally:
        release.set()


def test_a_process_lives_on_when_its_message_cannot_be_deleted(
    retiring: tuple[Deployed, list[int]],
) -> None:
    deployed, left = retiring
    release = threading.Event()
    stubborn = _stubborn(release)
    run(deployed.client.start(stubborn))
    try:
        event = deployed.event("run.fifo")
        deployed.fault(deployed.aws.clients.sqs, "DeleteMessage", "denied")
        assert deployed.worker.handle(event, LambdaContext()) == {"batchItemFailures": []}
        assert left == []
        assert len(deployed.held("run.fifo")) == 1
    finally:
        release.set()


def test_a_row_that_cannot_be_read_fails_nobodys_turn_for_publishing(
    deployed: Deployed, greet: Any, caplog: pytest.LogCaptureFixture
) -> None:
    definition = greet.definition
    deployed.aws.table.put(
        {"pk": {"S": f"W#{definition.name}"}, "sk": {"S": "current"}, "name": {"S": "spoilt"}}
    )
    handle = run(deployed.client.start(greet, "you"))
    assert deployed.deliver("run.fifo", 1) == []
    assert deployed.header(handle.id).status is RunStatus.COMPLETED
    assert "cannot be published" in caplog.text


def test_publishing_ends_before_its_function_does(
    deployed: Deployed, greet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("stepwell.adapters.aws.handlers.worker._TIME_TO_PUBLISH", 1)
    monkeypatch.setattr(type(deployed.aws.store), "get_definition", never)
    run(deployed.client.start(greet, "you"))
    assert deployed.deliver("run.fifo", 1, left=2) == []
    monkeypatch.undo()
    run(deployed.client.start(greet, "you"))
    deployed.deliver("run.fifo", 1)
    assert len(run(deployed.client.list_definitions()).items) >= 1
