"""Numbering signals: whoever dies, repeats or lags, each signal has one number and all are told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.core.messages import SignalSent, load_message
from stepwell.core.signals import SentSignal, SignalBatch, StreamHead, StreamKey, SubscriptionRow
from stepwell.engine.ports import Ports
from stepwell.engine.sequencing import Sequencer
from stepwell.testing.crashes import Crash, Crasher
from stepwell.testing.facts import gather_stream
from stepwell.testing.laws import check_sequence

KEY = StreamKey("s", "r")
OTHER = StreamKey("s", "other")


@pytest.fixture
def local() -> Iterator[LocalPorts]:
    with open_ports(":memory:", clock=SkippingClock(1_000), ids=SeededIds("numbers")) as ports:
        yield ports


def sent(number: int, key: StreamKey = KEY, kind: str = "t") -> SignalSent:
    signal = SentSignal(signal_id=f"sig{number}", type=kind, payload="{}", published_at=number)
    return SignalSent.of(key, signal)


def many(*numbers: int) -> list[SignalSent]:
    return [sent(number) for number in numbers]


async def numbers(local: LocalPorts, key: StreamKey = KEY) -> list[str]:
    """The ids of all signals, in order; all that is said of them must agree."""
    facts = await gather_stream(local.ports.streams, key, quiet=True)
    check_sequence(facts)
    assert facts.head is not None
    assert facts.head.last == len(facts.signals)
    assert facts.numbers == {signal.signal_id: number for number, signal in facts.signals}
    return [signal.signal_id for _, signal in facts.signals]


async def subscribe(
    local: LocalPorts, step: str, *types: str, ended: bool = False
) -> SubscriptionRow:
    row = SubscriptionRow(
        key=KEY, step=step, run_id=f"sub-{step}", types=types, created_at=0, ended=ended
    )
    await local.ports.streams.subscribe(row)
    return row


async def woken(local: LocalPorts) -> dict[str, int]:
    """Who was woken, and up to which signal at most."""
    found: dict[str, int] = {}
    while (delivery := await local.queue.receive()) is not None:
        message = load_message(delivery.body)
        until = getattr(message, "until", 0)
        found[message.run_id] = max(found.get(message.run_id, 0), until)
        await local.queue.delete(delivery)
    return found


def test_signals_are_numbered_in_their_order_whatever_their_count(local: LocalPorts) -> None:
    async def take() -> None:
        given = many(*range(25))
        (done,) = await Sequencer(local.ports).take(given)
        assert (done.last, done.fresh, done.woken, done.subscribed) == (25, 25, 0, False)
        assert await numbers(local) == [each.signal_id for each in given]

    asyncio.run(take())


def test_each_stream_run_has_numbers_of_its_own(local: LocalPorts) -> None:
    async def take() -> None:
        done = await Sequencer(local.ports).take([sent(1), sent(1, OTHER), sent(2)])
        assert {each.key: each.last for each in done} == {KEY: 2, OTHER: 1}
        assert await numbers(local, OTHER) == ["sig1"]

    asyncio.run(take())


@pytest.mark.parametrize("again", [(1, 2, 3), (3, 2, 1), (2,), (1, 1, 4), (4, 1), (3, 4, 4)])
def test_what_comes_again_has_the_number_that_it_had(
    local: LocalPorts, again: tuple[int, ...]
) -> None:
    async def take() -> None:
        sequencer = Sequencer(local.ports)
        await sequencer.take(many(1, 2, 3))
        (done,) = await sequencer.take(many(*again))
        fresh = 1 if 4 in again else 0
        assert done.fresh == fresh
        assert await numbers(local) == ["sig1", "sig2", "sig3", *["sig4"] * fresh]

    asyncio.run(take())


def test_those_are_woken_who_take_such_signals_and_have_not_ended(local: LocalPorts) -> None:
    async def take() -> None:
        await subscribe(local, "both", "t", "u")
        await subscribe(local, "other", "u")
        await subscribe(local, "over", "t", ended=True)
        (done,) = await Sequencer(local.ports).take(many(1, 2))
        assert (done.woken, done.subscribed) == (1, True)
        assert await woken(local) == {"sub-both": 2}

    asyncio.run(take())


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_dies_at_any_call_is_made_up_for_by_the_next(when: str) -> None:
    """The same signals come again, with one more behind them: as a queue gives them."""
    for call in itertools.count(1):
        with open_ports(":memory:", clock=SkippingClock(0), ids=SeededIds("n")) as local:
            crashes = asyncio.run(_crash(local, call, when))
        if not crashes:
            assert call > 5
            return


async def _crash(local: LocalPorts, call: int, when: str) -> bool:
    await subscribe(local, "a", "t")
    await Sequencer(local.ports).take(many(1))
    await woken(local)
    crasher = Crasher()
    crasher.crash_at(call, when)  # type: ignore[arg-type]
    crashed = True
    with suppress(Crash), crasher.armed():
        await Sequencer(crasher.wrap(local.ports)).take(many(*range(2, 15)))
        crashed = False
    before = await woken(local)
    await Sequencer(local.ports).take(many(*range(2, 15), 15))
    assert await numbers(local) == [f"sig{n}" for n in range(1, 16)]
    last = max([*before.values(), *(await woken(local)).values()])
    assert last == 15
    return crashed


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_dies_and_is_followed_by_the_same_signals_alone(when: str) -> None:
    for call in itertools.count(1):
        with open_ports(":memory:", clock=SkippingClock(0), ids=SeededIds("n")) as local:
            crashed = asyncio.run(_crash_alone(local, call, when))
        if not crashed:
            assert call > 5
            return


async def _crash_alone(local: LocalPorts, call: int, when: str) -> bool:
    await subscribe(local, "a", "t")
    crasher = Crasher()
    crasher.crash_at(call, when)  # type: ignore[arg-type]
    crashed = True
    with suppress(Crash), crasher.armed():
        await Sequencer(crasher.wrap(local.ports)).take(many(1, 2, 3))
        crashed = False
    before = await woken(local)
    await Sequencer(local.ports).take(many(1, 2, 3))
    assert await numbers(local) == ["sig1", "sig2", "sig3"]
    assert {**before, **await woken(local)} == {"sub-a": 3}
    return crashed


def test_a_head_that_lags_far_behind_is_caught_up_with(local: LocalPorts) -> None:
    async def take() -> None:
        streams = local.ports.streams
        for first in range(1, 252):
            signal = sent(first).signal
            batch = SignalBatch(first=first, batch_id=f"b{first}", signals=(signal,))
            await streams.append(KEY, batch)
        await Sequencer(local.ports).take(many(900))
        assert (await numbers(local))[-1] == "sig900"

    asyncio.run(take())


def test_a_batch_of_somebody_else_under_the_next_number_is_adopted(local: LocalPorts) -> None:
    """A frozen consumer put it meanwhile: what it holds of these is not numbered again."""

    async def take() -> None:
        signals = tuple(each.signal for each in many(2, 7))
        await local.ports.streams.append(KEY, SignalBatch(first=1, batch_id="z", signals=signals))
        (done,) = await Sequencer(local.ports).take(many(1, 2, 3))
        assert await numbers(local) == ["sig2", "sig7", "sig1", "sig3"]
        assert done.last == 4

    asyncio.run(take())


def test_a_late_head_does_not_go_back(local: LocalPorts) -> None:
    async def take() -> None:
        await Sequencer(local.ports).take(many(1, 2, 3))
        zombie = StreamHead(key=KEY, last=1, created_at=0, updated_at=0)
        await local.ports.streams.move_head(zombie)
        assert len(await numbers(local)) == 3

    asyncio.run(take())


@pytest.mark.parametrize("seed", range(40))
def test_two_consumers_at_once_number_each_signal_once(seed: int) -> None:
    """Both have the same signals, as when a message is delivered again; calls alternate."""
    with open_ports(":memory:", clock=SkippingClock(0), ids=SeededIds("n")) as local:
        asyncio.run(_compete(local, seed))


async def _compete(local: LocalPorts, seed: int) -> None:
    await subscribe(local, "a", "t")
    given: Sequence[Sequence[int]] = ([*range(1, 13)], [*range(1, 16)])
    draws = [_Pace(seed, n) for n in range(2)]
    await asyncio.gather(
        *(
            Sequencer(_paced(local.ports, draw)).take(many(*mine))
            for draw, mine in zip(draws, given, strict=True)
        )
    )
    assert sorted(await numbers(local)) == sorted(f"sig{n}" for n in range(1, 16))
    assert await woken(local) == {"sub-a": 15}


class _Pace:
    """How long each call of one consumer takes: a few rounds of the loop, fixed by a seed."""

    def __init__(self, seed: int, number: int) -> None:
        self._state = seed * 2 + number + 1

    async def wait(self) -> None:
        self._state = (self._state * 1_103_515_245 + 12_345) % 2**31
        for _ in range(self._state // 1_000 % 5):
            await asyncio.sleep(0)


class _Paced:
    def __init__(self, port: object, pace: _Pace) -> None:
        self._port = port
        self._pace = pace

    def __getattr__(self, method: str) -> object:
        target = getattr(self._port, method)

        async def call(*args: object, **kwargs: object) -> object:
            await self._pace.wait()
            result = await target(*args, **kwargs)
            await self._pace.wait()
            return result

        return call


def _paced(ports: Ports, pace: _Pace) -> Ports:
    return replace(ports, streams=_Paced(ports.streams, pace))  # type: ignore[arg-type]
