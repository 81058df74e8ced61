"""Progress: how far the maps of a run have come, and whether they come further by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.core.fan_out import MapOptions
from stepwell.core.map_layout import Layout
from stepwell.core.map_rows import ShardKey, ShardRow, top_of
from stepwell.core.parts import MapState
from stepwell.core.records import Millis
from stepwell.core.state import RunState
from stepwell.engine.map_ports import Maps


@dataclass(frozen=True, slots=True, kw_only=True)
class MapProgress:
    """How far one map has come: of `total` items so many have completed, and so many failed.

    `going_on` says that its run still waits for it.
    """

    id: str
    name: str
    since: Millis
    total: int
    completed: int
    failed: int
    going_on: bool


async def progress_of(maps: Maps, run_id: str, state: RunState) -> tuple[MapProgress, ...]:
    """All maps of a run, in the order in which they began."""
    found = []
    for each in state.maps.values():
        completed, failed = state.outcomes(each)
        if each.dispatched:
            elsewhere = await _elsewhere(maps, run_id, each)
            completed, failed = completed + elsewhere[0], failed + elsewhere[1]
        found.append(
            MapProgress(
                id=each.id,
                name=each.name,
                since=each.since,
                total=each.total,
                completed=completed,
                failed=failed,
                going_on=each.status == "started" and not state.terminal,
            )
        )
    return tuple(found)


async def goes_on_elsewhere(maps: Maps, run_id: str, state: RunState) -> bool:
    """Whether items of dispatched maps are under way, or their run is about to be told of them."""
    for each in state.maps.values():
        if (
            each.dispatched
            and each.status == "started"
            and await _goes_on(maps, run_id, state, each)
        ):
            return True
    return False


async def _goes_on(maps: Maps, run_id: str, state: RunState, known: MapState) -> bool:
    top = await maps.get_shard(top_of(run_id, known.id, known.order, _layout(known)))
    if top is None or not top.through:
        return True
    rows = await _shards(maps, run_id, known)
    taken_over = sum(step.startswith(f"{known.id}#") for step in state.steps)
    if sum(len(row.handed) for row in rows) > taken_over:
        return True
    started, (completed, failed) = known.started, state.outcomes(known)
    options = MapOptions(
        on_error=started.on_error,
        min_successful=started.min_successful,
        tolerated_failures=started.tolerated_failures,
    )
    elsewhere = _outcomes(rows)
    verdict = options.verdict(known.total, completed + elsewhere[0], failed + elsewhere[1])
    return verdict is not None


async def _elsewhere(maps: Maps, run_id: str, known: MapState) -> tuple[int, int]:
    """What the rows of a dispatched map say: how many have completed, and how many failed."""
    return _outcomes(await _shards(maps, run_id, known))


def _outcomes(rows: list[ShardRow]) -> tuple[int, int]:
    failed = sum(len(row.failed) for row in rows)
    return sum(len(row.done) - len(row.handed) for row in rows) - failed, failed


async def _shards(maps: Maps, run_id: str, known: MapState) -> list[ShardRow]:
    keys = (ShardKey(run_id, known.id, known.order, n) for n in range(_layout(known).shards))
    found = [await maps.get_shard(key) for key in keys]
    return [row for row in found if row is not None]


def _layout(known: MapState) -> Layout:
    return Layout(known.total, known.started.concurrency)
