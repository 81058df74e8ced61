"""Messages that nobody can handle: kept, reported on their runs, and sent again by an operator."""

from __future__ import annotations

from typing import Any

from stepwell.core.records import RunStatus
from tests.deployed.driving import header, history, now, result, start
from tests.deployed.front import Request
from tests.deployed.pump import BUCKET, Deployment, Kill


def kept(aws: Deployment) -> list[dict[str, Any]]:
    """The dead letters that the sweeper keeps."""
    return [row for row in aws.items() if "message_id" in row]


def test_garbage_in_the_run_queue_is_kept_and_marks_its_run(aws: Deployment) -> None:
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.run_until_idle()
    aws.queues.put("RunQueue", '{"type":"from the future"}', run_id)
    aws.settle()
    [letter] = kept(aws)
    assert letter["body"]["S"] == '{"type":"from the future"}'
    assert header(aws, run_id).attention is not None
    now(aws.client.wake(run_id))
    aws.settle()
    assert header(aws, run_id).status is RunStatus.SUSPENDED


def test_a_run_whose_worker_always_dies_is_stuck_and_goes_on_when_woken(aws: Deployment) -> None:
    run_id = start(aws, "count_up", steps=3)
    with aws.killing(Kill(function="worker", request=1, again=True, wanted=writes)):
        aws.settle()
    found = header(aws, run_id)
    assert found.attention is not None
    assert found.attention.kind == "STUCK"
    [letter] = kept(aws)
    assert letter["run_id"]["S"] == run_id
    now(aws.client.wake(run_id))
    aws.settle()
    assert result(aws, run_id) == 3
    assert header(aws, run_id).attention is None


def test_a_step_whose_function_always_dies_marks_its_run(aws: Deployment) -> None:
    run_id = start(aws, "hand_over", item="stone")
    with aws.killing(Kill(function="step", request=1, again=True)):
        aws.settle()
    found = header(aws, run_id)
    assert found.status is RunStatus.SUSPENDED
    assert found.attention is not None
    assert [letter["queue"]["S"] for letter in kept(aws)] == ["StepDeadLetters"]
    now(aws.client.wake(run_id))
    aws.settle()
    assert result(aws, run_id) == "crushed stone"


def test_a_run_is_listed_by_what_is_the_matter_with_it(aws: Deployment) -> None:
    run_id = start(aws, "count_up", steps=3)
    with aws.killing(Kill(function="worker", request=1, again=True, wanted=writes)):
        aws.settle()
    listed = aws.http("GET", "/v1/runs?attention=STUCK").json["runs"]
    assert [each["run_id"] for each in listed] == [run_id]


def writes(request: Request) -> bool:
    """Whether it is a write to the table."""
    return request.operation == "PutItem"


def test_what_is_wrong_with_the_deployment_fails_no_step(aws: Deployment) -> None:
    s3 = aws.aws.clients.s3
    s3.delete_bucket(Bucket=BUCKET)
    run_id = start(aws, "carry", size=500_000)
    aws.run_until_idle()
    aws.advance(5)
    assert header(aws, run_id).status is not RunStatus.FAILED
    s3.create_bucket(Bucket=BUCKET)
    aws.settle()
    assert result(aws, run_id) == 500_000
    assert "StepRetryScheduled" not in [each.event.type for each in history(aws, run_id)]
