"""Runs whose waits are overdue: their timers got lost, and each is woken.

A lost timer is rare, so this is a net. A wait may also be overdue since the worker cannot keep up,
and then wake-ups in every minute would make that worse: the longer it has been overdue, the more
seldom its run is woken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from stepwell.adapters.aws.handlers.telemetry import logger
from stepwell.adapters.aws.wiring import AwsDeployment
from stepwell.core.messages import Wake
from stepwell.core.records import Millis, RunHeader

#: How late a timer may be without anything being wrong: Scheduler's minute, and time in the queues.
GRACE: Millis = 120_000
_RUNS = 500
#: More than runs, for some may be of runs that are stuck, and these are not woken.
_HOOKS = 2_000
#: What is left of the function's time when nobody else is woken.
_RESERVE: Millis = 10_000
#: A wait that is overdue by so many minutes, or more, is not seen to in each of them.
_SELDOM = 8
_MOST_SELDOM = 64


@dataclass(slots=True)
class Found:
    """What a sweep found: the longest that a wait is overdue, and how many runs were woken.

    It is added to while the sweep goes on.
    """

    oldest: Millis = 0
    woken: int = 0


class OverdueWaits:
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
            found.oldest = max(found.oldest, now - _due(header, now))
            await self._wake(header.run_id, now, now - _due(header, now), woken)
        for row in await self._aws.store.overdue_hooks(now - GRACE, _HOOKS):
            if time_left() < _RESERVE:
                break
            late = now - (row.expires_at or now)
            if await self._may_wake(row.run_id):
                found.oldest = max(found.oldest, late)
                await self._wake(row.run_id, now, late, woken)
        found.woken = len(woken)
        if woken:
            logger.warning(
                "%d runs were woken for overdue waits, the oldest since %d ms",
                found.woken,
                found.oldest,
                extra={"run_ids": sorted(woken)[:20]},
            )
        return found

    async def _may_wake(self, run_id: str) -> bool:
        """Not what is stuck: it would fail at every sweep."""
        try:
            header = await self._aws.store.get_header(run_id)
        except ValidationError:  # of this row alone; the turn of whoever wakes it tells
            logger.error("the header of run %s cannot be read", run_id)
            return False
        return header is not None and (header.attention is None or header.attention.kind != "STUCK")

    async def _wake(self, run_id: str, now: Millis, late: Millis, woken: set[str]) -> None:
        if run_id not in woken and _is_time(late):
            cause = f"overdue at minute {now // 60_000}"
            await self._aws.queue.send(Wake(run_id=run_id, cause=cause))
            woken.add(run_id)


def _is_time(late: Millis) -> bool:
    """Whether a wait that is so late is to be seen to: four times while its lateness doubles."""
    minutes = late // 60_000
    if minutes < _SELDOM:
        return True
    return minutes % min(1 << (minutes.bit_length() - 3), _MOST_SELDOM) == 0


def _due(header: RunHeader, now: Millis) -> Millis:
    return min((each.until for each in header.waiting if each.until is not None), default=now)
