"""What signals cost on AWS, request by request; `make bench` shows the same for more of them."""

from __future__ import annotations

from benchmarks.signals import bill_of
from benchmarks.tally import Tallied


def test_ten_signals_in_a_burst_cost_one_batch_and_one_turn() -> None:
    # Their sender looks at the header and what is published, and sends each for itself, in order.
    # Numbering reads the head, which are known and who has subscribed; it puts the batch, remembers
    # ten ids, moves the head, and wakes. The turn reads header, log and signals, commits once.
    assert bill_of(10) == Tallied(
        10,
        requests={
            "GetItem": 4,
            "SendMessageBatch": 11,
            "BatchGetItem": 1,
            "PutItem": 2,
            "BatchWriteItem": 1,
            "UpdateItem": 2,
            "Query": 4,
        },
        written=18,
        read=18,
        messages=11,
        invocations=2,
        turns=1,
    )


def test_a_signal_alone_costs_two_invocations() -> None:
    assert bill_of(1) == Tallied(
        1,
        requests={
            "GetItem": 4,
            "SendMessageBatch": 2,
            "BatchGetItem": 1,
            "PutItem": 2,
            "BatchWriteItem": 1,
            "UpdateItem": 2,
            "Query": 4,
        },
        written=5,
        read=9,
        messages=2,
        invocations=2,
        turns=1,
    )


def test_each_signal_costs_as_much_as_the_one_before() -> None:
    few, more, many = bill_of(20), bill_of(40), bill_of(400)
    assert (few.turns, more.turns, many.turns) == (2, 4, 40)
    assert more.messages - few.messages == 22
    for less, most, signals in ((few, more, 20), (more, many, 360)):
        written = (most.written - less.written) / signals
        read = (most.read - less.read) / signals
        requests = (sum(most.requests.values()) - sum(less.requests.values())) / signals
        # The id of each is a row. The log is read from its last snapshot on: that much, no more.
        assert 1.7 <= written <= 1.95
        assert 1.6 <= read <= 2.2
        assert 2.3 <= requests <= 2.5


def test_each_subscription_costs_as_much_as_the_one_before() -> None:
    few, more = bill_of(1, 5), bill_of(1, 15)
    assert (few.turns, more.turns) == (5, 15)
    assert (more.written - few.written) / 10 == 2
    assert (more.read - few.read) / 10 <= 4.2
    assert more.messages - few.messages == 10
