"""How many items of a map run at a time."""

from __future__ import annotations

from typing import Any, cast

from stepwell.core.commands import RunStep, StartMap
from stepwell.engine.lanes import Lanes

MAP = StartMap("m*:1", "m", 4, 2)


def item(n: int, of: str | None = "m*:1") -> RunStep:
    return RunStep(f"{of}#{n}", "d", cast(Any, None), (), {}, map=of)


def lanes() -> Lanes:
    made = Lanes()
    made.open(MAP)
    return made


def test_items_wait_for_a_lane_in_order() -> None:
    found = lanes()
    assert [found.admit(item(n)) for n in range(4)] == [True, True, False, False]
    assert found.leave(item(1)) == [item(2)]
    assert found.leave(item(0)) == [item(3)]
    assert found.leave(item(3)) == []
    assert found.admit(item(5))


def test_who_has_no_lane_gives_up_none() -> None:
    found = lanes()
    assert [found.admit(item(n)) for n in range(3)] == [True, True, False]
    assert found.leave(item(2)) == []
    assert found.leave(item(0)) == [item(2)]
    assert found.leave(item(0)) == []


def test_an_item_under_way_has_its_lane() -> None:
    found = lanes()
    found.occupy(item(0))
    assert [found.admit(item(n)) for n in (1, 2)] == [True, False]


def test_without_a_limit_all_may_begin() -> None:
    found = Lanes()
    found.open(MAP._replace(max_concurrency=None))
    assert all(found.admit(item(n)) for n in range(9))
    assert all(found.admit(item(n, None)) for n in range(9))
    found.occupy(item(0))
    assert found.leave(item(0)) == []
