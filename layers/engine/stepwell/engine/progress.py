"""Progress: how far the maps of a run have come."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.core.records import Millis
from stepwell.core.state import RunState


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


def progress_of(state: RunState) -> tuple[MapProgress, ...]:
    """All maps of a run, in the order in which they began."""
    found = []
    for each in state.maps.values():
        completed, failed = state.outcomes(each)
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
