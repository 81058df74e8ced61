"""Shields: while a task is in one, cancelling it from outside takes effect when the block ends.

What was begun inside of the shield, a timeout or a task group, cancels its own block as ever: only
who began before the shield has to wait for its end.
"""

from __future__ import annotations

import asyncio
from types import FrameType
from typing import Any

_ON_TIMEOUT = asyncio.Timeout._on_timeout.__code__  # type: ignore[attr-defined]
_ON_TASK_DONE = asyncio.TaskGroup._on_task_done.__code__
_CREATE_TASK = asyncio.TaskGroup.create_task.__code__


class Shields:
    """The shields that one task is in, and what waits for them to end. It changes with each."""

    __slots__ = ("_groups", "_waiting", "depth")

    def __init__(self) -> None:
        #: How many shields the task is in, one within the other.
        self.depth = 0
        #: Cancels that wait, by how deep it was where they began.
        self._waiting: list[tuple[int, Any]] = []
        #: How deep it was where task groups began, by group.
        self._groups: dict[int, int] = {}

    def note(self, caller: FrameType) -> None:
        """A task is created in the task by this frame: perhaps the first one of a group."""
        if caller.f_code is _CREATE_TASK:
            group = caller.f_locals["self"]
            if not group._tasks:  # else it began before, perhaps outside of the shield
                self._groups[id(group)] = self.depth

    def holds(self, caller: FrameType, message: Any) -> bool:
        """Whether a cancel that comes from this frame has to wait. It is kept then."""
        began = self._depth_of(caller)
        if began >= self.depth:
            return False
        self._waiting.append((began, message))
        return True

    def _depth_of(self, caller: FrameType) -> int:
        if caller.f_code is _ON_TIMEOUT:
            handle = getattr(caller.f_locals["self"], "_timeout_handler", None)
            return getattr(handle, "depth", 0)
        if caller.f_code is _ON_TASK_DONE:
            return self._groups.get(id(caller.f_locals["self"]), 0)
        return 0

    def leave(self) -> list[Any]:
        """Leave the innermost shield. The messages of the cancels that waited for just that."""
        self.depth -= 1
        due = [message for began, message in self._waiting if began >= self.depth]
        self._waiting = [each for each in self._waiting if each[0] < self.depth]
        if not self.depth:
            self._groups.clear()
        return due
