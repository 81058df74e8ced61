"""Numbering after somebody who died at it: whatever he left, each signal has one number."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.core.messages import SignalSent
from stepwell.core.signals import SentSignal, SignalBatch, StreamHead, StreamKey
from stepwell.engine.sequencing import Sequencer

KEY = StreamKey("s", "r")


@pytest.fixture
def local() -> Iterator[LocalPorts]:
    opened = open_ports(":memory:", clock=SkippingClock(0), ids=SeededIds("sequencing"))
    yield opened
    opened.close()


def sent(name: str) -> SentSignal:
    return SentSignal(signal_id=name, type="t", payload="{}", published_at=0)


def append(local: LocalPorts, first: int, names: str) -> None:
    """A batch of one signal for each letter, of which nothing else is written."""
    signals = tuple(map(sent, names))
    batch = SignalBatch(first=first, batch_id=f"before {first}", signals=signals)
    assert asyncio.run(local.ports.streams.append(KEY, batch))


def take(local: LocalPorts, names: str) -> None:
    messages = [SignalSent.of(KEY, sent(name)) for name in names]
    asyncio.run(Sequencer(local.ports).take(messages))


def numbered(local: LocalPorts) -> list[tuple[int, str]]:
    found = asyncio.run(local.ports.streams.read(KEY, after=0, limit=1_000))
    return [(number, signal.signal_id) for number, signal in found]


@pytest.mark.parametrize("remembered", ["", "a", "b", "c", "ac", "abc"])
@pytest.mark.parametrize("again", ["a", "abc", "abcd", "bcde", "ad"])
def test_whatever_is_remembered_of_a_batch_its_numbers_stand(
    local: LocalPorts, remembered: str, again: str
) -> None:
    append(local, 1, "abc")
    numbers = {name: number for number, name in enumerate("abc", 1) if name in remembered}
    asyncio.run(local.ports.streams.remember(KEY, numbers, 1_000))
    take(local, again)
    take(local, "abcdef")
    assert [number for number, _ in numbered(local)] == [1, 2, 3, 4, 5, 6]
    assert sorted(name for _, name in numbered(local)) == [*"abcdef"]
    head = asyncio.run(local.ports.streams.head(KEY))
    assert isinstance(head, StreamHead)
    assert head.last == 6


def test_a_head_that_is_far_behind_claims_no_number_in_the_middle_of_a_batch(
    local: LocalPorts,
) -> None:
    for first in range(1, 120, 3):
        signals = tuple(sent(f"{number}") for number in range(first, first + 3))
        batch = SignalBatch(first=first, batch_id=str(first), signals=signals)
        assert asyncio.run(local.ports.streams.append(KEY, batch))
    take(local, "z")
    assert numbered(local)[-1] == (121, "z")
    assert [number for number, _ in numbered(local)] == [*range(1, 122)]


@pytest.mark.parametrize("remembered", ["a", "abc"])
def test_a_head_comes_to_the_end_of_the_batch_that_was_left(
    local: LocalPorts, remembered: str
) -> None:
    append(local, 1, "abc")
    numbers = {name: number for number, name in enumerate("abc", 1) if name in remembered}
    asyncio.run(local.ports.streams.remember(KEY, numbers, 1_000))
    take(local, "a")
    head = asyncio.run(local.ports.streams.head(KEY))
    assert head is not None
    assert head.last == 3
