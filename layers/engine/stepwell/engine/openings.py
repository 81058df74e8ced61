"""Openings: a workflow's hooks on their way to whoever is to answer them.

Each opening is a task of the turn's loop: the row, then the author's `on_created`. It reports once
what it came to; the report is taken with those of steps, one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from stepwell.core import events as e
from stepwell.core.commands import OpenHook
from stepwell.core.decide import unnotified
from stepwell.core.failure import describe, redact
from stepwell.core.records import HookRow, Millis
from stepwell.engine import hooks
from stepwell.engine.replay import Replay
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import Failure

#: Takes in what was reported; what it gives is awaited before the next report.
Report = Callable[[], Coroutine[Any, Any, None] | None]


class Openings:
    """The openings of one turn. `report` is called with what each comes to, `again` with a command
    whose opening is to be tried again later.
    """

    def __init__(
        self,
        turn: TurnContext,
        replay: Replay,
        fraction: Callable[[], float],
        report: Callable[[Report], None],
        again: Callable[[OpenHook], None],
    ) -> None:
        self._turn = turn
        self._replay = replay
        self._fraction = fraction
        self._tell = report
        self._again = again
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __bool__(self) -> bool:
        """Whether one is under way that will report."""
        return bool(self._tasks)

    def begins(self, command: OpenHook) -> Millis | None:
        """When an opening can begin: 0 for now, None for not in this turn."""
        known = self._turn.state.hooks.get(command.id)
        if known is None:
            return 0
        return known.notify_due if known.status == "notifying" else None

    def begin(self, command: OpenHook) -> None:
        """Open a hook, beside all else."""
        task = asyncio.get_running_loop().create_task(self._open(command))
        self._tasks[command.id] = task

    def withdraw(self, hook_id: str) -> asyncio.Task[None] | None:
        """Nobody waits for a hook any more. The task that is ending for it, if there is one."""
        task = self._tasks.pop(hook_id, None)
        if task is not None:
            task.cancel()
        return task

    def stop(self) -> list[asyncio.Task[None]]:
        """End all; their outcomes are dropped. The tasks that are ending."""
        return [task for each in [*self._tasks] if (task := self.withdraw(each)) is not None]

    async def _open(self, command: OpenHook) -> None:
        turn = self._turn
        try:
            row = await hooks.put_row(turn, command.id, command.hook, None)
        except BaseException as error:  # a port failed: the turn ends with it
            self._report(partial(_raise, error), command.id)
            return
        try:
            if row.status == "PENDING":
                await hooks.notify(turn, row, command.hook.on_created)
        except BaseException as error:  # the author's function may raise anything
            self._report(partial(self._failed, command, row, error), command.id)
            return
        self._report(partial(self._opened, row), command.id)

    def _report(self, report: Report, opening: str) -> None:
        if self._tasks.pop(opening, None) is not None:
            self._tell(report)
        # Else it was withdrawn: what it left is closed when the turn settles.

    def _opened(self, row: HookRow) -> None:
        if row.status == "PENDING":
            self._turn.journal.record(hooks.opened(self._turn, row))
            return
        event = hooks.decision_event(self._turn, row)
        if event is not None:
            self._record(event)

    def _failed(
        self, command: OpenHook, row: HookRow, error: BaseException
    ) -> Coroutine[Any, Any, None] | None:
        known = self._turn.state.hooks.get(command.id)
        attempt = 1 if known is None else known.notify_attempts + 1
        now = self._turn.journal.now()
        policy = self._turn.settings.notify_retry
        due = policy.decide(error, attempt, fraction=self._fraction(), now=now)
        if due is None:
            return self._failed_for_good(row, error)
        self._turn.journal.record(
            e.HookNotifyFailed(
                at=now,
                hook=command.id,
                name=row.name,
                attempt=attempt,
                error=self._failure(row, error),
                due=due,
            )
        )
        self._again(command)
        return None

    def _failure(self, row: HookRow, error: BaseException) -> Failure:
        return redact(describe(error), [hooks.token_of(self._turn, row)])

    async def _failed_for_good(self, row: HookRow, error: BaseException) -> None:
        # The row first: from here on nobody can answer what nobody was told of. It carries the
        # failure, so that a turn that finds it after a crash records the same.
        decision = unnotified(self._failure(row, error), self._turn.journal.now())
        store = self._turn.ports.store
        standing = await store.decide_hook(self._turn.run_id, row.hook_id, decision)
        event = None if standing is None else hooks.decision_event(self._turn, standing)
        if event is not None:
            self._record(event)

    def _record(self, event: e.Event) -> None:
        self._turn.journal.record(event)
        self._replay.feed(event)


def _raise(error: BaseException) -> None:
    raise error
