"""Shields on the replay: where the code enters and leaves them. See `engine.shields`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from stepwell.authoring.context import RunContext
from stepwell.engine.loop import DeterministicLoop, ReplayTask
from stepwell.engine.shields import Shields


class Shielding(RunContext):
    """The part of a replay that is about shields."""

    loop: DeterministicLoop
    _main: ReplayTask
    _over: bool

    def enter_shield(self) -> None:
        """From here on, cancelling the current branch waits."""
        task = self._branch()
        if task.shields is None:
            task.shields = Shields()
        if not task.shields.depth:
            self.loop.shielded += 1
        task.shields.depth += 1

    def leave_shield(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        """It waits no more. What to await to be told of a cancel that came, None if none did."""
        task = self._branch()
        assert task.shields is not None
        due = task.shields.leave()
        if not task.shields.depth:
            self.loop.shielded -= 1
        if self._over or not due:
            return None
        for message in due:
            task.tell(message)
        return None if error is not None else asyncio.sleep(0)

    def _branch(self) -> ReplayTask:
        task = self._main if self.blocking else asyncio.current_task(self.loop)
        assert isinstance(task, ReplayTask)
        return task
