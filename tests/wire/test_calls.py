"""Each method of each port through each fault: what is asked and answered, and what stands then."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.engine.ports import TransientError
from tests.contract.given import run
from tests.wire.calls import CALLS, READS, STREAM_READS, Call, plain
from tests.wire.faults import (
    ALTERED,
    CUT,
    CUT_LATE,
    DENIED,
    EMPTY_200,
    EMPTY_502,
    FAILED,
    HALF_JSON,
    HELD,
    HTML_200,
    HTML_502,
    LOST,
    MISANNOUNCED,
    RESET,
    SLOW_DOWN,
    THROTTLED,
    UNHEARD,
    Fault,
)
from tests.wire.wire import Wire

#: Faults that pass, by what they say of whether the work was done.
PASSING = (THROTTLED, SLOW_DOWN, FAILED, RESET, LOST, HELD, CUT, HTML_502, EMPTY_502)
#: Some of them, where nothing is done that could be done or not.
OF_READS = (THROTTLED, RESET, HELD, CUT, HTML_502)
#: Replies of a success that AWS did not send.
UNREADABLE = (HTML_200, HALF_JSON)
#: What botocore does not repeat: the body of an object is read after it has said that all is well.
NOT_REPEATED = {("blobs.get", "cut")}
#: Where there is nothing to tell, and an empty reply is taken for what it looks like.
SILENT = ("give_back", "timers.cancel")
_READS = (*READS, *STREAM_READS)
_numbers = itertools.count(1)


def cases() -> Iterator[tuple[Call, Fault]]:
    for call in CALLS:
        yield from ((call, fault) for fault in (OF_READS if call in _READS else PASSING))
        if call.service == "dynamodb":
            yield call, ALTERED
            yield call, CUT_LATE
        if call.service != "s3":
            yield from ((call, fault) for fault in UNREADABLE)
        if call.service != "s3" and call.name not in SILENT:
            yield call, EMPTY_200
        if call.service in ("dynamodb", "sqs") and call.name not in SILENT:
            yield call, MISANNOUNCED


CASES = list(cases())


class Twins:
    """A call without faults, and more of it with them. Each has a run of its own."""

    def __init__(self, wire: Wire, call: Call) -> None:
        self.wire, self.call = wire, call
        known = wire.known.get(call.name)
        if known is None:
            known = wire.known[call.name] = self._free()
        self.answer, self.requests, self.effects = known

    def _free(self) -> tuple[str, int, str]:
        name = self.given()
        answer = self.made(name)
        return answer, len(self.attempts()), self.call.effects(self.wire, name)

    def given(self) -> str:
        """A new run, with all that the call needs. All names are of one length."""
        name = f"run{next(_numbers):06}"
        run(self.call.given(self.wire, name))
        self.wire.forget()
        return name

    def made(self, name: str) -> str:
        """The answer to the call."""
        return plain(run(self.call.make(self.wire, name)), name)

    def numbers(self) -> list[int]:
        """Which of its requests is to fail: each, or some of the many equal ones of a list."""
        return sorted({*range(1, min(self.requests, 4) + 1), self.requests})

    def attempts(self) -> list[int]:
        """How many attempts each request of the last call took."""
        return [*Counter(asked.request for asked in self.wire.door.seen).values()]


def _repeated(call: Call, fault: Fault) -> bool:
    return (call.name, fault.name) not in NOT_REPEATED


@pytest.mark.parametrize(("call", "fault"), CASES, ids=str)
def test_a_fault_that_passes_is_passed_over(wire: Wire, call: Call, fault: Fault) -> None:
    twins = Twins(wire, call)
    for request in twins.numbers():
        name = twins.given()
        with wire.faulty(call.service, fault, request=request) as plan:
            if _repeated(call, fault):
                assert twins.made(name) == twins.answer
            else:
                with pytest.raises(TransientError):
                    twins.made(name)
        assert plan.happened == 1
        assert max(twins.attempts()) == (2 if _repeated(call, fault) else 1)
        assert twins.made(name) == twins.answer
        assert call.effects(wire, name) == twins.effects


@pytest.mark.parametrize(("call", "fault"), CASES, ids=str)
def test_a_fault_that_stays_is_transient_and_leaves_nothing_by_halves(
    wire: Wire, call: Call, fault: Fault
) -> None:
    twins = Twins(wire, call)
    for request in twins.numbers():
        name = twins.given()
        with (
            wire.faulty(call.service, fault, request=request, times=ATTEMPTS) as plan,
            pytest.raises(TransientError, match="AWS"),
        ):
            twins.made(name)
        attempts = ATTEMPTS if _repeated(call, fault) else 1
        assert plan.happened == attempts
        assert twins.attempts() == [1] * (request - 1) + [attempts]
        check_pauses(wire.slept, attempts - 1)
        assert twins.made(name) == twins.answer
        assert call.effects(wire, name) == twins.effects


def check_pauses(slept: list[float], number: int) -> None:
    """There are so many pauses, each random and at most twice as long as the longest before."""
    assert len(slept) == number
    assert all(0 <= pause <= 2**n for n, pause in enumerate(slept)), slept
    assert len(set(slept)) == number, "pauses that are not random keep those who wait together"


@pytest.mark.parametrize("fault", [DENIED, UNHEARD], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_what_stays_refused_is_asked_once_and_told_as_it_is(
    wire: Wire, call: Call, fault: Fault
) -> None:
    twins = Twins(wire, call)
    for request in twins.numbers():
        name = twins.given()
        with (
            wire.faulty(call.service, fault, request=request, times=ATTEMPTS),
            pytest.raises(ClientError, match=fault.name.partition(" ")[2]),
        ):
            twins.made(name)
        assert twins.attempts() == [1] * request
        assert wire.slept == []
        assert twins.made(name) == twins.answer
        assert call.effects(wire, name) == twins.effects
