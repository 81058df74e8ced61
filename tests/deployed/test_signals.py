"""Signals through the built functions: from the inbox to the result of a stream run."""

from __future__ import annotations

from typing import Any

import pytest

from examples.outside import Outside
from stepwell.core.records import RunStatus
from tests.deployed.driving import header, now, start
from tests.deployed.front import Request
from tests.deployed.pump import Deployment
from tests.deployed.test_killed_doors import DONE, each_kill

SIGNAL: dict[str, Any] = {"type": "signal", "stream": "tally", "stream_run_id": "t1"}
#: Of the requests that a worker makes, those that are about a stream run or wake its subscriptions.
_OF_STREAMS = ("BatchGetItem", "BatchWriteItem", "SendMessageBatch")


def begin(aws: Deployment) -> str:
    """A stream run whose body has emitted a 1, and which was sent a 2 and a 3 from outside."""
    if now(aws.aws.store.get_definition("tally")) is None:
        start(aws, "count_up", steps=1)  # the worker's first turn publishes what there is
        aws.settle()
    client = aws.client.with_options(stream_run_id="t1")
    run_id = now(client.start_named("tally", {"first": 1})).id
    aws.settle()
    for n in (2, 3):
        aws.send({**SIGNAL, "signal_type": "added", "payload": {"n": n}})
    settle(aws)
    return run_id


def settle(aws: Deployment) -> None:
    """Let all come to rest, also what a killed inbox left."""
    aws.settle()
    while aws.waiting("InboxQueue"):
        aws.advance_to_next()
        aws.settle()


def close(aws: Deployment, **fields: Any) -> None:
    aws.send({**SIGNAL, "signal_type": "closed", **fields})


def check(aws: Deployment, run_id: str, world: Outside) -> None:
    """All three were added up, each told of once."""
    found = header(aws, run_id)
    assert found.status is RunStatus.COMPLETED
    assert '"adds_up":6' in str(found.result)
    assert world.requests("note") == 3
    numbered = now(aws.client.signals("tally", stream_run_id="t1"))
    assert [each.sequence for each in numbered] == [1, 2, 3, 4]


@pytest.mark.parametrize("doubled", [False, True])
def test_signals_become_the_result_of_a_stream_run(
    doubled: bool, aws: Deployment, world: Outside
) -> None:
    aws.doubled = doubled
    run_id = begin(aws)
    close(aws)
    aws.settle()
    check(aws, run_id, world)


@pytest.mark.parametrize(("delay", "seconds"), [("10m", 600), ("2h", 7_200)])
def test_a_signal_with_a_delay_comes_after_it(
    delay: str, seconds: int, aws: Deployment, world: Outside
) -> None:
    run_id = begin(aws)
    close(aws, delay=delay)
    aws.advance(seconds - 60)
    assert header(aws, run_id).status is RunStatus.SUSPENDED
    aws.advance(120)
    check(aws, run_id, world)
    assert aws.schedules() == []


@DONE
def test_a_worker_that_dies_while_it_numbers_loses_and_doubles_nothing(
    done: bool, aws: Deployment, world: Outside
) -> None:
    def scenario() -> None:
        run_id = begin(aws)
        close(aws)
        aws.settle()
        check(aws, run_id, world)

    def wanted(request: Request) -> bool:
        return request.operation in _OF_STREAMS

    assert each_kill(aws, "worker", done, scenario, wanted) >= 6


@DONE
def test_an_inbox_that_dies_sends_a_signal_all_the_same(
    done: bool, aws: Deployment, world: Outside
) -> None:
    def scenario() -> None:
        run_id = begin(aws)
        close(aws)
        settle(aws)
        check(aws, run_id, world)

    assert each_kill(aws, "inbox", done, scenario) >= 3
