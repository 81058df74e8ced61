"""The sweeper: dead letters, and waits whose timers got lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stepwell import hook, sleep, step, workflow
from stepwell.core.messages import (
    CancelRun,
    HookDecided,
    Message,
    StepAttempt,
    TimerDue,
    Wake,
    dump_message,
)
from stepwell.core.records import UNHEARD, Attention, HookStatus, RunStatus
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed, LambdaContext

_TICK = {"source": "aws.events", "detail-type": "Scheduled Event"}


@pytest.fixture
def ask() -> Any:
    @workflow
    async def ask() -> str:
        return str(await hook("answer", timeout="1h", on_timeout="return"))

    return ask


@pytest.fixture
def nap() -> Any:
    @workflow
    async def nap() -> str:
        await sleep("10m")
        return "rested"

    return nap


def waiting(deployed: Deployed, workflow: Any) -> str:
    handle = run(deployed.client.start(workflow))
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.SUSPENDED
    return handle.id


def stuck(deployed: Deployed, run_id: str) -> Attention:
    note = deployed.header(run_id).attention
    assert note is not None
    assert note.kind == "STUCK"
    return note


def test_a_dead_message_marks_its_run_stuck_and_is_kept_on_the_mark(
    deployed: Deployed, ask: Any
) -> None:
    run_id = waiting(deployed, ask)
    message = CancelRun(run_id=run_id, request_id="q", reason="enough")
    deployed.send("run-dead.fifo", message)
    assert deployed.deliver("run-dead.fifo") == []
    note = stuck(deployed, run_id)
    assert note.message == dump_message(message)
    assert "cancel" in note.reason
    assert deployed.header(run_id).cancel_requested
    (row,) = deployed.kept()
    assert (row["run_id"], row["queue"]) == (run_id, "run-dead.fifo")
    assert row["body"] == dump_message(message)


def test_waking_a_stuck_run_sends_the_kept_message_again(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    deployed.send("run-dead.fifo", CancelRun(run_id=run_id, request_id="q"))
    deployed.deliver("run-dead.fifo")
    run(deployed.client.wake(run_id))
    deployed.pump()
    assert deployed.header(run_id).status is RunStatus.CANCELLED
    assert deployed.header(run_id).attention is None


def test_a_dead_start_becomes_a_run_that_is_stuck_and_runs_when_woken(deployed: Deployed) -> None:
    @workflow
    async def hello() -> str:
        return "hello"

    deployed.fault(deployed.aws.table.client, "PutItem", "denied")
    with pytest.raises(Exception, match="AccessDenied"):
        run(deployed.client.start(hello))
    (body,) = deployed.bodies("run.fifo")
    deployed.event("run.fifo")
    deployed.send("run-dead.fifo", json.dumps(body))
    deployed.deliver("run-dead.fifo")
    assert stuck(deployed, body["run_id"])
    run(deployed.client.wake(body["run_id"]))
    deployed.due_now("run.fifo")
    deployed.pump()
    assert deployed.header(body["run_id"]).result == '"hello"'


def test_a_dead_answer_is_decided_before_anybody_else_can(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    (row,) = run(deployed.aws.store.list_hooks()).items
    answer = HookDecided(
        run_id=run_id, hook_id=row.hook_id, decision_id="d", payload='"yes"', decided_at=1
    )
    deployed.send("run-dead.fifo", answer)
    deployed.deliver("run-dead.fifo")
    decided = run(deployed.aws.store.get_hook(run_id, row.hook_id))
    assert decided is not None
    assert (decided.status, decided.payload) == (HookStatus.RECEIVED, '"yes"')
    deployed.send("run.fifo", Wake(run_id=run_id, cause="mended"))
    deployed.pump()
    assert deployed.header(run_id).result == '"yes"'


@pytest.mark.parametrize("body", ["no json", '{"type": "of_a_newer_version", "cause": "c"}'])
def test_a_body_that_nobody_can_read_is_kept_and_its_group_says_whose_it_is(
    deployed: Deployed, ask: Any, body: str
) -> None:
    run_id = waiting(deployed, ask)
    deployed.aws.clients.sqs.send_message(
        QueueUrl=deployed.url("run-dead.fifo"), MessageBody=body, MessageGroupId=run_id
    )
    deployed.deliver("run-dead.fifo")
    assert stuck(deployed, run_id).message == body
    assert [row["body"] for row in deployed.kept()] == [body]
    run(deployed.client.wake(run_id))
    deployed.pump()
    assert deployed.header(run_id).attention is None


def test_a_dead_message_of_an_unknown_run_is_kept(deployed: Deployed) -> None:
    deployed.send("run-dead.fifo", Wake(run_id="gone", cause="c"))
    assert deployed.deliver("run-dead.fifo") == []
    assert [row["run_id"] for row in deployed.kept()] == ["gone"]


def test_a_run_that_has_ended_is_not_marked(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    run(deployed.client.cancel(run_id))
    deployed.pump()
    deployed.send("run-dead.fifo", Wake(run_id=run_id, cause="c"))
    deployed.deliver("run-dead.fifo")
    assert deployed.header(run_id).attention is None
    assert len(deployed.kept()) == 1


def test_a_blocked_run_stays_blocked_and_carries_the_message(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    header = deployed.header(run_id)
    note = Attention(kind="BLOCKED", reason="no such workflow", since=1)
    run(deployed.aws.store.update_header(replace(header, attention=note)))
    message = CancelRun(run_id=run_id, request_id="q")
    deployed.send("run-dead.fifo", message)
    deployed.deliver("run-dead.fifo")
    assert deployed.header(run_id).attention == replace(note, message=dump_message(message))


def test_a_second_delivery_of_a_dead_letter_changes_nothing(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    deployed.send("run-dead.fifo", CancelRun(run_id=run_id, request_id="q"))
    event = deployed.event("run-dead.fifo")
    for _ in range(2):
        assert deployed.sweeper.handle(event, LambdaContext()) == {"batchItemFailures": []}
    assert stuck(deployed, run_id)
    assert len(deployed.kept()) == 1


@pytest.mark.parametrize("operation", ["PutItem", "GetItem", "UpdateItem"])
def test_a_dead_letter_comes_again_while_the_table_cannot_be_reached(
    deployed: Deployed, ask: Any, operation: str
) -> None:
    run_id = waiting(deployed, ask)
    deployed.send("run-dead.fifo", Wake(run_id=run_id, cause="c"))
    left = deployed.fault(deployed.aws.table.client, operation, "denied")
    assert len(deployed.deliver("run-dead.fifo")) == 1
    assert left == []
    deployed.due_now("run-dead.fifo")
    assert deployed.deliver("run-dead.fifo") == []
    assert stuck(deployed, run_id)


def test_a_body_too_long_for_a_mark_is_kept_in_its_row(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    body = "x" * 300_000
    deployed.aws.clients.sqs.send_message(
        QueueUrl=deployed.url("run-dead.fifo"), MessageBody=body, MessageGroupId=run_id
    )
    deployed.deliver("run-dead.fifo")
    assert stuck(deployed, run_id).message is None
    (row,) = deployed.kept()
    assert row["body"].startswith("@")
    assert len(deployed.aws.clients.s3.list_objects_v2(Bucket="values")["Contents"]) == 1


def test_a_dead_attempt_marks_its_run_stuck(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    attempt = StepAttempt(run_id=run_id, step="s:1", name="s", order=2)
    deployed.send("step-dead", attempt)
    deployed.deliver("step-dead")
    assert stuck(deployed, run_id).message == dump_message(attempt)
    run(deployed.client.wake(run_id))
    deployed.pump()
    assert deployed.header(run_id).attention is None


@pytest.mark.parametrize("queue", ["schedule-dead", "inbox-dead"])
def test_a_timer_that_was_not_delivered_is_sent_to_its_run(
    deployed: Deployed, nap: Any, queue: str
) -> None:
    run_id = waiting(deployed, nap)
    (timer,) = deployed.bodies("inbox")
    deployed.clock.advance(600_000)
    deployed.send(queue, json.dumps(timer))
    deployed.deliver(queue)
    deployed.pump()
    assert deployed.header(run_id).result == '"rested"'
    assert deployed.kept() == []


def test_a_timer_stays_a_dead_letter_while_it_cannot_be_sent(deployed: Deployed) -> None:
    deployed.send("schedule-dead", TimerDue(run_id="r", wait_id="w", arm=1, due=1))
    deployed.fault(deployed.aws.clients.sqs, "SendMessage", "denied")
    assert len(deployed.deliver("schedule-dead")) == 1
    deployed.due_now("schedule-dead")
    assert deployed.deliver("schedule-dead") == []
    assert len(deployed.held("run.fifo")) == 1


@pytest.mark.parametrize(
    "forged",
    [
        HookDecided(run_id="R", hook_id="answer:1", decision_id="d", payload="1", decided_at=1),
        CancelRun(run_id="R", request_id="q"),
        Wake(run_id="R", cause="c"),
        TimerDue(run_id="R", wait_id="answer:1", arm=1, due=9_000_000_000_000),
    ],
)
def test_what_the_inbox_refused_does_not_come_in_through_its_dead_letters(
    deployed: Deployed, ask: Any, forged: Message
) -> None:
    run_id = waiting(deployed, ask)
    deployed.send("inbox-dead", forged.model_copy(update={"run_id": run_id}))
    deployed.deliver("inbox-dead")
    deployed.pump()
    header = deployed.header(run_id)
    assert (header.status, header.attention) == (RunStatus.SUSPENDED, None)
    assert not header.cancel_requested
    assert len(deployed.kept()) == 1


def test_a_refused_message_is_kept_with_the_reason(deployed: Deployed) -> None:
    deployed.send("inbox", {"type": "fork"})
    deployed.deliver("inbox")
    deployed.deliver("inbox-dead")
    (row,) = deployed.kept()
    assert row["reason"] == "body: union_tag_invalid"
    assert json.loads(row["body"]) == {"type": "fork"}
    assert int(row["expires_at"]) == deployed.clock.now() // 1000 + 90 * 24 * 3600


def test_a_token_is_not_kept(deployed: Deployed, ask: Any) -> None:
    waiting(deployed, ask)
    (hook,) = run(deployed.client.list_hooks()).items
    deployed.send("inbox-dead", {"type": "resume_hook", "token": hook.token, "payload": 1})
    deployed.deliver("inbox-dead")
    (row,) = deployed.kept()
    token, _, proof = hook.token.rpartition(".")
    assert json.loads(row["body"]) == {"type": "resume_hook", "token": token, "payload": 1}
    assert proof not in str(deployed.kept())


def test_nothing_is_woken_when_nothing_is_overdue(deployed: Deployed, ask: Any, nap: Any) -> None:
    waiting(deployed, ask)
    waiting(deployed, nap)
    assert deployed.sweeper.handle(_TICK, LambdaContext()) == {"woken": 0, "oldest_overdue_ms": 0}
    deployed.clock.advance(600_000 + 120_000)
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] == 0
    assert deployed.held("run.fifo") == []


def test_a_run_whose_timer_got_lost_is_woken(deployed: Deployed, nap: Any) -> None:
    run_id = waiting(deployed, nap)
    deployed.clock.advance(900_000)
    found = deployed.sweeper.handle(_TICK, LambdaContext())
    assert found == {"woken": 1, "oldest_overdue_ms": 300_000}
    deployed.pump()
    assert deployed.header(run_id).result == '"rested"'
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] == 0


def test_an_attempt_that_got_lost_is_dispatched_again(deployed: Deployed) -> None:
    @step(dispatch="worker")
    async def far() -> int:
        return 7

    @workflow
    async def goes_far() -> int:
        return await far()

    handle = run(deployed.client.start(goes_far))
    deployed.deliver("run.fifo", 1)
    deployed.aws.clients.sqs.purge_queue(QueueUrl=deployed.url("step"))
    deployed.clock.advance(UNHEARD + 120_000)
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] == 0
    deployed.clock.advance(1)
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] == 1
    deployed.pump()
    assert deployed.header(handle.id).result == "7"


def test_a_hook_whose_deadline_got_lost_ends_its_run(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    deployed.clock.advance(3_600_000 + 180_000)
    found = deployed.sweeper.handle(_TICK, LambdaContext())
    assert found == {"woken": 1, "oldest_overdue_ms": 180_000}
    deployed.pump()
    assert deployed.header(run_id).status is RunStatus.COMPLETED


def test_a_stuck_run_is_not_woken_for_its_hook(deployed: Deployed, ask: Any) -> None:
    run_id = waiting(deployed, ask)
    note = Attention(kind="STUCK", reason="poison", since=1)
    run(deployed.aws.store.update_header(replace(deployed.header(run_id), attention=note)))
    deployed.clock.advance(4_000_000)
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] == 0


def test_without_time_the_sweep_is_left_to_the_next_one(deployed: Deployed, nap: Any) -> None:
    waiting(deployed, nap)
    deployed.clock.advance(900_000)
    assert deployed.sweeper.handle(_TICK, LambdaContext(left=5_000))["woken"] == 0
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] == 1


@pytest.mark.breaks_laws("the table lets nobody read hooks any more")
def test_hooks_that_are_in_time_are_not_read(deployed: Deployed, ask: Any) -> None:
    waiting(deployed, ask)
    left = deployed.fault(deployed.aws.table.client, "BatchGetItem", "denied")
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] == 0
    assert left == ["denied"]


@pytest.mark.parametrize("kind", ["ask", "nap"])
def test_the_longer_a_wait_is_overdue_the_more_seldom_its_run_is_woken(
    deployed: Deployed, ask: Any, nap: Any, kind: str
) -> None:
    waiting(deployed, ask if kind == "ask" else nap)
    deployed.clock.advance((3_600_000 if kind == "ask" else 600_000) + 180_000)
    woken = []
    for minute in range(3, 66):
        found = deployed.sweeper.handle(_TICK, LambdaContext())
        assert found["oldest_overdue_ms"] == minute * 60_000
        woken += [minute] * found["woken"]
        deployed.clock.advance(60_000)
    assert woken == [3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]


@pytest.mark.breaks_laws("a row is spoilt")
def test_a_spoilt_header_keeps_nobody_else_from_being_woken(
    deployed: Deployed, ask: Any, nap: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for each in (ask, nap):
        spoilt = waiting(deployed, each)
        deployed.aws.table.client.update_item(
            TableName="stepwell",
            Key={"pk": {"S": f"R#{spoilt}"}, "sk": {"S": "A"}},
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": {"S": "of-a-later-version"}},
        )
        waiting(deployed, each)
    deployed.clock.advance(3_600_000 + 180_000)
    assert deployed.sweeper.handle(_TICK, LambdaContext())["woken"] >= 1
    assert "of-a-later-version" not in caplog.text


def test_a_sweep_that_fails_fails_its_function(deployed: Deployed) -> None:
    deployed.fault(deployed.aws.table.client, "Query", "denied")
    with pytest.raises(Exception, match="AccessDenied"):
        deployed.sweeper.handle(_TICK, LambdaContext())
