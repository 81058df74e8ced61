"""Progress: how far the maps of a run have come."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.core.map_layout import Layout
from stepwell.core.map_rows import ShardKey
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


async def _elsewhere(maps: Maps, run_id: str, known: MapState) -> tuple[int, int]:
    """What the rows of a dispatched map say: how many have completed, and how many failed."""
    completed = failed = 0
    for shard in range(Layout(known.total, known.started.concurrency).shards):
        row = await maps.get_shard(ShardKey(run_id, known.id, known.order, shard))
        if row is not None:
            failed += len(row.failed)
            completed += len(row.done) - len(row.failed) - len(row.handed)
    return completed, failed
