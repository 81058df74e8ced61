"""What AWS says went wrong: which of it may pass, and what a worker makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker

from stepwell.adapters.aws.clients import ATTEMPTS, error_code, is_transient
from stepwell.engine.ports import TransientError
from tests.contract.given import header, run, wake
from tests.wire.faults import EMPTY_400, SAID, THROTTLED, Fault, error
from tests.wire.wire import Wire

#: One request of each service.
REQUESTS = {
    "dynamodb": lambda wire: wire.store.get_header("run"),
    "sqs": lambda wire: wire.queue.send(wake()),
    "scheduler": lambda wire: wire.timers.start("run", "wait", 1, wire.clock.now() + 10**7),
    "s3": lambda wire: wire.blobs.put("hash", b"bytes"),
}


@pytest.mark.parametrize("service", REQUESTS)
@pytest.mark.parametrize(("fault", "passes", "attempts"), SAID, ids=str)
def test_what_may_pass_is_transient_and_all_else_is_told_as_it_is(
    wire: Wire, service: str, fault: Fault, passes: bool, attempts: int
) -> None:
    with (
        wire.faulty(service, fault, times=ATTEMPTS) as plan,
        pytest.raises(TransientError if passes else ClientError) as caught,
    ):
        run(REQUESTS[service](wire))
    assert plan.happened == attempts
    told = caught.value if isinstance(caught.value, ClientError) else caught.value.__cause__
    assert isinstance(told, ClientError)
    assert is_transient(told) is passes
    code = fault.name.partition(" ")[2]
    assert fault is EMPTY_400 or error_code(told) == code


@pytest.mark.parametrize(
    "kind",
    [
        "com.amazonaws.dynamodb.v20120810#ThrottlingException",
        "com.amazon.coral.availability#ThrottlingException",
        "ThrottlingException:http://internal.amazon.com/coral/com.amazon.coral.availability/",
    ],
)
def test_a_code_is_known_whatever_stands_around_it(wire: Wire, kind: str) -> None:
    with (
        wire.faulty("dynamodb", error(kind, 400), times=ATTEMPTS) as plan,
        pytest.raises(TransientError),
    ):
        run(wire.store.get_header("run"))
    assert plan.happened == ATTEMPTS


def test_a_code_of_sqs_is_known_by_its_older_name(wire: Wire) -> None:
    fault = error("AWS.SimpleQueueService.RequestThrottled", 403)
    with wire.faulty("sqs", fault, times=ATTEMPTS), pytest.raises(TransientError):
        run(wire.queue.send(wake()))


def test_all_that_botocore_repeats_may_pass(wire: Wire) -> None:
    """Else it would give up after its attempts, and we would call it final."""
    codes = {
        *ThrottledRetryableChecker._THROTTLED_ERROR_CODES,
        *TransientRetryableChecker._TRANSIENT_ERROR_CODES,
    } - {"EC2ThrottledException"}
    for service in REQUESTS:
        model = wire.client(service).meta.service_model
        for shape in model.error_shapes:
            if shape.metadata.get("retryable") is not None:
                codes.add(shape.metadata.get("error", {}).get("code") or shape.name)
    for code in sorted(codes):
        reply: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        assert is_transient(ClientError(reply, "PutItem")), code


def test_a_client_that_meets_many_failures_stops_repeating(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It protects what is overloaded. What it gives up on at once may pass all the same."""
    monkeypatch.setattr("botocore.retries.quota.RetryQuota.acquire", lambda *_: False)
    with (
        wire.faulty("dynamodb", THROTTLED, times=ATTEMPTS) as plan,
        pytest.raises(TransientError),
    ):
        run(wire.store.put_header(header("run")))
    assert plan.happened == 1
    assert wire.slept == []
