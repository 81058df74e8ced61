"""The contract of the rows of dispatched maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell.adapters.aws.maps import DynamoMaps
from stepwell.adapters.local.database import Database
from stepwell.adapters.local.maps import SqliteMaps
from stepwell.core.map_rows import TOP, ItemRow, ShardKey, ShardRow
from stepwell.engine.ports import ItemTooLarge
from stepwell.errors import Failure
from tests.contract.given import NASTY_IDS, START, Deployment, run
from tests.contract.storage import Storage, open_storage

KEY = ShardKey("run", "fetch*:1", 2, 0)


def shard(key: ShardKey = KEY, **fields: Any) -> ShardRow:
    return ShardRow(**({"key": key, "members": 3, "touched": START} | fields))


def laned(**fields: Any) -> ShardRow:
    return shard(**({"members": 5, "lanes": (0, 1), "following": 2, "end": 5} | fields))


def item(index: int = 0, **fields: Any) -> ItemRow:
    defaults = {"key": KEY, "revision": 1, "status": "completed", "attempt": 1, "result": "1"}
    return ItemRow(index=index, **(defaults | fields))


def test_a_second_put_of_a_shard_returns_the_one_that_stands(deployment: Deployment) -> None:
    maps = deployment.maps
    assert run(maps.get_shard(KEY)) is None
    first = laned(inputs="[[1]]")
    assert run(maps.put_shard(first)) == first
    assert run(maps.put_shard(shard(members=9))) == first
    assert run(maps.get_shard(KEY)) == first


def test_members_are_noted_as_done(deployment: Deployment) -> None:
    maps = deployment.maps
    run(maps.put_shard(shard()))
    one = run(maps.finish(KEY, 2, "completed", lane=None, at=START + 1))
    assert one == shard(done=frozenset({2}), touched=START + 1)
    two = run(maps.finish(KEY, 0, "failed", lane=None, at=START + 2))
    three = run(maps.finish(KEY, 1, "handed", lane=None, at=START + 3))
    expected = shard(
        done=frozenset({0, 1, 2}),
        failed=frozenset({0}),
        handed=frozenset({1}),
        touched=START + 3,
    )
    assert two is not None
    assert not two.through
    assert three == expected == run(maps.get_shard(KEY))
    assert expected.through


def test_a_member_that_is_noted_again_changes_nothing_but_the_time(deployment: Deployment) -> None:
    maps = deployment.maps
    run(maps.put_shard(shard()))
    run(maps.finish(KEY, 1, "failed", lane=None, at=START))
    again = run(maps.finish(KEY, 1, "failed", lane=None, at=START))
    assert again == shard(done=frozenset({1}), failed=frozenset({1}))


def test_a_lane_takes_the_next_member(deployment: Deployment) -> None:
    maps = deployment.maps
    run(maps.put_shard(laned()))
    first = run(maps.finish(KEY, 1, "completed", lane=1, at=START))
    assert first == laned(lanes=(0, 2), following=3, done=frozenset({1}))
    second = run(maps.finish(KEY, 0, "failed", lane=0, at=START))
    assert second is not None
    assert (second.lanes, second.following) == ((3, 2), 4)


def test_a_lane_takes_one_member_though_it_is_told_twice(deployment: Deployment) -> None:
    maps = deployment.maps
    run(maps.put_shard(laned()))
    first = run(maps.finish(KEY, 0, "completed", lane=0, at=START))
    assert run(maps.finish(KEY, 0, "completed", lane=0, at=START + 5)) == first


def test_where_there_is_no_shard_nothing_is_noted(deployment: Deployment) -> None:
    maps = deployment.maps
    assert run(maps.finish(KEY, 0, "completed", lane=None, at=START)) is None
    assert run(maps.finish(KEY, 0, "completed", lane=0, at=START)) is None
    assert run(maps.count(KEY, "failed", at=START)) is None
    run(maps.cancel_shard(KEY))
    assert run(maps.get_shard(KEY)) is None


def test_the_top_counts(deployment: Deployment) -> None:
    maps, top = deployment.maps, KEY._replace(shard=TOP)
    run(maps.put_shard(shard(top)))
    run(maps.count(top, "failed", at=START))
    run(maps.count(top, "failed", at=START))
    run(maps.count(top, "completed", at=START))
    found = run(maps.count(top, "handed", at=START + 1))
    expected = shard(top, failures=2, completions=1, hand_overs=1, touched=START + 1)
    assert found == expected == run(maps.get_shard(top))
    assert run(maps.get_shard(KEY)) is None


def test_a_cancelled_shard_stays_so(deployment: Deployment) -> None:
    maps = deployment.maps
    run(maps.put_shard(shard()))
    run(maps.cancel_shard(KEY))
    run(maps.cancel_shard(KEY))
    found = run(maps.finish(KEY, 0, "completed", lane=None, at=START))
    assert found == shard(cancelled=True, done=frozenset({0}))


def test_the_first_outcome_of_an_item_stands(deployment: Deployment) -> None:
    maps = deployment.maps
    assert run(maps.get_item(KEY, 0)) is None
    first = item()
    assert run(maps.put_item(first)) == first
    assert run(maps.put_item(item(result="2", attempt=2))) == first
    assert run(maps.put_item(first)) == first
    assert run(maps.get_item(KEY, 0)) == first


def test_an_outcome_follows_its_claim_once(deployment: Deployment) -> None:
    maps = deployment.maps
    claim = item(status="started", result=None)
    ended = item(revision=2, status="failed", result=None, error=Failure("X", "m"), reason="error")
    assert run(maps.put_item(claim)) == claim
    assert run(maps.put_item(ended)) == ended
    assert run(maps.put_item(replace(ended, status="completed", error=None))) == ended
    assert run(maps.put_item(claim)) == ended


def test_all_items_of_a_shard_come_in_order(deployment: Deployment) -> None:
    maps = deployment.maps
    run(maps.put_shard(shard()))
    rows = [item(n, events="[]", status="handed", result=None) for n in (0, 2, 10, 127)]
    for row in reversed(rows):
        run(maps.put_item(row))
    run(maps.put_item(item(1, key=KEY._replace(shard=1))))
    assert run(maps.get_items(KEY)) == tuple(rows)
    assert run(maps.get_items(KEY._replace(order=3))) == ()


def test_a_shard_is_erased_with_its_items_and_no_other(deployment: Deployment) -> None:
    maps = deployment.maps
    others = [KEY._replace(shard=1), KEY._replace(order=3), KEY._replace(map="fetch*:11")]
    for key in (KEY, *others):
        run(maps.put_shard(shard(key)))
        for n in range(30):
            run(maps.put_item(item(n, key=key)))
    for _ in range(2):
        run(maps.erase_shard(KEY))
        assert run(maps.get_shard(KEY)) is None
        assert run(maps.get_items(KEY)) == ()
    for key in others:
        assert run(maps.get_shard(key)) is not None
        assert len(run(maps.get_items(key))) == 30


def test_no_id_crosses_into_another_s(deployment: Deployment) -> None:
    maps = deployment.maps
    keys = [ShardKey(one, two, 1, 0) for one in NASTY_IDS[:6] for two in NASTY_IDS[-6:]]
    for n, key in enumerate(keys):
        run(maps.put_shard(shard(key, members=n + 1)))
        run(maps.put_item(item(n, key=key)))
    for n, key in enumerate(keys):
        found = run(maps.get_shard(key))
        assert found is not None
        assert found.members == n + 1
        assert [row.index for row in run(maps.get_items(key))] == [n]


@pytest.mark.parametrize("text", ["x" * 500_000, "\u20ac" * 200_000])
def test_a_row_that_is_too_large_is_refused(deployment: Deployment, text: str) -> None:
    with pytest.raises(ItemTooLarge, match="a row of map"):
        run(deployment.maps.put_item(item(result=text)))
    with pytest.raises(ItemTooLarge, match="a row of map"):
        run(deployment.maps.put_shard(shard(inputs=text)))


@pytest.fixture
def storage() -> Any:
    with open_storage() as opened:
        yield opened


def test_a_change_whose_reply_is_lost_is_made_once(storage: Storage) -> None:
    maps: DynamoMaps = storage.maps
    run(maps.put_shard(laned()))
    left = storage.fault(storage.table.client, "UpdateItem", "lost")
    found = run(maps.finish(KEY, 0, "completed", lane=0, at=START))
    assert not left
    assert found == laned(lanes=(2, 1), following=3, done=frozenset({0}))


def test_a_put_whose_reply_is_lost_finds_itself(storage: Storage) -> None:
    maps: DynamoMaps = storage.maps
    for row in (item(), item(revision=2, status="failed")):
        left = storage.fault(storage.table.client, "PutItem", "lost")
        assert run(maps.put_item(row)) == row
        assert not left


def test_the_limit_of_rows_in_a_file_may_be_lowered() -> None:
    with Database(":memory:") as database, pytest.raises(ItemTooLarge):
        run(SqliteMaps(database, item_limit=10).put_item(item()))
