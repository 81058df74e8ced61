"""What signals cost on AWS, request by request."""

from __future__ import annotations

import pytest

from stepwell.core.messages import SignalSent
from tests.contract.given import run, sent_signal, subscription
from tests.contract.messaging import REGION
from tests.contract.meter import Meter
from tests.integration.aws.deployment import Deployed


@pytest.fixture
def meter(deployed: Deployed) -> Meter:
    """Two subscriptions, and nine signals that were numbered before; what follows is counted."""
    for step in ("answer", "archive"):
        run(deployed.aws.ports.streams.subscribe(subscription(step=step)))
    made = Meter(deployed.aws.table, REGION, deployed.aws.clients.sqs)
    send(deployed, *(sent_signal(f"before{n}") for n in range(9)))
    made.reset()
    return made


def send(deployed: Deployed, *signals: SignalSent) -> None:
    run(deployed.aws.signals.send(signals))
    assert deployed.deliver("signal.fifo") == []


def ten(deployed: Deployed) -> list[SignalSent]:
    return [sent_signal(f"s{n}", payload='{"text":"' + "x" * 40 + '"}') for n in range(10)]


def test_numbering_ten_signals_costs_six_requests_to_the_table(
    deployed: Deployed, meter: Meter
) -> None:
    run(deployed.aws.signals.send(ten(deployed)))
    meter.reset()
    deployed.deliver("signal.fifo")
    assert dict(meter.requests) == {
        "GetItem": 1,  # the head
        "BatchGetItem": 1,  # which of them are known
        "PutItem": 1,  # the batch
        "BatchWriteItem": 1,  # their ids
        "UpdateItem": 1,  # the head
        "Query": 1,  # the subscriptions
        "SendMessageBatch": 1,  # a wake for each of them
    }
    # A row of ten signals of a few bytes has 2 KB; then one for each id, and the head.
    assert (meter.written, meter.read) == (2 + 10 + 1, 2)


def test_ten_signals_of_one_stream_run_are_sent_one_by_one(
    deployed: Deployed, meter: Meter
) -> None:
    run(deployed.aws.signals.send(ten(deployed)))
    assert dict(meter.requests) == {"SendMessageBatch": 10}


def test_numbering_one_signal_costs_three_units(deployed: Deployed, meter: Meter) -> None:
    run(deployed.aws.signals.send([sent_signal()]))
    meter.reset()
    deployed.deliver("signal.fifo")
    assert (meter.written, meter.read) == (3, 2)


def test_signals_that_come_again_cost_no_writes(deployed: Deployed, meter: Meter) -> None:
    for signal in ten(deployed):
        deployed.send("signal.fifo", signal)
    deployed.deliver("signal.fifo")
    for signal in ten(deployed):
        deployed.send("signal.fifo", signal.model_copy(update={"payload": "{}"}))
    meter.reset()
    deployed.deliver("signal.fifo")
    assert meter.written == 0
    assert dict(meter.requests) == {
        "GetItem": 1,
        "BatchGetItem": 1,
        "Query": 1,
        "SendMessageBatch": 1,
    }
