"""Signals that are sent later: as durable timers are, but to the signal queue.

The worker may make schedules. All others ask it to, by a message on the signal queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.queue import LONGEST_DELAY_S, InboxQueue, group_of, seconds_up
from stepwell.adapters.aws.schedules import Schedules, ScheduleTarget, name_of, schedule
from stepwell.adapters.aws.signal_queue import (
    SignalForgotten,
    SignalLater,
    SqsSignalQueue,
    signal_body,
)
from stepwell.core.messages import SignalSent
from stepwell.core.records import Millis
from stepwell.core.signals import StreamKey
from stepwell.engine.ports import Clock

if TYPE_CHECKING:  # the stubs are a tool of development and are not deployed
    from types_boto3_scheduler.type_defs import CreateScheduleInputTypeDef


class AwsSignalTimers:
    """Implements the `SignalTimers` port where schedules may be made."""

    def __init__(
        self,
        clients: Clients,
        clock: Clock,
        *,
        queue: SqsSignalQueue,
        inbox: InboxQueue,
        target: ScheduleTarget,
    ) -> None:
        self._clock = clock
        self._queue = queue
        self._inbox = inbox
        self._target = target
        self._schedules = Schedules(clients, target.group)

    async def schedule(self, signal: SignalSent) -> None:
        """Make sure that a signal is sent at its `due`. Scheduling it again moves a schedule there.

        What SQS keeps back for up to fifteen minutes comes when it was to come first; its id makes
        one signal of the two.
        """
        delay = seconds_up(_due(signal) - self._clock.now())
        if delay <= 0:
            await self._queue.send([signal])
        elif delay <= LONGEST_DELAY_S:
            await self._inbox.send_body(signal_body(SignalLater(signal=signal)), delay)
        else:
            await self._schedules.make_sure(signal_schedule(signal, self._target))

    async def cancel(self, key: StreamKey, signal_id: str) -> None:
        """Forget a scheduled signal; one that SQS keeps back is sent all the same."""
        await self._schedules.delete(signal_schedule_name(key, signal_id))


class AskingSignalTimers:
    """Implements the `SignalTimers` port by asking the worker."""

    def __init__(self, queue: SqsSignalQueue) -> None:
        self._queue = queue

    async def schedule(self, signal: SignalSent) -> None:
        """Have a signal sent at its `due`."""
        await self._queue.ask(SignalLater(signal=signal))

    async def cancel(self, key: StreamKey, signal_id: str) -> None:
        """Have a scheduled signal forgotten; it may still be sent."""
        stream, run = key
        await self._queue.ask(SignalForgotten(stream=stream, stream_run=run, signal_id=signal_id))


def signal_schedule_name(key: StreamKey, signal_id: str) -> str:
    """The name of the schedule that sends a signal."""
    return name_of(key.owner, "signal", key.stream, key.run, signal_id)


def signal_schedule(signal: SignalSent, target: ScheduleTarget) -> CreateScheduleInputTypeDef:
    """The request for a schedule that sends a signal to its stream run's group when it is due."""
    return schedule(
        signal_schedule_name(signal.key, signal.signal_id),
        _due(signal),
        target,
        group=group_of(signal.key.owner),
        body=signal_body(signal),
    )


def _due(signal: SignalSent) -> Millis:
    return signal.published_at if signal.due is None else signal.due
