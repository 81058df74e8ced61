"""The signals that wait for a subscription, read page by page from real rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.wiring import open_ports
from stepwell.core.signals import SentSignal, SignalBatch, StreamKey
from stepwell.core.subscription import Subscription
from stepwell.engine.ports import TransientError
from stepwell.engine.stream_ports import Streams
from stepwell.engine.waiting_signals import WaitingSignals

KEY = StreamKey("s", "r")
START = Subscription(stream="s", stream_run="r", step="st", begun=True)


@pytest.fixture
def streams() -> Iterator[Streams]:
    local = open_ports(":memory:", clock=SkippingClock(0), ids=SeededIds("waiting"))
    yield local.ports.streams
    local.close()


def fill(streams: Streams, kinds: str, size: int) -> None:
    """One signal for each letter, in batches of a size."""

    async def put() -> None:
        for at in range(0, len(kinds), size):
            signals = tuple(
                SentSignal(signal_id=f"sig{n}", type=kind, payload="{}", published_at=0)
                for n, kind in enumerate(kinds[at : at + size], at + 1)
            )
            await streams.append(KEY, SignalBatch(first=at + 1, batch_id=str(at), signals=signals))

    asyncio.run(put())


def settle(known: Subscription, sequence: int, held_from: int | None) -> Subscription:
    cursor, ahead = known.settled(sequence, held_from)
    return replace(known, cursor=cursor, ahead=ahead)


def taken(streams: Streams, known: Subscription, types: str) -> list[int]:
    """The numbers of all that it takes in one turn, each settled before the next is asked for."""

    async def take() -> list[int]:
        waiting, state, numbers = WaitingSignals(streams, KEY, types), known, []
        while (found := await waiting.next(state)).signal is not None:
            numbers.append(found.signal.sequence)
            state = settle(state, found.signal.sequence, found.held_from)
        return numbers

    return asyncio.run(take())


@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("count", [1, 9, 10, 11, 99, 100, 101, 199, 200, 201, 320])
def test_all_are_found_whatever_the_pages_and_batches(
    streams: Streams, count: int, size: int
) -> None:
    fill(streams, "a" * count, size)
    assert taken(streams, START, "a") == list(range(1, count + 1))


@pytest.mark.parametrize("gap", [99, 100, 101, 200, 250])
def test_pages_of_nothing_but_others_are_passed_over(streams: Streams, gap: int) -> None:
    fill(streams, "a" + "x" * gap + "a", 10)
    assert taken(streams, START, "a") == [1, gap + 2]


@pytest.mark.parametrize("gap", [99, 100, 101, 200, 250])
def test_what_resumes_is_found_behind_pages_of_held_ones(streams: Streams, gap: int) -> None:
    fill(streams, "a" * gap + "b", 10)
    known = replace(START, status="suspended", resume=("b",))
    assert taken(streams, known, "ab") == [gap + 1]


def test_those_that_were_held_come_in_order_once_it_goes_on(streams: Streams) -> None:
    fill(streams, "a" * 150 + "b" + "a", 10)
    suspended = replace(START, status="suspended", resume=("b",))

    async def take() -> list[int]:
        waiting, numbers = WaitingSignals(streams, KEY, "ab"), []
        found = await waiting.next(suspended)
        assert found.signal is not None
        state = settle(suspended, found.signal.sequence, found.held_from)
        state = replace(state, status="waiting", resume=None)
        while (found := await waiting.next(state)).signal is not None:
            numbers.append(found.signal.sequence)
            state = settle(state, found.signal.sequence, found.held_from)
        return numbers

    assert asyncio.run(take()) == [*range(1, 151), 152]


def test_what_was_looked_at_and_is_held_stays_so(streams: Streams) -> None:
    fill(streams, "a" * 30, 10)
    known = replace(START, status="suspended", resume=("b",), held=30)
    found = asyncio.run(WaitingSignals(streams, KEY, "ab").next(known))
    assert (found.signal, found.held, found.seen) == (None, True, 30)


def test_a_signal_is_read_by_its_number(streams: Streams) -> None:
    fill(streams, "a" * 25, 10)
    waiting = WaitingSignals(streams, KEY, "a")
    assert asyncio.run(waiting.at(17)).sequence == 17
    with pytest.raises(TransientError, match="signal 26 of stream run s/r"):
        asyncio.run(waiting.at(26))
