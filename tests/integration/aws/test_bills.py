"""What the reference runs cost on AWS, request by request; `make bench` shows the same."""

from __future__ import annotations

import pytest

from benchmarks.deployment import Bill, all_bills


@pytest.fixture(scope="module")
def bills() -> dict[str, Bill]:
    return {bill.run: bill for bill in all_bills()}


EXPECTED = [
    Bill(
        run="5 steps",
        # The header, five commits, the header at the end.
        requests={"SendMessage": 1, "PutItem": 6, "Query": 1, "UpdateItem": 1},
        written=8,
        read=1,
        messages=1,
        invocations=1,
    ),
    Bill(
        run="5 steps around a step hook",
        # In the first turn the header, three commits, the hook, its timer and the header; the
        # answer reads hook and header and decides the hook; in the second four commits, the header
        # and the timer.
        requests={
            "SendMessage": 2,
            "PutItem": 9,
            "Query": 2,
            "GetItem": 2,
            "UpdateItem": 3,
            "CreateSchedule": 1,
            "DeleteSchedule": 1,
        },
        written=15,
        read=4,
        messages=2,
        invocations=2,
    ),
    Bill(
        run="1 dispatched step",
        # Each turn and the attempt read the run. The step's row is put twice: claimed, reported.
        # While the run waits its header is in index `wanted`, so that a sweep finds it.
        requests={
            "SendMessage": 3,
            "PutItem": 5,
            "Query": 3,
            "UpdateItem": 2,
            "ChangeMessageVisibility": 1,
        },
        written=10,
        read=3,
        messages=3,
        invocations=3,
    ),
    Bill(
        run="a sleep of a day",
        # The second message is Scheduler's.
        requests={
            "SendMessage": 1,
            "PutItem": 3,
            "Query": 2,
            "UpdateItem": 2,
            "CreateSchedule": 1,
            "DeleteSchedule": 1,
        },
        written=8,
        read=2,
        messages=2,
        invocations=2,
    ),
    Bill(
        run="100 parallel steps",
        # One commit of sixteen KB.
        requests={"SendMessage": 1, "PutItem": 2, "Query": 1, "UpdateItem": 1},
        written=19,
        read=1,
        messages=1,
        invocations=1,
    ),
    Bill(
        run="a child of 5 steps",
        # Beside what the child costs: two commits and two headers of the parent, and a look at the
        # child's header; three messages.
        requests={"SendMessage": 3, "PutItem": 9, "Query": 3, "GetItem": 1, "UpdateItem": 3},
        written=14,
        read=4,
        messages=3,
        invocations=3,
    ),
    Bill(
        run="going on as a new run once",
        # Two runs; the first looks whether it was cancelled.
        requests={"SendMessage": 2, "PutItem": 4, "Query": 2, "GetItem": 1, "UpdateItem": 2},
        written=8,
        read=3,
        messages=2,
        invocations=2,
    ),
]


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda bill: bill.run)
def test_a_reference_run_costs_what_it_did(bills: dict[str, Bill], expected: Bill) -> None:
    assert bills[expected.run] == expected


def test_every_bill_is_expected(bills: dict[str, Bill]) -> None:
    assert list(bills) == [bill.run for bill in EXPECTED]
