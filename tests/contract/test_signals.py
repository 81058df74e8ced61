"""The `SignalQueue` and `SignalTimers` ports, on the local queue and on SQS."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.signal_queue import SignalDelivery
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.core.messages import SignalSent, load_signal
from stepwell.core.signals import BATCH, StreamKey
from stepwell.engine.ports import ItemTooLarge
from stepwell.engine.stream_ports import SignalQueue, SignalTimers
from tests.contract.given import (
    MAX_RECEIVES,
    MINUTE,
    NASTY_IDS,
    START,
    STREAM_RUN,
    VISIBILITY,
    run,
    sent_signal,
)
from tests.contract.messaging import Messaging, open_messaging

HOUR = 60 * MINUTE


@dataclass(frozen=True, kw_only=True)
class Line:
    """A signal queue with its timers, and what a test needs besides."""

    queue: SignalQueue
    timers: SignalTimers
    clock: SkippingClock
    fire_due: Callable[[], Coroutine[Any, Any, int]]
    #: All that is to be received, in order within each stream run, acknowledged.
    arrived: Callable[[], Coroutine[Any, Any, Sequence[SignalSent]]]


def _open_local(path: str | Path) -> LocalPorts:
    return open_ports(
        path,
        clock=SkippingClock(START),
        ids=SeededIds(1),
        visibility=VISIBILITY,
        max_receive_count=MAX_RECEIVES,
    )


def _local_line(local: LocalPorts) -> Line:
    async def arrived() -> list[SignalSent]:
        found: list[SignalSent] = []
        while delivery := await local.signal_queue.receive():
            found += [load_signal(each.body) for each in delivery.messages]
            assert await local.signal_queue.delete(delivery)
        return found

    clock = local.ports.clock
    assert isinstance(clock, SkippingClock)
    return Line(
        queue=local.signal_queue,
        timers=local.signal_timers,
        clock=clock,
        fire_due=lambda: local.signal_timers.fire_due(local.signal_queue),
        arrived=arrived,
    )


def _sqs_line(aws: Messaging) -> Line:
    async def arrived() -> list[SignalSent]:
        found: list[SignalSent] = []
        url = aws.url("signal.fifo")
        while some := aws.clients.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH).get(
            "Messages", []
        ):
            for each in some:
                found.append(load_signal(each["Body"]))
                aws.clients.sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
        return found

    return Line(
        queue=aws.signals,
        timers=aws.signal_timers,
        clock=aws.clock,
        fire_due=aws.fire_due,
        arrived=arrived,
    )


@pytest.fixture(params=["aws", "memory", "sqlite"])
def line(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Line]:
    if request.param == "aws":
        with open_messaging(monkeypatch) as aws:
            yield _sqs_line(aws)
    else:
        path = ":memory:" if request.param == "memory" else tmp_path / "stepwell.db"
        with _open_local(path) as local:
            yield _local_line(local)


def ids(signals: Sequence[SignalSent]) -> list[str]:
    return [each.signal_id for each in signals]


# The queue


def test_a_signal_arrives_as_it_was_sent(line: Line) -> None:
    whole = sent_signal("é#", metadata="{}", source_run_id="run", due=START + HOUR)

    async def scenario() -> Sequence[SignalSent]:
        await line.queue.send([whole])
        return await line.arrived()

    assert list(run(scenario())) == [whole]


def test_signals_of_a_stream_run_keep_their_order(line: Line) -> None:
    async def scenario() -> Sequence[SignalSent]:
        await line.queue.send([sent_signal(f"s{n}") for n in range(12)])
        await line.queue.send([sent_signal(f"s{n}") for n in range(12, 25)])
        return await line.arrived()

    assert ids(run(scenario())) == [f"s{n}" for n in range(25)]


def test_signals_of_several_stream_runs_are_sent_together(line: Line) -> None:
    keys = [StreamKey("chat", f"c{n}") for n in range(4)]

    async def scenario() -> Sequence[SignalSent]:
        await line.queue.send([sent_signal(f"s{n}", keys[n % 4]) for n in range(40)])
        return await line.arrived()

    arrived = run(scenario())
    for m, key in enumerate(keys):
        found = ids([each for each in arrived if each.key == key])
        assert found == [f"s{n}" for n in range(40) if n % 4 == m]


def test_a_signal_that_is_sent_twice_within_minutes_arrives_once(line: Line) -> None:
    async def scenario() -> Sequence[SignalSent]:
        await line.queue.send([sent_signal("s1"), sent_signal("s1"), sent_signal("s2")])
        await line.queue.send([sent_signal("s1", payload="{}")])
        return await line.arrived()

    assert ids(run(scenario())) == ["s1", "s2"]


def test_equal_ids_on_two_stream_runs_are_two_signals(line: Line) -> None:
    keys = [StreamKey(one, two) for one in NASTY_IDS[:5] for two in NASTY_IDS[:5]]

    async def scenario() -> Sequence[SignalSent]:
        await line.queue.send([sent_signal("s1", key) for key in keys])
        return await line.arrived()

    assert {each.key for each in run(scenario())} == set(keys)


def test_nothing_to_send_is_sent(line: Line) -> None:
    async def scenario() -> Sequence[SignalSent]:
        await line.queue.send([])
        return await line.arrived()

    assert list(run(scenario())) == []


def test_a_signal_that_is_too_large_is_refused(line: Line) -> None:
    async def scenario() -> Sequence[SignalSent]:
        with pytest.raises(ItemTooLarge, match="chat/c1"):
            await line.queue.send([sent_signal(payload=f'"{"x" * 1_100_000}"')])
        return await line.arrived()

    assert list(run(scenario())) == []


# The timers


async def _fired(line: Line) -> Sequence[SignalSent]:
    await line.fire_due()
    return await line.arrived()


@pytest.mark.parametrize("after", [1_000, 15 * MINUTE, 16 * MINUTE, 400 * 24 * HOUR])
def test_a_signal_is_sent_when_it_is_due_and_not_before(line: Line, after: int) -> None:
    later = sent_signal(due=START + after)

    async def scenario() -> None:
        await line.timers.schedule(later)
        line.clock.advance(after - 1)
        assert list(await _fired(line)) == []
        line.clock.advance(1)
        assert list(await _fired(line)) == [later]

    run(scenario())


@pytest.mark.parametrize("due", [START, START - 1, None])
def test_a_signal_whose_time_has_passed_is_sent_at_once(line: Line, due: int | None) -> None:
    async def scenario() -> Sequence[SignalSent]:
        await line.timers.schedule(sent_signal(due=due))
        return await _fired(line)

    assert ids(run(scenario())) == ["s1"]


def test_a_signal_that_is_scheduled_again_is_sent_at_the_later_time(line: Line) -> None:
    async def scenario() -> None:
        for due in (START + HOUR, START + 2 * HOUR, START + 2 * HOUR):
            await line.timers.schedule(sent_signal(due=due))
        line.clock.advance(HOUR)
        assert list(await _fired(line)) == []
        line.clock.advance(HOUR)
        assert ids(await _fired(line)) == ["s1"]

    run(scenario())


def test_a_cancelled_signal_is_not_sent_and_others_are(line: Line) -> None:
    other = StreamKey("chat", "c2")

    async def scenario() -> Sequence[SignalSent]:
        for key in (STREAM_RUN, other):
            for signal_id in ("s1", "s2"):
                await line.timers.schedule(sent_signal(signal_id, key, due=START + HOUR))
        await line.timers.cancel(STREAM_RUN, "s1")
        await line.timers.cancel(STREAM_RUN, "s1")
        await line.timers.cancel(STREAM_RUN, "unknown")
        line.clock.advance(HOUR)
        return await _fired(line)

    found = {(each.key, each.signal_id) for each in run(scenario())}
    assert found == {(STREAM_RUN, "s2"), (other, "s1"), (other, "s2")}


# The receiving end of the local queue


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalPorts]:
    with _open_local(tmp_path / "stepwell.db") as opened:
        yield opened


def _send(local: LocalPorts, *signals: SignalSent) -> None:
    run(local.signal_queue.send(signals))


def _receive(local: LocalPorts) -> SignalDelivery:
    delivery = run(local.signal_queue.receive())
    assert delivery is not None
    return delivery


def _ids(delivery: SignalDelivery) -> list[str]:
    return ids([load_signal(each.body) for each in delivery.messages])


def _advance(local: LocalPorts, by: int) -> None:
    clock = local.ports.clock
    assert isinstance(clock, SkippingClock)
    clock.advance(by)


OTHER = StreamKey("chat", "c2")


def test_up_to_ten_signals_of_one_stream_run_come_together(local: LocalPorts) -> None:
    _send(local, *(sent_signal(f"s{n}") for n in range(12)), sent_signal("t", OTHER))
    first, second = _receive(local), _receive(local)
    assert _ids(first) == [f"s{n}" for n in range(10)]
    assert _ids(second) == ["t"]
    assert (first.owner, second.owner) == (STREAM_RUN.owner, OTHER.owner)
    assert run(local.signal_queue.receive()) is None
    assert run(local.signal_queue.delete(first))
    assert _ids(_receive(local)) == ["s10", "s11"]


def test_what_is_given_back_comes_first_after_its_delay(local: LocalPorts) -> None:
    _send(local, sent_signal("s1"))
    assert run(local.signal_queue.give_back(_receive(local), delay=5_000))
    _send(local, sent_signal("s2"))
    _advance(local, 4_999)
    assert run(local.signal_queue.receive()) is None
    _advance(local, 1)
    again = _receive(local)
    assert _ids(again) == ["s1", "s2"]
    assert [each.receive_count for each in again.messages] == [2, 1]


def test_what_was_not_acknowledged_comes_again_and_the_old_receipt_is_stale(
    local: LocalPorts,
) -> None:
    _send(local, sent_signal())
    first = _receive(local)
    _advance(local, VISIBILITY)
    second = _receive(local)
    assert not run(local.signal_queue.delete(first))
    assert not run(local.signal_queue.give_back(first))
    run(local.signal_queue.reject(first, first.messages[0].message_id, "no"))
    assert run(local.signal_queue.dead_letters()) == ()
    assert run(local.signal_queue.delete(second))
    assert run(local.signal_queue.depth()) == 0


def test_an_expired_receipt_is_stale_though_nobody_came_after(local: LocalPorts) -> None:
    _send(local, sent_signal())
    delivery = _receive(local)
    _advance(local, VISIBILITY)
    assert not run(local.signal_queue.delete(delivery))
    assert _ids(_receive(local)) == ["s1"]


def test_a_signal_that_came_too_often_is_a_dead_letter_and_holds_up_nobody(
    local: LocalPorts,
) -> None:
    _send(local, sent_signal("s1"))
    for _ in range(MAX_RECEIVES):
        assert run(local.signal_queue.give_back(_receive(local)))
    _send(local, sent_signal("s2"))
    assert _ids(_receive(local)) == ["s2"]
    (letter,) = run(local.signal_queue.dead_letters())
    assert load_signal(letter.body).signal_id == "s1"
    assert run(local.signal_queue.take(letter.message_id))
    assert run(local.signal_queue.dead_letters(new=True)) == ()


def test_of_a_group_that_is_all_dead_nothing_is_held(local: LocalPorts) -> None:
    _send(local, sent_signal())
    for _ in range(MAX_RECEIVES):
        assert run(local.signal_queue.give_back(_receive(local)))
    assert run(local.signal_queue.receive()) is None
    _send(local, sent_signal("s2"))
    assert _ids(_receive(local)) == ["s2"]


def test_a_rejected_signal_is_a_dead_letter_and_the_others_stay(local: LocalPorts) -> None:
    _send(local, sent_signal("s1"), sent_signal("s2"))
    delivery = _receive(local)
    run(local.signal_queue.reject(delivery, delivery.messages[0].message_id, "no signal"))
    (letter,) = run(local.signal_queue.dead_letters())
    assert letter.reason == "no signal"
    assert run(local.signal_queue.give_back(delivery))
    assert _ids(_receive(local)) == ["s2"]


def test_an_id_is_free_again_after_five_minutes(local: LocalPorts) -> None:
    _send(local, sent_signal("s1"))
    _advance(local, 5 * MINUTE - 1)
    _send(local, sent_signal("s1"))
    assert run(local.signal_queue.depth()) == 1
    _advance(local, 1)
    _send(local, sent_signal("s1"))
    assert run(local.signal_queue.depth()) == 2


def test_the_depth_is_known_by_owner(local: LocalPorts) -> None:
    _send(local, sent_signal("s1"), sent_signal("s2"), sent_signal("t", OTHER))
    assert run(local.signal_queue.depth_of([STREAM_RUN.owner])) == 2
    assert run(local.signal_queue.depth_of([STREAM_RUN.owner, OTHER.owner])) == 3
    assert run(local.signal_queue.next_visible_at()) == 0


def test_due_signals_are_sent_earliest_first(local: LocalPorts) -> None:
    for signal_id, due in (("s1", START + 2), ("s2", START + 1), ("s3", START + 3)):
        run(local.signal_timers.schedule(sent_signal(signal_id, due=due)))
    assert run(local.signal_timers.next_due()) == START + 1
    _advance(local, 2)
    assert run(local.signal_timers.fire_due(local.signal_queue)) == 2
    assert _ids(_receive(local)) == ["s2", "s1"]
    assert run(local.signal_timers.next_due()) == START + 3
