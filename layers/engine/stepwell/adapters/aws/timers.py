"""Durable timers: the run queue itself, the inbox queue's delay, or EventBridge Scheduler.

A time that has passed goes to the run queue at once. Up to fifteen minutes SQS keeps the message
back, to the second. Beyond that a one-off schedule sends it: within a minute after its time, never
before, and then it is deleted. A schedule is named after its run, wait and arm, so starting it
again finds it.

A message that SQS keeps back cannot be called back, and one of them may be sent twice. Both wake a
run for nothing, which is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.queue import (
    LONGEST_DELAY_S,
    InboxQueue,
    SqsQueue,
    body_of,
    group_of,
    seconds_up,
)
from stepwell.adapters.aws.schedules import Schedules, ScheduleTarget, name_of, schedule
from stepwell.core.messages import TimerDue
from stepwell.core.records import Millis
from stepwell.engine.ports import Clock

if TYPE_CHECKING:  # the stubs are a tool of development and are not deployed
    from types_boto3_scheduler.type_defs import CreateScheduleInputTypeDef


class AwsTimers:
    """Implements the `Timers` port."""

    def __init__(
        self,
        clients: Clients,
        clock: Clock,
        *,
        queue: SqsQueue,
        inbox: InboxQueue,
        target: ScheduleTarget,
    ) -> None:
        self._clock = clock
        self._queue = queue
        self._inbox = inbox
        self._target = target
        self._schedules = Schedules(clients, target.group)

    async def start(self, run_id: str, wait_id: str, arm: int, due: Millis) -> None:
        """Make sure of a timer. Starting it again with another `due` moves it there.

        What was sent or kept back by SQS before comes all the same: a wake-up too many.
        """
        message = TimerDue(run_id=run_id, wait_id=wait_id, arm=arm, due=due)
        delay = seconds_up(due - self._clock.now())
        if delay <= 0:
            await self._queue.send(message)
        elif delay <= LONGEST_DELAY_S:
            await self._inbox.send_later(message, delay)
        else:
            await self._schedules.make_sure(schedule_of(message, self._target))

    async def cancel(self, run_id: str, wait_id: str, arm: int) -> None:
        """Forget a timer; it may still fire."""
        await self._schedules.delete(schedule_name(run_id, wait_id, arm))


def schedule_name(run_id: str, wait_id: str, arm: int) -> str:
    """The name of a timer's schedule."""
    return name_of(run_id, wait_id, arm)


def schedule_of(message: TimerDue, target: ScheduleTarget) -> CreateScheduleInputTypeDef:
    """The request for a schedule that sends the message to the run's group when it is due."""
    return schedule(
        schedule_name(message.run_id, message.wait_id, message.arm),
        message.due,
        target,
        group=group_of(message.run_id),
        body=body_of(message),
    )
