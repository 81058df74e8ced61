"""The stack as its users meet it: over HTTP, by messages, by the clock and the command line."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest

from examples.briefing.script import audit, briefing
from examples.outside import Outside
from stepwell.adapters.aws.deployment import open_stack
from stepwell.client import Client
from tests.e2e.emulator import REGION, until
from tests.e2e.stack import NAME, Stack

ORDER = {"number": "A-1", "customer": "C-17", "amount": "48.50", "complaint": "arrived broken"}


@pytest.fixture(scope="module", autouse=True)
def _garbage(stack: Stack) -> None:
    """Something in the run queue that nobody can read; it takes a while to become a dead letter."""
    stack.emulator.client("sqs").send_message(
        QueueUrl=stack.outputs["RunQueueUrl"],
        MessageBody='{"type":"from the future"}',
        MessageGroupId="garbage",
    )


def token_of(stack: Stack, world: Outside, kind: str, run_id: str) -> str:
    """The token that a workflow told the outside."""
    return until(
        f"the token of {run_id} is told",
        lambda: next((t for k, t in world.effects(kind).items() if k.startswith(run_id)), None),
    ).rpartition(" ")[2]


def test_a_refund_is_started_answered_by_its_link_and_paid(stack: Stack, world: Outside) -> None:
    run_id = stack.start("refund", order=ORDER)
    wait = stack.waits(run_id)
    assert (wait["kind"], wait["name"]) == ("hook", "approval")
    [schedule] = [each for each in stack.schedules() if run_id in each["Target"]["Input"]]
    assert schedule["ScheduleExpression"].startswith("at(")
    token = token_of(stack, world, "review asked", run_id)
    link = f"/hooks/{token}"
    assert stack.http("GET", link).json["status"] == "PENDING"
    assert stack.http("POST", link, {"approved": "perhaps"}).status == 422
    yes = {"approved": True, "reviewer": "the reviewer"}
    assert stack.http("POST", link, yes).status == 200
    assert stack.ended(run_id)["result"]["status"] == "paid"
    assert stack.http("POST", link, yes).status == 200
    assert stack.http("POST", link, {**yes, "approved": False}).status == 409
    assert [each for each in stack.schedules() if run_id in each["Target"]["Input"]] == []


def test_an_agent_asks_twice_and_is_answered_once_each(stack: Stack, world: Outside) -> None:
    run_id = stack.start("assist", wish="a flight to Oslo")
    for call, text in (("call-3", "aisle"), ("call-4", "yes")):
        wait = until(
            f"the question of {call} is open",
            lambda call=call: (
                found if (found := stack.waits(run_id))["id"].endswith(f"@{call}") else None
            ),
        )
        token = until(
            f"the token of {call} is told",
            lambda call=call: world.effects("question").get(f"{run_id}/converse:1/{call}"),
        ).rpartition(" ")[2]
        assert wait["kind"] == "hook"
        assert stack.http("POST", f"/hooks/{token}", {"text": text}).status == 200
    said = [each.get("text") for each in stack.ended(run_id)["result"]["transcript"]]
    assert "aisle" in said


def test_a_deadline_passes_by_a_real_schedule(stack: Stack) -> None:
    run_id = stack.start("ask", question="ready?", timeout="20m")
    until_time = stack.waits(run_id)["until"]
    [schedule] = [each for each in stack.schedules() if run_id in each["Target"]["Input"]]
    at = datetime.fromisoformat(f"{schedule['ScheduleExpression'][3:-1]}+00:00")
    late = at - datetime.fromisoformat(until_time)
    assert 0 <= late.total_seconds() < 1
    stack.emulator.put_scheduler_ahead(20 * 60)
    try:
        assert stack.ended(run_id)["result"] == "nobody answered"
    finally:
        stack.emulator.put_scheduler_ahead(None)
    assert [each for each in stack.schedules() if each["Name"] == schedule["Name"]] == []


def test_a_short_deadline_passes_by_the_inbox(stack: Stack) -> None:
    run_id = stack.start("ask", question="ready?", timeout="2s")
    assert stack.ended(run_id)["result"] == "nobody answered"
    assert stack.schedules() == []


def test_a_failing_step_is_tried_again(stack: Stack) -> None:
    run_id = stack.start("stumble", times=1)
    assert stack.ended(run_id)["result"] == "done at attempt 2"


def test_a_dispatched_step_is_done_by_its_own_function(stack: Stack, world: Outside) -> None:
    run_id = stack.start("hand_over", item="stone")
    assert stack.ended(run_id)["result"] == "crushed stone"
    assert list(world.effects("crush")) == [f"{run_id}/crush:1"]


def test_a_large_value_goes_through_the_bucket(stack: Stack) -> None:
    run_id = stack.start("carry", size=500_000)
    assert stack.ended(run_id)["result"] == 500_000
    bucket = stack.emulator.client("s3").list_objects_v2(Bucket=stack.outputs["Bucket"])
    assert bucket["KeyCount"] == 1


def _published(stack: Stack) -> list[str]:
    reply = stack.http("GET", "/v1/workflows", credentials=stack.caller)
    return [each["name"] for each in reply.json["workflows"]]


def test_signals_become_the_result_of_a_stream_run(stack: Stack, world: Outside) -> None:
    stack.ended(stack.start("count_up", steps=1))
    until("a turn has published it", lambda: "tally" in _published(stack) or None)
    run_id = stack.start("tally", first=1)
    signal = {"type": "signal", "stream": "tally"}
    stack.send({**signal, "signal_type": "added", "payload": {"n": 2}, "signal_id": "two"})
    stack.send({**signal, "signal_type": "added", "payload": {"n": 3}, "delay": "2s"})
    added = "sub-"  # what subscriptions do outside is done under their names
    until(
        "all are added up",
        lambda: len([key for key in world.effects("note") if key.startswith(added)]) == 3 or None,
    )
    stack.send({**signal, "signal_type": "closed", "delay": "20m"})
    [schedule] = until("the last one is a schedule", stack.schedules)
    assert schedule["Target"]["Arn"] == stack.outputs["SignalQueueArn"]
    stack.emulator.put_scheduler_ahead(20 * 60)
    try:
        assert stack.ended(run_id)["result"]["step_results"] == {"adds_up": 6}
    finally:
        stack.emulator.put_scheduler_ahead(None)


def test_messages_start_answer_and_cancel(stack: Stack, world: Outside) -> None:
    key = "by-message"
    stack.send(
        {
            "type": "start",
            "workflow": "refund",
            "input": {"order": ORDER},
            "idempotency_key": key,
            "tags": [key],
        }
    )
    run_id = until("the run is there", lambda: _tagged(stack, key))
    token = token_of(stack, world, "review asked", run_id)
    answer = {"approved": False, "reviewer": "the reviewer"}
    stack.send({"type": "resume_hook", "token": token, "payload": answer})
    assert stack.ended(run_id)["result"]["status"] == "declined"
    other = stack.start("nap", duration="1h")
    stack.waits(other)
    stack.send({"type": "cancel", "run_id": other, "reason": "not wanted"})
    assert stack.ended(other)["status"] == "CANCELLED"


def _tagged(stack: Stack, tag: str) -> str | None:
    runs = stack.http("GET", "/v1/runs", credentials=stack.caller).json["runs"]
    return next((each["run_id"] for each in runs if tag in each["tags"]), None)


def test_a_briefing_gets_its_input_by_every_door(stack: Stack) -> None:
    run_id = stack.start("briefing", topics=["tea", "coffee"])
    assert stack.waits(run_id)["reason"] == "waiting on sign-off of 2 lines"
    path = f"/v1/runs/{run_id}/inbox"
    remark = {"key": "remark", "value": "soon"}
    assert stack.http("POST", path, remark).status == 403, "nobody may who is not known"
    assert stack.http("POST", path, remark, credentials=stack.caller).status == 202
    stack.send({"type": "put_inbox", "run_id": run_id, "key": "remark", "value": "sooner"})
    until("both are recorded", lambda: _recorded(stack, run_id) == ["soon", "sooner"])
    assert stack.waits(run_id)["kind"] == "input"
    put = stack.cli("runs", "inbox", "put", run_id, "approved", "--value", '"Ada"')
    assert put.returncode == 0, put.stderr
    wait = until(
        "its question is open",
        lambda: wait if (wait := stack.waits(run_id))["kind"] == "hook" else None,
    )
    assert wait["reason"] == "Which title shall it have?"
    listed = stack.cli("hooks", "list", "--run", run_id, "--json")
    [hook] = json.loads(listed.stdout)["hooks"]
    answered = stack.cli("hooks", "resume", hook["token"], "--payload", '"On drinks"')
    assert answered.returncode == 0, answered.stderr
    ended = stack.ended(run_id)["result"]
    assert ended == "On drinks: tea: 3 letters; coffee: 6 letters (signed off by Ada)"
    assert stack.http("POST", path, remark, credentials=stack.caller).status == 409


def _recorded(stack: Stack, run_id: str) -> list[Any]:
    path = f"/v1/runs/{run_id}/inbox"
    entries = stack.http("GET", path, credentials=stack.caller).json["entries"]
    return [each["value"] for each in entries if each["event"] is not None]


def test_guards_that_a_client_gives_are_asked_on_the_stack(stack: Stack) -> None:
    with open_stack(NAME, region=REGION) as aws:
        client = Client(aws.ports, aws.refresh()).with_options(prepare_step=audit)
        run_id = asyncio.run(client.start(briefing, ["a secret"])).id
    ended = stack.ended(run_id)
    assert ended["status"] == "FAILED"
    assert "nobody's business" in json.dumps(ended["error"])


def test_a_run_is_cancelled_over_http(stack: Stack) -> None:
    run_id = stack.start("nap", duration="1h")
    stack.waits(run_id)
    path = f"/v1/runs/{run_id}/cancel"
    assert stack.http("POST", path, {"reason": "no"}, credentials=stack.caller).status == 202
    assert stack.ended(run_id)["status"] == "CANCELLED"
    assert stack.events(run_id)[-1]["type"] == "RunCancelled"


def test_what_the_inbox_refuses_is_kept_with_its_reason(stack: Stack) -> None:
    stack.send({"type": "explode"})
    kept = until("the message is kept", lambda: _kept(stack, '{"type": "explode"}'))
    assert kept["reason"]["S"]


def _kept(stack: Stack, body: str) -> dict[str, Any] | None:
    letters = stack.items("L#dead-letters")
    return next((each for each in letters if each["body"]["S"] == body), None)


def test_the_command_line_works_on_the_stack(stack: Stack) -> None:
    run_id = stack.start("ask", question="ready?", timeout="1h")
    stack.waits(run_id)
    shown = stack.cli("runs", "show", run_id, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["status"] == "SUSPENDED"
    listed = stack.cli("hooks", "list", "--run", run_id, "--json")
    assert listed.returncode == 0, listed.stderr
    [hook] = json.loads(listed.stdout)["hooks"]
    answered = stack.cli("hooks", "resume", hook["token"], "--payload", '"yes"')
    assert answered.returncode == 0, answered.stderr
    assert stack.ended(run_id)["result"] == "ready? yes"
    assert stack.cli("runs", "show", "nothing").returncode != 0


def test_the_sweeper_runs_and_finds_nothing_overdue(stack: Stack) -> None:
    reply = stack.emulator.client("lambda").invoke(
        FunctionName=stack.resources["SweeperFunction"], Payload=b"{}"
    )
    assert "FunctionError" not in reply
    assert json.loads(reply["Payload"].read())["woken"] == 0


def test_a_message_that_nobody_can_read_becomes_a_dead_letter(stack: Stack) -> None:
    kept = until(
        "the garbage is kept", lambda: _kept(stack, '{"type":"from the future"}'), within=180
    )
    assert kept["run_id"]["S"] == "garbage"
    attributes = stack.emulator.client("sqs").get_queue_attributes(
        QueueUrl=stack.outputs["RunQueueUrl"], AttributeNames=["All"]
    )["Attributes"]
    assert attributes["ApproximateNumberOfMessages"] == "0"
