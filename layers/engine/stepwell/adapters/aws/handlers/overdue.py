"""Runs whose waits are overdue: their timers got lost, and each is woken.

A lost timer is rare, so this is a net, and it may be slow: runs with overdue timers are found at
once, pending hooks are walked through in order, a bounded number at each sweep, and the next sweep
goes on where this one stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepwell.adapters.aws.handlers.telemetry import logger
from stepwell.adapters.aws.keys import SWEEPER
from stepwell.adapters.aws.wiring import AwsDeployment
from stepwell.core.messages import Wake
from stepwell.core.records import HookRow, Millis, RunHeader
from stepwell.engine.ports import Page

#: How late a timer may be without anything being wrong: Scheduler's minute, and time in the queues.
GRACE: Millis = 120_000
_RUNS = 500
_PAGE = 200
_PAGES = 25
#: What is left of the function's time when no further page is begun.
_RESERVE: Millis = 10_000
_HOOKS = "hooks"


@dataclass(slots=True)
class Found:
    """What a sweep found: the longest that a wait is overdue, and how many runs were woken.

    It is added to while the sweep goes on.
    """

    oldest: Millis = 0
    woken: int = 0


class Overdue:
    """Looks for overdue waits."""

    def __init__(self, aws: AwsDeployment) -> None:
        self._aws = aws

    async def sweep(self, time_left: Callable[[], Millis]) -> Found:
        """Wake what is overdue, as far as the time allows."""
        now = self._aws.ports.clock.now()
        found = Found()
        woken: set[str] = set()
        for header in await self._aws.store.overdue_runs(now - GRACE, _RUNS):
            if time_left() < _RESERVE:
                break
            await self._wake(header.run_id, now, woken)
            found.oldest = max(found.oldest, now - _due(header, now))
        for _ in range(_PAGES):
            if time_left() < _RESERVE or await self._look_at_hooks(now, woken, found):
                break
        found.woken = len(woken)
        if woken:
            logger.warning(
                "%d runs were woken for overdue waits, the oldest since %d ms",
                found.woken,
                found.oldest,
                extra={"run_ids": sorted(woken)[:20]},
            )
        return found

    async def _look_at_hooks(self, now: Millis, woken: set[str], found: Found) -> bool:
        """Look at one page of hooks. Whether it was the last."""
        page = await self._next_page()
        for row in page.items:
            late = 0 if row.expires_at is None else now - row.expires_at
            if late > GRACE and await self._may_wake(row.run_id):
                await self._wake(row.run_id, now, woken)
                found.oldest = max(found.oldest, late)
        await self._remember(page.cursor)
        return page.cursor is None

    async def _next_page(self) -> Page[HookRow]:
        item = await self._aws.clients.call(self._aws.table.get, SWEEPER, _HOOKS)
        cursor = item["cursor"]["S"] if item and "cursor" in item else None
        try:
            return await self._aws.store.list_hooks(limit=_PAGE, cursor=cursor)
        except ValueError:  # written by another version
            return await self._aws.store.list_hooks(limit=_PAGE)

    async def _remember(self, cursor: str | None) -> None:
        item = {"pk": {"S": SWEEPER}, "sk": {"S": _HOOKS}}
        if cursor is not None:
            item["cursor"] = {"S": cursor}
        await self._aws.clients.call(self._aws.table.put, item)

    async def _may_wake(self, run_id: str) -> bool:
        """Not what is stuck: it would fail at every sweep."""
        header = await self._aws.store.get_header(run_id)
        return header is not None and (header.attention is None or header.attention.kind != "STUCK")

    async def _wake(self, run_id: str, now: Millis, woken: set[str]) -> None:
        if run_id not in woken:
            cause = f"overdue at minute {now // 60_000}"
            await self._aws.queue.send(Wake(run_id=run_id, cause=cause))
            woken.add(run_id)


def _due(header: RunHeader, now: Millis) -> Millis:
    return min((each.until for each in header.waiting if each.until is not None), default=now)
