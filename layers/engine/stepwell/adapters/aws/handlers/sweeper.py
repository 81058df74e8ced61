"""The sweeper: takes dead letters, and wakes runs whose waits are overdue.

A dead letter is kept as a row, whatever it is. If it is one of the run queue or the step queue,
what it promised is made true as far as rows can tell, and its run is marked STUCK, with the message
on the mark, so that waking the run sends it again. A timer or a signal that Scheduler or the inbox
could not deliver is delivered. What the inbox refused is not looked into again: it came from
outside, and some messages of the engine would decide what outsiders may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from stepwell.adapters.aws.environment import Environment
from stepwell.adapters.aws.handlers.batch import Context, Record, Source, is_batch, records_of
from stepwell.adapters.aws.handlers.dead_letters import DeadLetters
from stepwell.adapters.aws.handlers.signals import is_sound
from stepwell.adapters.aws.handlers.telemetry import count, logger, seconds
from stepwell.adapters.aws.queue import group_of
from stepwell.adapters.aws.signal_queue import (
    OnSignalQueue,
    SignalForgotten,
    SignalLater,
    load_signal_body,
)
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.core.messages import (
    Message,
    SignalSent,
    StepMessage,
    TimerDue,
    load_attempt,
    load_message,
)
from stepwell.engine.sweep import LONGEST_REASON, Sweep, reason_of


class Sweeper:
    """The sweeper of one process."""

    def __init__(self, aws: AwsDeployment) -> None:
        self._aws = aws
        self._letters = DeadLetters(aws)
        self._sweep = Sweep(aws.ports)
        self._source = Source(aws.clients)
        self._runner = asyncio.Runner()

    @classmethod
    def from_env(cls) -> Sweeper:
        """The sweeper that the environment describes."""
        return cls(open_aws(Environment.from_env()))

    def handle(self, event: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Take a batch of dead letters, or look for what is overdue on any other event."""
        if is_batch(event):
            return self._runner.run(self._source.work_through(records_of(event), self._take))
        left = context.get_remaining_time_in_millis
        found = self._runner.run(self._sweep.wake_overdue(left))
        self._runner.run(self._sweep.delete_expired(left))
        seconds("OldestOverdueWait", found.oldest / 1000)
        count("OverdueRunsWoken", found.woken)
        return {"woken": found.woken, "oldest_overdue_ms": found.oldest}

    def close(self) -> None:
        """End what the function runs; the adapters stay open."""
        self._runner.close()

    async def _take(self, record: Record) -> None:
        message = None if "code" in record.message_attributes else _read(record)
        if isinstance(message, TimerDue) and not _is_ordered(record):
            if await self._sweep.send_timer(message):
                logger.warning("a timer from %s is sent again", record.queue)
                count("TimersRescued")
                return
            message = None  # it is not due: nobody of ours sent it
        if isinstance(message, SignalSent | SignalLater | SignalForgotten):
            await self._take_signal(record, message)
            return
        run_id = _run_of(record, message)
        reason = _reason(record, message)
        await self._letters.keep(record, reason, run_id)
        with logger.append_context_keys(run_id=run_id):
            logger.error("dead letter from %s: %s", record.queue, _told(record, message))
            if run_id is not None:
                await self._sweep.take_dead_letter(run_id, message, reason=reason, body=record.body)
        count("DeadLetters")

    async def _take_signal(self, record: Record, message: OnSignalQueue) -> None:
        """Deliver a signal that never got into its queue; keep one that could not be numbered."""
        if not _is_ordered(record) and not isinstance(message, SignalForgotten):
            signal = message.signal if isinstance(message, SignalLater) else message
            if is_sound(signal):
                await self._aws.ports.signal_timers.schedule(signal)
                logger.warning("a signal from %s is sent again", record.queue)
                count("SignalsRescued")
                return
        reason = (
            "a signal was delivered too often and could not be numbered; see the log, mend the "
            "cause and send it again"
        )
        await self._letters.keep(record, reason, message.key.owner)
        logger.error("dead letter from %s: %s", record.queue, reason)
        count("DeadLetters")


def _is_ordered(record: Record) -> bool:
    """Only the run queue and the signal queue have FIFO queues for their dead letters, and no
    outsider can send to these.
    """
    return record.source.endswith(".fifo")


def _read(record: Record) -> Message | StepMessage | OnSignalQueue | None:
    """The message, if it is one that this queue may hold."""
    loads = _ORDERED if _is_ordered(record) else _OTHERS
    for load in loads:
        with suppress(ValidationError):
            return load(record.body)
    return None


_ORDERED: tuple[Callable[[str], Message | OnSignalQueue], ...] = (load_message, load_signal_body)
_OTHERS: tuple[Callable[[str], StepMessage | TimerDue | OnSignalQueue], ...] = (
    load_attempt,
    TimerDue.model_validate_json,
    load_signal_body,
)


def _run_of(record: Record, message: Message | StepMessage | None) -> str | None:
    if message is not None:
        return message.run_id
    # Nobody can read it, but its group is its run's id, unless that is no fit name for a group.
    group = record.attributes.group
    return group if group is not None and group_of(group) == group else None


def _reason(record: Record, message: Message | StepMessage | None) -> str:
    told = record.message_attributes.get("reason")
    if told is not None and told.text:
        return told.text[:LONGEST_REASON]
    return reason_of(message, record.queue)


def _told(record: Record, message: Message | StepMessage | None) -> str:
    """The reason as it may be logged: what the inbox gives may quote the message."""
    code = record.message_attributes.get("code")
    if code is not None or "reason" in record.message_attributes:
        return f"refused: {(code and code.text) or 'no code'}"[:LONGEST_REASON]
    return _reason(record, message)
