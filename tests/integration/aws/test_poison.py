"""Runs that cannot go on, and runs that grow too large, on the functions of a deployment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import hook, step, workflow
from stepwell.adapters.aws.environment import WorkerEnvironment
from stepwell.adapters.aws.handlers.telemetry import metrics
from stepwell.adapters.aws.handlers.worker import Worker
from stepwell.adapters.aws.wiring import open_aws
from stepwell.core.records import RunHeader, RunStatus
from stepwell.engine.settings import Limits
from stepwell.errors import UsageError
from tests.contract.given import run
from tests.integration.aws.deployment import (
    MAX_RECEIVES,
    Deployed,
    LambdaContext,
    OfDeployments,
    variables,
)

Mend = Callable[[], object]


def a_row_of_a_later_version(deployed: Deployed, run_id: str) -> Mend:
    client = deployed.aws.table.client
    found = deployed.aws.table.query(f"R#{run_id}")
    (item,) = [each for each in found if each["sk"]["S"].startswith("E#")]
    broken = {**item, "events": {"S": '[{"type":"OfALaterVersion","at":1}]'}}
    client.put_item(TableName="stepwell", Item=broken)
    return lambda: client.put_item(TableName="stepwell", Item=item)


def a_value_that_is_gone(deployed: Deployed, run_id: str) -> Mend:
    s3: Any = deployed.aws.clients.s3
    (key,) = [each["Key"] for each in s3.list_objects_v2(Bucket="values")["Contents"]]
    body = s3.get_object(Bucket="values", Key=key)["Body"].read()
    s3.delete_object(Bucket="values", Key=key)
    return lambda: s3.put_object(Bucket="values", Key=key, Body=body)


@pytest.fixture
def asks() -> Any:
    @workflow
    async def asks(text: str) -> str:
        return f"{len(text)} {await hook('question')}"

    return asks


def live(deployed: Deployed) -> None:
    """Let every message have all its receives, and every dead letter be taken."""
    for _ in range(3 * MAX_RECEIVES):
        deployed.due_now("run.fifo")
        for _ in range(4):
            deployed.deliver("run.fifo", 1)
    deployed.deliver("run-dead.fifo")


@pytest.mark.parametrize("by", ["wake", "redrive"])
@pytest.mark.parametrize("poison", [a_row_of_a_later_version, a_value_that_is_gone])
def test_a_poisoned_run_is_stuck_and_kept_and_goes_on_once_it_is_mended(
    deployed: Deployed, asks: Any, poison: Callable[[Deployed, str], Mend], by: str
) -> None:
    @workflow
    async def healthy() -> str:
        return "done"

    handle = run(deployed.client.start(asks, "x" * 20_000))
    deployed.deliver("run.fifo")
    mend = poison(deployed, handle.id)
    (waiting,) = run(deployed.client.list_hooks()).items
    run(deployed.client.resume_hook(waiting.token, "promised"))
    (answer,) = [message.body for message in deployed.held("run.fifo")]
    other = run(deployed.client.start(healthy))
    live(deployed)
    assert deployed.header(other.id).status is RunStatus.COMPLETED
    header = deployed.header(handle.id)
    assert header.status is RunStatus.SUSPENDED
    assert header.attention is not None
    assert (header.attention.kind, header.attention.message) == ("STUCK", answer)
    assert [row["run_id"] for row in deployed.kept()] == [handle.id]
    mend()
    if by == "wake":
        run(deployed.client.wake(handle.id))
    else:
        deployed.send("run.fifo", answer)
    deployed.clock.advance(600_000)
    live(deployed)
    header = deployed.header(handle.id)
    assert (header.status, header.result) == (RunStatus.COMPLETED, '"20000 promised"')
    assert header.attention is None


def test_code_that_goes_on_for_ever_is_seen_as_stuck_while_it_does(deployed: Deployed) -> None:
    begun, seen = threading.Event(), threading.Event()

    @workflow
    async def spins() -> str:
        begun.set()
        while not seen.is_set():
            pass
        return "ended after all"

    handle = run(deployed.client.start(spins))
    # What was received before was killed by the end of the function's time.
    for _ in range(MAX_RECEIVES - 1):
        assert len(deployed.event("run.fifo")["Records"]) == 1
        assert deployed.header(handle.id).attention is None
        deployed.due_now("run.fifo")
    event = deployed.event("run.fifo")
    invoked = threading.Thread(target=deployed.worker.handle, args=(event, LambdaContext()))
    invoked.start()
    try:
        assert begun.wait(30)
        header: RunHeader = deployed.header(handle.id)
    finally:
        seen.set()
        invoked.join()
    assert header.attention is not None
    assert header.attention.kind == "STUCK"
    for what in (f"{MAX_RECEIVES} times", "for ever without an await", "memory or time", "wake"):
        assert what in header.attention.reason
    assert deployed.header(handle.id).attention is None
    assert deployed.header(handle.id).result == '"ended after all"'


def test_a_step_that_kills_each_process_leaves_its_run_stuck_with_its_attempts_counted(
    deployed: Deployed,
) -> None:
    killed: list[int] = []

    @step
    async def fatal() -> int:
        killed.append(1)
        if len(killed) <= MAX_RECEIVES:
            deployed.fault(deployed.aws.table.client, "PutItem", "denied")
            # The outcome cannot be written: as far as rows tell, the process died here.
        return len(killed)

    @workflow
    async def flow() -> int:
        return await fatal()

    handle = run(deployed.client.start(flow))
    for _ in range(MAX_RECEIVES):
        deployed.due_now("run.fifo")
        deployed.deliver("run.fifo")
    deployed.due_now("run.fifo")
    deployed.deliver("run.fifo")
    deployed.deliver("run-dead.fifo")
    header = deployed.header(handle.id)
    assert header.attention is not None
    assert header.attention.kind == "STUCK"
    assert len(killed) == MAX_RECEIVES
    deployed.clock.advance(600_000)
    run(deployed.client.wake(handle.id))
    live(deployed)
    assert deployed.header(handle.id).result == str(MAX_RECEIVES + 1)
    events = [each.event for each in run(handle.history())]
    attempts = [each.attempt for each in events if each.type == "StepStarted"]
    # The first delivery is not counted; the one of the message that was on the mark is.
    assert attempts == list(range(1, MAX_RECEIVES + 1))


def _limited(deployed: Deployed, **limits: int) -> Worker:
    environment = deployed.environment.model_copy(update=limits)
    aws = open_aws(environment, deployed.session, clock=deployed.clock)
    dead = environment.signal_dead_letter_url
    return Worker(aws, MAX_RECEIVES, dead, registry=OfDeployments())


@pytest.fixture
def steps() -> Any:
    @step
    async def one() -> None: ...

    @workflow
    async def steps(number: int) -> None:
        for _ in range(number):
            await one()

    return steps


def test_a_limit_of_the_deployment_ends_a_run(deployed: Deployed, steps: Any) -> None:
    worker = _limited(deployed, step_limit=10)
    handle = run(deployed.client.start(steps, 11))
    deployed.deliver("run.fifo", handle=worker.handle)
    header = deployed.header(handle.id)
    assert header.status is RunStatus.FAILED
    assert header.error is not None
    assert header.error.type == "stepwell.errors.LimitExceeded"
    assert header.error.message.startswith("11 steps in one run, the limit is 10;")
    worker.close()


def test_a_run_near_a_limit_is_counted(deployed: Deployed, steps: Any) -> None:
    worker = _limited(deployed, step_limit=10)
    metrics.clear_metrics()
    run(deployed.client.start(steps, 7))
    deployed.deliver("run.fifo", handle=worker.handle)
    assert "RunsNearLimit" not in metrics.metric_set
    run(deployed.client.start(steps, 8))
    deployed.deliver("run.fifo", handle=worker.handle)
    assert metrics.metric_set["RunsNearLimit"]["Value"] == [1.0]
    worker.close()


def test_limits_are_read_from_the_environment(deployed: Deployed) -> None:
    assert deployed.aws.settings.limits == Limits()
    told = {
        **variables(deployed.aws.clients.sqs),
        "STEPWELL_EVENT_LIMIT": "100",
        "STEPWELL_HISTORY_LIMIT": "2000",
        "STEPWELL_STEP_LIMIT": "30",
        "STEPWELL_IDLE_HOP_LIMIT": "4",
        "STEPWELL_DEPTH_LIMIT": "5",
    }
    aws = open_aws(WorkerEnvironment.from_env(told), deployed.session)
    assert aws.settings.limits == Limits(events=100, bytes=2_000, steps=30, idle_hops=4, depth=5)
    aws.close()


@pytest.mark.parametrize("name", ["EVENT", "HISTORY", "STEP", "IDLE_HOP", "DEPTH"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_limit_that_is_none_is_refused_by_the_name_of_its_variable(
    deployed: Deployed, name: str, value: str
) -> None:
    told = {**variables(deployed.aws.clients.sqs), f"STEPWELL_{name}_LIMIT": value}
    with pytest.raises(UsageError, match=f"STEPWELL_{name}_LIMIT"):
        WorkerEnvironment.from_env(told)
