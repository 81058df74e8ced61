"""How the items and lanes of a map are laid out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.map_layout import LANES, SHARD, Layout

TOTALS = st.integers(1, 3_000)


@given(TOTALS, st.none() | st.integers(1, 400))
def test_every_item_is_in_one_shard(total: int, concurrency: int | None) -> None:
    layout = Layout(total, concurrency)
    found = [index for shard in range(layout.shards) for index in layout.items(shard)]
    assert found == list(range(total))
    for shard in range(layout.shards):
        assert 1 <= len(layout.items(shard)) <= SHARD
        assert {layout.shard_of(index) for index in layout.items(shard)} == {shard}


@given(TOTALS, st.integers(1, 400))
def test_there_are_never_more_lanes_than_may_be(total: int, concurrency: int) -> None:
    layout = Layout(total, concurrency)
    begun = [shard for shard in range(layout.shards) if shard < layout.groups]
    assert sum(layout.lanes(shard) for shard in begun) <= concurrency
    for shard in range(layout.shards):
        assert 1 <= layout.lanes(shard) <= LANES


@given(TOTALS, st.integers(1, 400))
def test_every_shard_is_begun_once(total: int, concurrency: int) -> None:
    layout = Layout(total, concurrency)
    begun: list[int] = []
    for first in range(min(layout.groups, layout.shards)):
        shard: int | None = first
        while shard is not None:
            begun.append(shard)
            shard = layout.after(shard)
    assert sorted(begun) == list(range(layout.shards))


@pytest.mark.parametrize(
    ("total", "concurrency", "shards", "size", "lanes"),
    [
        (10, None, 1, 128, 0),
        (128, None, 1, 128, 0),
        (129, None, 2, 128, 0),
        (10_000, None, 79, 128, 0),
        (1_000, 1, 8, 128, 1),
        (1_000, 16, 8, 128, 16),
        (200, 100, 7, 29, 15),
        (3, 10, 1, 3, 3),
    ],
)
def test_some_layouts(
    total: int, concurrency: int | None, shards: int, size: int, lanes: int
) -> None:
    layout = Layout(total, concurrency)
    assert (layout.shards, layout.size, layout.lanes(0)) == (shards, size, lanes)


def test_without_a_limit_no_shard_comes_after_another() -> None:
    assert Layout(1_000).after(0) is None
