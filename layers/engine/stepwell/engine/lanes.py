"""Lanes: how many items of a map run at a time.

An item takes a lane when it could begin, and gives it up when it has ended, when it waits for a
hook, and between its attempts. The others wait in the order in which they could have begun.
"""

from __future__ import annotations

from collections import deque

from stepwell.core.commands import RunStep, StartMap


class Lanes:
    """The lanes of the maps of one turn. They change as items begin and end."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._running: dict[str, set[str]] = {}
        self._waiting: dict[str, deque[RunStep]] = {}

    def open(self, command: StartMap) -> None:
        """A map goes on in this turn. Without a limit nothing is kept of it."""
        if command.max_concurrency is not None:
            self._limits[command.id] = command.max_concurrency
            self._running[command.id] = set()
            self._waiting[command.id] = deque()

    def admit(self, item: RunStep) -> bool:
        """Whether a step may begin now; an item that may not is kept until it can."""
        limit = self._limits.get(item.map or "")
        if limit is None:
            return True
        assert item.map is not None
        running = self._running[item.map]
        if len(running) >= limit:
            self._waiting[item.map].append(item)
            return False
        running.add(item.id)
        return True

    def occupy(self, item: RunStep) -> None:
        """An item is under way already, elsewhere."""
        if item.map in self._limits:
            self._running[item.map].add(item.id)

    def leave(self, item: RunStep) -> list[RunStep]:
        """An item gives up its lane, if it has one. Returns who may begin in its place."""
        running = self._running.get(item.map or "")
        if running is None or item.id not in running:
            return []
        assert item.map is not None
        running.discard(item.id)
        waiting = self._waiting[item.map]
        if not waiting:
            return []
        after = waiting.popleft()
        running.add(after.id)
        return [after]
