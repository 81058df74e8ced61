"""Signals on their way out, with a real journal over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.core import events as e
from stepwell.core.state import fold
from stepwell.engine.journal import Journal
from stepwell.engine.outbox import Outbox


@pytest.fixture
def local() -> Iterator[LocalPorts]:
    with open_ports(":memory:", clock=SkippingClock(0), ids=SeededIds("outbox")) as ports:
        yield ports


def emitted(number: int, due: int | None = None) -> e.SignalEmitted:
    return e.SignalEmitted(
        at=0, emit=f"~emit.s:{number}", stream="s", stream_run="r", signal_id=f"sig{number}",
        signal_type="t", payload="{}", digest="d", due=due,
    )  # fmt: skip


def started(local: LocalPorts) -> Journal:
    journal = Journal(local.store, local.ports.clock, "run", "turn", fold([]), not_before=0)
    journal.record(e.RunStarted(at=0, workflow="w", version="1", input="{}", seed="x"))
    return journal


def test_a_signal_whose_event_is_not_durable_stays(local: LocalPorts) -> None:
    async def send() -> None:
        journal = started(local)
        outbox = Outbox(local.ports, "run", journal)
        journal.record(emitted(1))
        outbox.put(2, emitted(1))
        await outbox.send()
        assert await local.signal_queue.depth() == 0
        await journal.flush()
        journal.record(emitted(2))
        outbox.put(3, emitted(2))
        assert outbox.waits
        await outbox.send()
        assert await local.signal_queue.depth() == 1
        assert not outbox.waits
        await journal.flush()
        await outbox.send()
        assert await local.signal_queue.depth() == 2

    asyncio.run(send())


def test_one_that_is_due_later_is_scheduled(local: LocalPorts) -> None:
    async def send() -> None:
        journal = started(local)
        outbox = Outbox(local.ports, "run", journal)
        journal.record(emitted(1, due=5_000))
        outbox.put(2, emitted(1, due=5_000))
        await journal.flush()
        await outbox.send()
        assert await local.signal_queue.depth() == 0
        assert await local.signal_timers.next_due() == 5_000

    asyncio.run(send())


def test_only_what_lies_behind_the_header_is_sent_again(local: LocalPorts) -> None:
    async def send() -> None:
        journal = started(local)
        for number in (1, 2):
            journal.record(emitted(number))
        await journal.flush()
        outbox = Outbox(local.ports, "run", journal)
        outbox.put_unsent([(2, emitted(1)), (3, emitted(2))], 2)
        await outbox.send()
        delivery = await local.signal_queue.receive()
        assert delivery is not None
        assert ["sig2" in message.body for message in delivery.messages] == [True]

    asyncio.run(send())
