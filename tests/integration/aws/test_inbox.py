"""The inbox: messages from other systems, and timers that SQS kept back."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import hook, workflow
from stepwell.core.messages import HookDecided, TimerDue, Wake
from stepwell.core.records import RunStatus
from stepwell.core.tokens import Keyring
from tests.contract.given import START, run
from tests.integration.aws.deployment import MAX_RECEIVES, Deployed, LambdaContext


@pytest.fixture
def order() -> Any:
    @workflow(version="3")
    async def order(number: int, urgent: bool = False) -> str:
        return f"{number} {urgent}"

    return order


@pytest.fixture
def ask() -> Any:
    @workflow
    async def ask() -> int:
        return int(await hook("answer", payload_schema=int, timeout="1h"))

    return ask


def asked(deployed: Deployed, ask: Any) -> tuple[str, str]:
    """A run that waits for an answer, and the token."""
    handle = run(deployed.client.start(ask))
    deployed.pump()
    (waiting,) = run(deployed.client.list_hooks()).items
    return handle.id, waiting.token


def refused(deployed: Deployed) -> tuple[str, str, str]:
    """Code, reason and body of the one dead letter."""
    deployed.deliver("inbox")
    assert deployed.held("inbox") == []
    (record,) = deployed.event("inbox-dead")["Records"]
    attributes = record["messageAttributes"]
    code, reason = attributes["code"]["stringValue"], attributes["reason"]["stringValue"]
    return code, reason, record["body"]


def test_a_start_message_starts_a_run(deployed: Deployed, order: Any) -> None:
    run(deployed.client.publish([order.definition]))
    message = {"type": "start", "workflow": "order", "input": {"number": 7}, "tags": ["shop"]}
    deployed.send("inbox", message)
    deployed.deliver("inbox")
    deployed.pump()
    (header,) = run(deployed.client.list_runs()).items
    assert (header.status, header.result) == (RunStatus.COMPLETED, '"7 False"')
    assert (header.tags, header.version) == (("shop",), "3")


def test_a_start_message_that_comes_twice_starts_one_run(deployed: Deployed, order: Any) -> None:
    deployed.send("inbox", {"type": "start", "workflow": "order", "input": {"number": 7}})
    event = deployed.event("inbox")
    for _ in range(2):
        assert deployed.inbox.handle(event, LambdaContext()) == {"batchItemFailures": []}
    deployed.pump()
    (header,) = run(deployed.client.list_runs()).items
    assert header.idempotency_key == f"sqs-{event['Records'][0]['messageId']}"


def test_two_start_messages_with_one_key_start_one_run(deployed: Deployed, order: Any) -> None:
    message = {"type": "start", "workflow": "order", "input": {"number": 7}, "idempotency_key": "k"}
    deployed.send("inbox", message)
    deployed.send("inbox", message)
    deployed.deliver("inbox")
    deployed.pump()
    assert len(run(deployed.client.list_runs()).items) == 1


def test_an_answer_resumes_a_run(deployed: Deployed, ask: Any) -> None:
    run_id, token = asked(deployed, ask)
    answer = {"type": "resume_hook", "token": token, "payload": 42, "actor": "ann"}
    deployed.send("inbox", answer)
    deployed.send("inbox", answer)  # twice, as a sender does that is not sure
    deployed.deliver("inbox")
    deployed.pump()
    assert deployed.header(run_id).result == "42"
    assert deployed.held("inbox-dead") == []


def test_an_entry_that_comes_twice_is_one_entry(deployed: Deployed, ask: Any) -> None:
    run_id, _ = asked(deployed, ask)
    deployed.send("inbox", {"type": "put_inbox", "run_id": run_id, "key": "a", "value": [1]})
    deployed.deliver("inbox")
    named = {"type": "put_inbox", "run_id": run_id, "key": "b", "entry_id": "one", "actor": "ann"}
    deployed.send("inbox", named)
    deployed.send("inbox", named)
    deployed.send("inbox", {"type": "resume", "run_id": run_id})
    deployed.deliver("inbox")
    deployed.pump()
    entries = run(deployed.client.list_inbox(run_id))
    found = sorted(entries, key=lambda each: each.key)  # each message has a sender of its own
    assert [(each.key, each.value, each.actor) for each in found] == [
        ("a", [1], None),
        ("b", None, "ann"),
    ]
    assert all(each.event for each in entries)
    assert deployed.held("inbox-dead") == []


def test_a_cancel_message_cancels_a_run(deployed: Deployed, ask: Any) -> None:
    run_id, _ = asked(deployed, ask)
    deployed.send("inbox", {"type": "cancel", "run_id": run_id, "reason": "enough"})
    deployed.deliver("inbox")
    deployed.pump()
    assert deployed.header(run_id).status is RunStatus.CANCELLED


@pytest.mark.parametrize(
    "body",
    [
        " ",
        "no json",
        "null",
        "[]",
        "{}",
        '{"type": "fork"}',
        '{"type": "start"}',
        '{"type": "start", "workflow": 7}',
        '{"type": "start", "workflow": "order", "input": [1]}',
        '{"type": "start", "workflow": "order", "extra": 1}',
        '{"type": "resume_hook", "payload": 1}',
        '{"type": "cancel", "run_id": null}',
        # Decided by a turn, from rows: nobody outside may say so.
        Wake(run_id="r", cause="c").model_dump_json(),
        HookDecided(
            run_id="r", hook_id="h", decision_id="d", payload="1", decided_at=1
        ).model_dump_json(),
    ],
)
def test_what_is_no_message_goes_to_the_dead_letters_with_the_reason(
    deployed: Deployed, body: str
) -> None:
    deployed.send("inbox", body)
    code, reason, kept = refused(deployed)
    assert (code, kept) == ("InvalidMessage", body)
    assert reason


def test_the_reason_names_the_field(deployed: Deployed) -> None:
    deployed.send("inbox", {"type": "start", "workflow": "order", "colour": "red"})
    _, reason, _ = refused(deployed)
    assert reason == "start.colour: extra_forbidden"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"type": "start", "workflow": "unknown"}, "WorkflowNotFound"),
        ({"type": "start", "workflow": "order", "input": {"number": "x"}}, "InputRejected"),
        ({"type": "start", "workflow": "order"}, "InputRejected"),
        ({"type": "start", "workflow": "order", "idempotency_key": ""}, "DefinitionError"),
        ({"type": "start", "workflow": "order", "tags": ["x"] * 51}, "UsageError"),
        ({"type": "resume_hook", "token": "k1.YQ.YQ.forged"}, "InvalidToken"),
        ({"type": "resume_hook", "token": ""}, "InvalidToken"),
        ({"type": "cancel", "run_id": "unknown"}, "RunNotFound"),
        ({"type": "put_inbox", "run_id": "unknown", "key": "a"}, "RunNotFound"),
        ({"type": "put_inbox", "run_id": "unknown", "key": ""}, "DefinitionError"),
        ({"type": "resume", "run_id": "unknown"}, "RunNotFound"),
        ({"type": "cancel", "run_id": "unknown", "reason": "x" * 1001}, "UsageError"),
    ],
)
def test_what_cannot_be_done_goes_to_the_dead_letters_with_the_reason(
    deployed: Deployed, order: Any, message: dict[str, Any], code: str
) -> None:
    run(deployed.client.publish([order.definition]))
    deployed.send("inbox", message)
    assert refused(deployed)[0] == code


def test_an_answer_that_does_not_fit_is_refused_and_the_hook_stays_open(
    deployed: Deployed, ask: Any
) -> None:
    run_id, token = asked(deployed, ask)
    deployed.send("inbox", {"type": "resume_hook", "token": token, "payload": "many"})
    assert refused(deployed)[0] == "PayloadRejected"
    assert deployed.header(run_id).status is RunStatus.SUSPENDED
    assert len(run(deployed.client.list_hooks()).items) == 1


def test_an_answer_after_another_one_is_refused(deployed: Deployed, ask: Any) -> None:
    run_id, token = asked(deployed, ask)
    run(deployed.client.resume_hook(token, 1))
    deployed.send("inbox", {"type": "resume_hook", "token": token, "payload": 2})
    assert refused(deployed)[0] == "HookAlreadyDecided"
    deployed.pump()
    assert deployed.header(run_id).result == "1"


def test_an_answer_after_the_deadline_is_refused(deployed: Deployed, ask: Any) -> None:
    _, token = asked(deployed, ask)
    deployed.clock.advance(3_600_000)
    deployed.send("inbox", {"type": "resume_hook", "token": token, "payload": 2})
    assert refused(deployed)[0] == "HookExpired"


def test_a_key_with_another_input_is_refused(deployed: Deployed, order: Any) -> None:
    start = {"type": "start", "workflow": "order", "idempotency_key": "k"}
    deployed.send("inbox", {**start, "input": {"number": 1}})
    deployed.deliver("inbox")
    deployed.send("inbox", {**start, "input": {"number": 2}})
    assert refused(deployed)[0] == "IdempotencyConflict"


def test_a_body_as_large_as_sqs_takes_is_refused_without_attributes(deployed: Deployed) -> None:
    body = "x" * (1024 * 1024)
    deployed.send("inbox", body)
    assert deployed.deliver("inbox") == []
    (record,) = deployed.event("inbox-dead")["Records"]
    assert record["body"] == body
    assert record["messageAttributes"] == {}


def test_a_refused_message_stays_while_the_dead_letters_cannot_be_reached(
    deployed: Deployed,
) -> None:
    deployed.send("inbox", "no json")
    deployed.fault(deployed.aws.clients.sqs, "SendMessage", "denied")
    assert len(deployed.deliver("inbox")) == 1
    assert deployed.held("inbox-dead") == []
    deployed.due_now("inbox")
    assert deployed.deliver("inbox") == []
    assert len(deployed.held("inbox-dead")) == 1


def test_what_fails_in_passing_comes_again_and_others_do_not_wait_for_it(
    deployed: Deployed, order: Any
) -> None:
    for number in (1, 2):
        deployed.send("inbox", {"type": "start", "workflow": "order", "input": {"number": number}})
    deployed.fault(deployed.aws.clients.sqs, "SendMessage", "denied")
    assert len(deployed.deliver("inbox")) == 1
    deployed.due_now("inbox")
    assert deployed.deliver("inbox") == []
    deployed.pump()
    results = {header.result for header in run(deployed.client.list_runs()).items}
    assert results == {'"1 False"', '"2 False"'}


def test_a_message_that_always_fails_in_passing_becomes_a_dead_letter(
    deployed: Deployed, order: Any
) -> None:
    deployed.send("inbox", {"type": "start", "workflow": "order", "input": {"number": 1}})
    deployed.fault(deployed.aws.clients.sqs, "SendMessage", *["denied"] * MAX_RECEIVES)
    for _ in range(MAX_RECEIVES + 1):
        deployed.due_now("inbox")
        deployed.deliver("inbox")
    assert len(deployed.held("inbox-dead")) == 1


def test_a_timer_is_handed_on_when_it_is_due_and_never_before(deployed: Deployed) -> None:
    due = deployed.clock.now() + 1_500_500
    timer = TimerDue(run_id="r", wait_id="w", arm=1, due=due)
    deployed.send("inbox", timer)
    deployed.deliver("inbox")
    assert deployed.hidden_for("inbox") == [900]
    deployed.clock.advance(900_000)
    deployed.due_now("inbox")
    deployed.deliver("inbox")
    assert deployed.hidden_for("inbox") == [601]
    assert deployed.held("run.fifo") == []
    deployed.clock.advance(600_500)
    deployed.due_now("inbox")
    deployed.deliver("inbox")
    assert deployed.bodies("run.fifo") == [timer.model_dump()]
    assert deployed.held("inbox") == []


def test_a_token_of_a_new_key_is_known_at_once(deployed: Deployed, ask: Any) -> None:
    run_id, _ = asked(deployed, ask)
    deployed.session.create_client("secretsmanager").put_secret_value(
        SecretId="keys",
        SecretString='{"k1": "a-secret-of-enough-letters", "k2": "another-of-enough-letters"}',
    )
    deployed.clock.advance(61_000)
    (row,) = run(deployed.aws.store.list_hooks()).items
    ring = Keyring({"k2": b"another-of-enough-letters"})
    token = ring.token("k2", row.run_id, row.hook_id)
    deployed.send("inbox", {"type": "resume_hook", "token": token, "payload": 5})
    deployed.deliver("inbox")
    deployed.pump()
    assert deployed.header(run_id).result == "5"


@pytest.mark.parametrize("due", [START + 1_801_000, 9_000_000_000_000_000])
def test_a_timer_that_would_go_round_for_ever_is_refused(deployed: Deployed, due: int) -> None:
    deployed.send("inbox", TimerDue(run_id="r", wait_id="w", arm=1, due=due))
    deployed.deliver("inbox")
    assert deployed.held("inbox") == []
    assert refused(deployed)[0] == "NotSoDue"
