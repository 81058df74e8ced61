"""Laws of the maps in a log."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.core import events as e


def check_maps(events: Sequence[e.Event]) -> None:
    """A map ends after it started, starts again only after that, and has no more items than it had.

    Its items come after its start; only what was begun before its end comes to anything after it.
    In another life of its run it starts anew.
    """
    items: dict[str, set[str]] = {}
    totals: dict[str, int] = {}
    ended: set[str] = set()
    for number, event in enumerate(events, 1):
        if isinstance(event, e.RunRetried):
            for kept in (items, totals, ended):
                kept.clear()
        elif isinstance(event, e.MapStarted):
            again = event.map in totals and event.map not in ended
            assert not again, f"event {number}: map {event.map!r} starts again"
            ended.discard(event.map)
            totals[event.map] = event.total
            items[event.map] = set()
        elif isinstance(event, e.MapEnded):
            known = event.map in totals and event.map not in ended
            assert known, f"event {number}: the end of map {event.map!r}, which does not go on"
            ended.add(event.map)
        else:
            _check_item(event, items, ended, f"event {number}")
    for identity, found in items.items():
        most = totals[identity]
        assert len(found) <= most, f"map {identity!r}: {len(found)} items of {most}"


def _check_item(event: e.Event, items: dict[str, set[str]], ended: set[str], where: str) -> None:
    step: str = getattr(event, "step", "") if event.type.startswith("Step") else ""
    of, mark, _ = step.partition("#")
    if not mark or not of.rpartition(":")[0].endswith("*") or "@" in of or "=" in of:
        return
    assert of in items, f"{where}: {event.type} of {step!r}, and map {of!r} has not started"
    assert of not in ended or step in items[of], (
        f"{where}: {step!r} begins after the end of its map"
    )
    items[of].add(step)
