"""The `Streams` port, sentence by sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepwell.adapters.local.clock import SkippingClock
from stepwell.adapters.local.wiring import open_ports
from stepwell.core.signals import BATCH, StreamHead, StreamKey
from stepwell.engine.ports import ItemTooLarge, TransientError
from tests.contract.given import (
    NASTY_IDS,
    START,
    STREAM_RUN,
    Deployment,
    batch_of,
    run,
    signal,
    signal_batch,
    subscription,
)
from tests.contract.storage import Storage, open_storage

LATER = START + 60_000


def head(last: int, *, created_at: int = START, updated_at: int = START) -> StreamHead:
    return StreamHead(key=STREAM_RUN, last=last, created_at=created_at, updated_at=updated_at)


def put(deployment: Deployment, *batches: tuple[int, int]) -> None:
    """Put batches: the first number of each, and how many signals it has."""
    for first, signals in batches:
        assert run(deployment.streams.append(STREAM_RUN, signal_batch(first, signals)))


def numbers(deployment: Deployment, after: int = 0, limit: int = 100) -> list[int]:
    found = run(deployment.streams.read(STREAM_RUN, after=after, limit=limit))
    return [each.sequence for each in found]


# The head


def test_a_stream_run_begins_without_a_head(deployment: Deployment) -> None:
    assert run(deployment.streams.head(STREAM_RUN)) is None
    run(deployment.streams.move_head(head(3)))
    assert run(deployment.streams.head(STREAM_RUN)) == head(3)
    assert run(deployment.streams.head(StreamKey("chat", "c2"))) is None


def test_a_head_never_goes_back(deployment: Deployment) -> None:
    run(deployment.streams.move_head(head(3)))
    run(deployment.streams.move_head(head(2, updated_at=LATER)))
    run(deployment.streams.move_head(head(3, updated_at=LATER)))
    assert run(deployment.streams.head(STREAM_RUN)) == head(3)


def test_a_head_keeps_when_it_was_made(deployment: Deployment) -> None:
    run(deployment.streams.move_head(head(3)))
    run(deployment.streams.move_head(head(7, created_at=LATER, updated_at=LATER)))
    assert run(deployment.streams.head(STREAM_RUN)) == head(7, updated_at=LATER)


def test_a_head_says_how_many_signals_of_each_type_there_are(deployment: Deployment) -> None:
    first = replace(head(3), counts='{"said":2,"left":1}')
    then = replace(head(4, updated_at=LATER), counts='{"said":3,"left":1}')
    run(deployment.streams.move_head(first))
    assert run(deployment.streams.head(STREAM_RUN)) == first
    run(deployment.streams.move_head(then))
    run(deployment.streams.move_head(first))
    found = run(deployment.streams.head(STREAM_RUN))
    assert found == then
    assert found.count(["said", "said", "never"]) == 3


# Batches


def test_a_number_is_claimed_once(deployment: Deployment) -> None:
    put(deployment, (1, 2))
    other = signal_batch(1, 3, batch_id="another")
    assert not run(deployment.streams.append(STREAM_RUN, other))
    assert numbers(deployment) == [1, 2]


def test_a_batch_that_is_put_again_recognises_itself(deployment: Deployment) -> None:
    put(deployment, (1, 2), (1, 2))
    assert numbers(deployment) == [1, 2]


def test_a_signal_comes_as_it_was_sent(deployment: Deployment) -> None:
    whole = signal("é#", payload='{"é":"\u0000"}', metadata='{"a":[1]}', source_run_id="run")
    batch = batch_of(1, whole, signal("s2"))
    run(deployment.streams.append(STREAM_RUN, batch))
    assert run(deployment.streams.read(STREAM_RUN, after=0, limit=9)) == batch.numbered()


@pytest.mark.parametrize("signals", [0, BATCH + 1])
def test_a_batch_of_no_fit_size_is_refused(deployment: Deployment, signals: int) -> None:
    with pytest.raises(ValueError, match="a batch of"):
        run(deployment.streams.append(STREAM_RUN, signal_batch(1, signals)))


def test_signals_are_read_behind_any_number(deployment: Deployment) -> None:
    put(deployment, (1, 10), (11, 1), (12, 4))
    for after in range(17):
        assert numbers(deployment, after) == list(range(after + 1, 16))


def test_no_more_signals_are_read_than_asked_for(deployment: Deployment) -> None:
    put(deployment, (1, 10), (11, 10))
    for limit in (0, 1, 9, 10, 11, 19, 20):
        assert numbers(deployment, 0, limit) == list(range(1, limit + 1))
    assert numbers(deployment, 8, 4) == [9, 10, 11, 12]


def test_as_many_are_read_as_there_are_though_their_batches_are_small(
    deployment: Deployment,
) -> None:
    put(deployment, *((n, 1) for n in range(1, 61)))
    assert numbers(deployment, 0, 50) == list(range(1, 51))
    assert numbers(deployment, 20, 50) == list(range(21, 61))


def test_nothing_is_read_where_there_is_nothing(deployment: Deployment) -> None:
    assert numbers(deployment) == []
    put(deployment, (1, 3))
    assert numbers(deployment, 3) == []
    assert numbers(deployment, 99) == []


def test_large_batches_come_in_pages(deployment: Deployment) -> None:
    filled = tuple(signal(f"s{n}", payload=f'"{"x" * 39_000}"') for n in range(BATCH))
    for first in range(1, 51, BATCH):
        run(deployment.streams.append(STREAM_RUN, batch_of(first, *filled)))
    assert numbers(deployment) == list(range(1, 51))


def test_a_batch_that_is_too_large_is_refused(deployment: Deployment) -> None:
    large = batch_of(1, signal(payload=f'"{"€" * 140_000}"'))
    with pytest.raises(ItemTooLarge, match="signals 1 to 1 of stream run chat/c1"):
        run(deployment.streams.append(STREAM_RUN, large))
    assert numbers(deployment) == []


# What is remembered


def test_signals_that_are_remembered_are_found(deployment: Deployment) -> None:
    ids = {f"s{n}": n for n in range(1, 231)}
    assert run(deployment.streams.find(STREAM_RUN, list(ids))) == {}
    run(deployment.streams.remember(STREAM_RUN, ids, LATER))
    run(deployment.streams.remember(STREAM_RUN, {"s1": 1}, LATER))
    assert run(deployment.streams.find(STREAM_RUN, [*ids, "unknown", "s1"])) == ids
    assert run(deployment.streams.find(STREAM_RUN, ["s7", "S7"])) == {"s7": 7}
    assert run(deployment.streams.find(STREAM_RUN, [])) == {}


def test_nothing_to_remember_is_remembered(deployment: Deployment) -> None:
    run(deployment.streams.remember(STREAM_RUN, {}, LATER))
    assert run(deployment.streams.find(STREAM_RUN, ["s1"])) == {}


# Subscriptions


def test_all_subscriptions_come_by_step(deployment: Deployment) -> None:
    rows = [subscription(step=step) for step in ("b", "a-1", "a", "é")]
    for row in rows:
        run(deployment.streams.subscribe(row))
    found = run(deployment.streams.subscriptions(STREAM_RUN))
    assert found == tuple(sorted(rows, key=lambda row: row.step))
    assert run(deployment.streams.subscriptions(StreamKey("chat", "c2"))) == ()


def test_a_subscription_is_put_in_place_of_the_one_that_stands(deployment: Deployment) -> None:
    run(deployment.streams.subscribe(subscription()))
    ended = replace(subscription(), ended=True, types=("said", "left"))
    run(deployment.streams.subscribe(ended))
    assert run(deployment.streams.subscriptions(STREAM_RUN)) == (ended,)


def test_a_subscription_that_is_too_large_is_refused(deployment: Deployment) -> None:
    with pytest.raises(ItemTooLarge, match="subscription 'answer'"):
        run(deployment.streams.subscribe(subscription(types=("x" * 420_000,))))


def test_subscriptions_come_from_every_page(deployment: Deployment) -> None:
    rows = [subscription(step=f"step{n}", types=("x" * 300_000,)) for n in range(5)]
    for row in rows:
        run(deployment.streams.subscribe(row))
    assert run(deployment.streams.subscriptions(STREAM_RUN)) == tuple(rows)


# Apart from each other


def test_no_name_crosses_into_another_s(deployment: Deployment) -> None:
    streams = deployment.streams
    keys = [StreamKey(one, two) for one in NASTY_IDS[:6] for two in NASTY_IDS[-6:]]
    keys += [StreamKey("a", "b#c"), StreamKey("a#b", "c"), StreamKey("a", "b")]
    keys = list(dict.fromkeys(keys))
    for n, key in enumerate(keys, 1):
        run(streams.append(key, batch_of(1, signal(f"s{n}"))))
        run(streams.remember(key, dict.fromkeys(NASTY_IDS, n), LATER))
        run(streams.subscribe(subscription(key, run_id=f"run{n}")))
    for n, key in enumerate(keys, 1):
        (found,) = run(streams.read(key, after=0, limit=9))
        assert found.signal.signal_id == f"s{n}"
        assert run(streams.find(key, NASTY_IDS)) == dict.fromkeys(NASTY_IDS, n)
        assert [row.run_id for row in run(streams.subscriptions(key))] == [f"run{n}"]


def test_an_erased_stream_run_is_gone_and_others_stay(deployment: Deployment) -> None:
    streams, other = deployment.streams, StreamKey("chat", "c10")
    for key in (STREAM_RUN, other):
        for first in range(1, 400, BATCH):
            run(streams.append(key, signal_batch(first, BATCH)))
        run(streams.remember(key, {f"s{n}": n for n in range(1, 400)}, LATER))
        run(streams.subscribe(subscription(key)))
        run(streams.move_head(replace(head(400), key=key)))
    run(streams.erase(STREAM_RUN))
    run(streams.erase(STREAM_RUN))
    assert run(streams.head(STREAM_RUN)) is None
    assert numbers(deployment) == []
    assert run(streams.find(STREAM_RUN, ["s1", "s399"])) == {}
    assert run(streams.subscriptions(STREAM_RUN)) == ()
    assert run(streams.head(other)) is not None
    assert len(run(streams.read(other, after=0, limit=500))) == 400
    assert run(streams.find(other, ["s1", "s399"])) == {"s1": 1, "s399": 399}
    assert run(streams.subscriptions(other)) == (subscription(other),)


# On AWS alone


@pytest.fixture
def storage() -> Iterator[Storage]:
    with open_storage() as opened:
        yield opened


def test_a_batch_whose_reply_is_lost_finds_itself(storage: Storage) -> None:
    left = storage.fault(storage.table.client, "PutItem", "lost")
    assert run(storage.streams.append(STREAM_RUN, signal_batch(1, 2)))
    assert not left
    assert len(run(storage.streams.read(STREAM_RUN, after=0, limit=9))) == 2


def test_a_head_whose_reply_is_lost_is_moved(storage: Storage) -> None:
    left = storage.fault(storage.table.client, "UpdateItem", "lost")
    run(storage.streams.move_head(head(3)))
    assert not left
    assert run(storage.streams.head(STREAM_RUN)) == head(3)


def test_reads_of_a_stream_run_are_strongly_consistent(storage: Storage) -> None:
    asked = []

    def note(params: dict[str, object], **_: object) -> None:
        asked.append(params)

    for operation in ("GetItem", "Query", "BatchGetItem"):
        storage.table.client.meta.events.register(
            f"provide-client-params.dynamodb.{operation}", note
        )
    run(storage.streams.head(STREAM_RUN))
    run(storage.streams.read(STREAM_RUN, after=0, limit=1))
    run(storage.streams.find(STREAM_RUN, ["s1"]))
    run(storage.streams.subscriptions(STREAM_RUN))
    assert len(asked) == 4
    assert all("'ConsistentRead': True" in repr(each) for each in asked)


def test_what_is_remembered_goes_by_itself_and_not_before_its_time(storage: Storage) -> None:
    run(storage.streams.remember(STREAM_RUN, {"s1": 1}, START + 1))
    (item,) = storage.items()
    assert int(item["expires_at"]["N"]) == START // 1000 + 1


def test_no_row_of_a_stream_run_is_in_an_index(storage: Storage) -> None:
    run(storage.streams.append(STREAM_RUN, signal_batch(1)))
    run(storage.streams.move_head(head(1)))
    run(storage.streams.remember(STREAM_RUN, {"s1": 1}, LATER))
    run(storage.streams.subscribe(subscription()))
    assert len(storage.items()) == 4
    assert [storage.items(index) for index in ("runs", "wanted", "expiring")] == [[], [], []]


def test_many_ids_are_found_in_requests_of_a_hundred(storage: Storage) -> None:
    run(storage.streams.find(STREAM_RUN, [f"s{n}" for n in range(201)]))
    assert storage.requests == ["BatchGetItem"] * 3


def test_a_stream_run_that_is_deleted_under_a_batch_is_no_lost_condition(
    storage: Storage,
) -> None:
    run(storage.streams.append(STREAM_RUN, signal_batch(1)))

    def erase(params: object, **_: object) -> None:
        events.unregister("before-call.dynamodb.GetItem", erase)
        for item in storage.items():
            key = {"pk": item["pk"], "sk": item["sk"]}
            storage.table.client.delete_item(TableName=storage.table.name, Key=key)

    events = storage.table.client.meta.events
    events.register("before-call.dynamodb.GetItem", erase)
    with pytest.raises(TransientError, match="deleted"):
        run(storage.streams.append(STREAM_RUN, signal_batch(1, batch_id="another")))


def test_reading_ends_where_a_batch_is_missing(storage: Storage) -> None:
    for first in (1, 4, 10):
        run(storage.streams.append(STREAM_RUN, signal_batch(first, 3)))
    found = run(storage.streams.read(STREAM_RUN, after=0, limit=9))
    assert [each.sequence for each in found] == [1, 2, 3, 4, 5, 6]
    assert run(storage.streams.read(STREAM_RUN, after=8, limit=9)) == ()


# On the local store alone


def test_what_was_remembered_until_a_time_is_forgotten_then(tmp_path: Path) -> None:
    clock = SkippingClock(START)
    with open_ports(tmp_path / "stepwell.db", clock=clock) as local:
        streams = local.ports.streams
        run(streams.remember(STREAM_RUN, {"s1": 1, "s2": 2}, LATER))
        run(streams.remember(STREAM_RUN, {"s2": 2}, LATER + 1))
        clock.advance(LATER - START - 1)
        assert run(streams.find(STREAM_RUN, ["s1", "s2"])) == {"s1": 1, "s2": 2}
        clock.advance(1)
        assert run(streams.find(STREAM_RUN, ["s1", "s2"])) == {"s2": 2}
        run(streams.remember(STREAM_RUN, {"s3": 3}, LATER + 1))
        assert local.database.query("SELECT count(*) FROM signal_numbers") == [(2,)]
