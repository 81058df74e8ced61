"""What other systems put on the inbox queue: done once, or refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.core.records import RunStatus
from tests.deployed.driving import header, history, open_hooks, result, start
from tests.deployed.pump import Deployment


def runs(aws: Deployment) -> list[dict[str, Any]]:
    """All runs."""
    found: list[dict[str, Any]] = aws.http("GET", "/v1/runs").json["runs"]
    return found


@pytest.mark.parametrize("doubled", [False, True])
def test_a_start_message_starts_one_run(doubled: bool, aws: Deployment) -> None:
    aws.doubled = doubled
    aws.send({"type": "start", "workflow": "count_up", "input": {"steps": 2}, "tags": ["sqs"]})
    aws.settle()
    [run] = runs(aws)
    assert (run["status"], run["tags"]) == ("COMPLETED", ["sqs"])
    assert result(aws, run["run_id"]) == 2


def test_two_start_messages_with_one_key_start_one_run(aws: Deployment) -> None:
    for _ in range(2):
        aws.send(
            {"type": "start", "workflow": "count_up", "input": {"steps": 1}, "idempotency_key": "k"}
        )
    aws.settle()
    assert len(runs(aws)) == 1


@pytest.mark.parametrize("doubled", [False, True])
def test_a_message_answers_a_hook(doubled: bool, aws: Deployment) -> None:
    aws.doubled = doubled
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.settle()
    [hook] = open_hooks(aws, run_id)
    aws.send({"type": "resume_hook", "token": hook.token, "payload": "yes", "actor": "sns"})
    aws.settle()
    assert result(aws, run_id) == "ready? yes"
    assert aws.waiting("InboxDeadLetters") == []


@pytest.mark.parametrize("doubled", [False, True])
def test_a_message_cancels_a_run(doubled: bool, aws: Deployment) -> None:
    aws.doubled = doubled
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.settle()
    aws.send({"type": "cancel", "run_id": run_id, "reason": "not wanted"})
    aws.settle()
    assert header(aws, run_id).status is RunStatus.CANCELLED
    assert aws.schedules() == []


@pytest.mark.parametrize("doubled", [False, True])
def test_a_message_is_input_for_a_run_that_waits_for_it(doubled: bool, aws: Deployment) -> None:
    aws.doubled = doubled
    run_id = start(aws, "briefing", topics=["tea"])
    aws.settle()
    sent = {"type": "put_inbox", "run_id": run_id, "key": "approved", "value": "Ada"}
    aws.send(sent | {"entry_id": "one", "actor": "sns"})
    aws.settle()
    [entry] = aws.http("GET", f"/v1/runs/{run_id}/inbox").json["entries"]
    assert (entry["value"], entry["actor"]) == ("Ada", "sns")
    [hook] = open_hooks(aws, run_id)
    assert hook.hook_id == "ask:1"
    aws.send({"type": "resume_hook", "token": hook.token, "payload": "On tea"})
    aws.settle()
    assert result(aws, run_id) == "On tea: tea: 3 letters (signed off by Ada)"


def test_input_that_says_something_else_under_a_known_id_is_kept_as_refused(
    aws: Deployment,
) -> None:
    run_id = start(aws, "briefing", topics=["tea"])
    aws.settle()
    sent = {"type": "put_inbox", "run_id": run_id, "key": "remark", "entry_id": "one"}
    for value in ("soon", "late", "soon"):
        aws.send(sent | {"value": value})
        aws.settle()
    [kept] = [row for row in aws.items() if "message_id" in row]
    assert json.loads(kept["body"]["S"])["value"] == "late"
    [entry] = aws.http("GET", f"/v1/runs/{run_id}/inbox").json["entries"]
    assert entry["value"] == "soon"


BAD = {
    "no JSON": "{",
    "no object": "[]",
    "no type": {"workflow": "ask"},
    "unknown type": {"type": "explode"},
    "extra field": {"type": "cancel", "run_id": "r", "force": True},
    "unknown workflow": {"type": "start", "workflow": "nothing", "input": {}},
    "wrong input": {"type": "start", "workflow": "count_up", "input": {"steps": "many"}},
    "forged token": {"type": "resume_hook", "token": "k1.YQ.YQ.YQ", "payload": 1},
    "no token": {"type": "resume_hook", "token": "", "payload": 1},
    "unknown run": {"type": "cancel", "run_id": "nothing"},
    "a message of the engine": {"type": "continue", "run_id": "r", "cause": "c"},
    "a decision of the engine": {
        "type": "hook_decided",
        "run_id": "r",
        "hook_id": "h",
        "decision_id": "d",
        "payload": "1",
        "decided_at": 1,
    },
    "a foreign start": {"type": "start", "run_id": "r", "workflow": "ask", "version": "1"},
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_done_is_kept_with_its_reason(kind: str, aws: Deployment) -> None:
    start(aws, "count_up", steps=1)  # the worker's first turn publishes what there is
    aws.settle()
    before = [row for row in aws.items() if row["pk"]["S"].startswith("R#")]
    aws.send(BAD[kind])
    aws.settle()
    [kept] = [row for row in aws.items() if "message_id" in row]
    assert kept["reason"]["S"]
    assert kept["queue"]["S"] == "InboxDeadLetters"
    if "token" not in kind:
        assert kept["body"]["S"] == (
            BAD[kind] if isinstance(BAD[kind], str) else json.dumps(BAD[kind])
        )
    assert [row for row in aws.items() if row["pk"]["S"].startswith("R#")] == before
    assert aws.raised == []


def test_a_bad_message_does_not_hold_up_the_others_of_its_batch(aws: Deployment) -> None:
    aws.send("{")
    aws.send({"type": "start", "workflow": "count_up", "input": {"steps": 1}})
    aws.send({"type": "explode"})
    aws.settle()
    assert [run["status"] for run in runs(aws)] == ["COMPLETED"]


def test_an_answer_by_message_after_the_deadline_is_refused(aws: Deployment) -> None:
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.run_until_idle()
    [hook] = open_hooks(aws, run_id)
    aws.advance(2 * 3600)
    events = history(aws, run_id)
    aws.send({"type": "resume_hook", "token": hook.token, "payload": "yes"})
    aws.settle()
    [kept] = [row for row in aws.items() if "message_id" in row]
    assert hook.token.rpartition(".")[2] not in json.dumps(kept)
    assert history(aws, run_id) == events
