"""Bad input over HTTP: each with a clear problem, and nothing changed by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.core.records import RunStatus
from tests.deployed.driving import answer, header, open_hooks, result, start
from tests.deployed.pump import Deployment

REFUSED: dict[str, tuple[str, str, Any, int]] = {
    "unknown address": ("GET", "/v2/runs", None, 404),
    "unknown workflow": ("POST", "/v1/workflows/nothing/runs", {"input": {}}, 404),
    "no JSON": ("POST", "/v1/workflows/ask/runs", "{", 400),
    "no object": ("POST", "/v1/workflows/ask/runs", [], 422),
    "unknown field": ("POST", "/v1/workflows/ask/runs", {"inputs": {}}, 422),
    "missing argument": ("POST", "/v1/workflows/ask/runs", {"input": {"question": "q"}}, 422),
    "wrong argument": ("POST", "/v1/workflows/count_up/runs", {"input": {"steps": "x"}}, 422),
    "unknown argument": (
        "POST",
        "/v1/workflows/nap/runs",
        {"input": {"duration": "1s", "x": 1}},
        422,
    ),
    "too large": ("POST", "/v1/workflows/nap/runs", {"input": {"duration": "x" * 1_100_000}}, 413),
    "unknown run": ("GET", "/v1/runs/nothing", None, 404),
    "events of an unknown run": ("GET", "/v1/runs/nothing/events", None, 404),
    "cancel of an unknown run": ("POST", "/v1/runs/nothing/cancel", {}, 404),
    "bad cursor": ("GET", "/v1/runs?cursor=nonsense", None, 400),
    "bad limit": ("GET", "/v1/runs?limit=0", None, 422),
    "bad status": ("GET", "/v1/runs?status=NEW", None, 422),
    "wrong method": ("PATCH", "/v1/runs/nothing", None, 405),
    "look with a bad token": ("GET", "/hooks/nonsense", None, 404),
    "answer with a bad token": ("POST", "/hooks/k1.YQ.YQ.YQ", {}, 404),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_input_is_a_clear_problem_and_changes_nothing(kind: str, aws: Deployment) -> None:
    start(aws, "count_up", steps=1)
    aws.settle()
    before = aws.items()
    method, path, body, status = REFUSED[kind]
    reply = aws.http(method, path, body)
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["detail"]
    assert aws.items() == before
    assert aws.waiting() == []


def test_an_answer_is_decided_once_and_its_repeat_is_welcome(aws: Deployment) -> None:
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.settle()
    [hook] = open_hooks(aws, run_id)
    assert aws.http("GET", f"/hooks/{hook.token}").status == 200
    assert aws.http("HEAD", f"/hooks/{hook.token}").status == 200
    assert open_hooks(aws, run_id) == (hook,)
    first, again, other = (answer(aws, hook, text) for text in ("yes", "yes", "no"))
    assert (first.status, again.status, other.status) == (200, 200, 409)
    assert again.json == first.json
    aws.settle()
    assert result(aws, run_id) == "ready? yes"
    assert answer(aws, hook, "yes").status == 200


def test_an_answer_that_does_not_fit_leaves_the_question_open(aws: Deployment) -> None:
    run_id = start(
        aws,
        "refund",
        order={"number": "1", "customer": "c", "amount": "1.50", "complaint": "broken"},
    )
    aws.settle()
    [hook] = open_hooks(aws, run_id)
    reply = answer(aws, hook, {"approved": "perhaps"})
    assert (reply.status, reply.json["code"]) == (422, "payload_rejected")
    assert open_hooks(aws, run_id) == (hook,)


def test_a_key_used_with_another_input_is_refused(aws: Deployment) -> None:
    start(aws, "count_up", "key", steps=1)
    reply = aws.http(
        "POST",
        "/v1/workflows/count_up/runs",
        {"input": {"steps": 2}},
        {"Idempotency-Key": "key"},
    )
    assert (reply.status, reply.json["code"]) == (422, "idempotency_conflict")


def test_a_value_too_large_for_the_table_goes_through_the_bucket(aws: Deployment) -> None:
    run_id = start(aws, "carry", size=500_000)
    aws.settle()
    assert result(aws, run_id) == 500_000
    assert aws.aws.clients.s3.list_objects_v2(Bucket="values")["KeyCount"] == 1


def test_a_failure_is_told_as_it_was(aws: Deployment) -> None:
    run_id = start(aws, "fail", reason="no such customer")
    aws.settle()
    run = aws.http("GET", f"/v1/runs/{run_id}").json
    assert run["status"] == "FAILED"
    assert "no such customer" in json.dumps(run["error"])
    assert header(aws, run_id).error is not None


def test_published_workflows_are_listed_with_their_schemas(aws: Deployment) -> None:
    start(aws, "count_up", steps=1)
    aws.settle()
    names = {each["name"] for each in aws.http("GET", "/v1/workflows").json["workflows"]}
    assert {"refund", "assist", "ask", "nap"} <= names
    detail = aws.http("GET", "/v1/workflows/count_up").json
    assert detail["input_schema"]["properties"]["steps"]["type"] == "integer"


def test_what_people_say_and_tokens_are_never_logged(aws: Deployment) -> None:
    run_id = start(aws, "ask", "one", question="SECRET question", timeout="1h")
    aws.settle()
    [hook] = open_hooks(aws, run_id)
    aws.http("GET", f"/hooks/{hook.token}")
    aws.http("POST", f"/hooks/{hook.token}x", '"SECRET answer"')
    aws.http("POST", f"/hooks/{hook.token}", "SECRET nonsense")
    aws.http("POST", "/v1/workflows/ask/runs", {"input": {"question": "SECRET", "SECRET": 1}})
    aws.send({"type": "resume_hook", "token": hook.token, "payload": "SECRET", "SECRET": 1})
    aws.send({"type": "start", "workflow": "ask", "input": {"SECRET": "SECRET"}})
    aws.send("SECRET")
    aws.queues.put("RunQueue", '{"type":"SECRET"}', run_id)
    answer(aws, hook, "SECRET answer")
    aws.settle()
    aws.advance(60)
    assert header(aws, run_id).status is RunStatus.COMPLETED
    log = aws.log.read_text()
    assert run_id in log
    assert "SECRET" not in log
    assert hook.token.rpartition(".")[2] not in log
