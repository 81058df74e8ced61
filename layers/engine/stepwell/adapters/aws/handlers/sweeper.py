"""The sweeper: takes dead letters, and wakes runs whose waits are overdue.

A dead letter is kept as a row, whatever it is. If it is one of the run queue or the step queue,
what it promised is made true as far as rows can tell, and its run is marked STUCK, with the message
on the mark, so that waking the run sends it again. A timer that Scheduler or the inbox could not
deliver is delivered. What the inbox refused is not looked into again: it came from outside, and
some messages of the engine would decide what outsiders may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stepwell.adapters.aws.environment import Environment
from stepwell.adapters.aws.handlers.batch import Context, Record, Source, is_batch, records_of
from stepwell.adapters.aws.handlers.dead_letters import DeadLetters
from stepwell.adapters.aws.handlers.telemetry import count, logger, seconds
from stepwell.adapters.aws.queue import group_of
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.core.messages import (
    Message,
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
        if isinstance(message, TimerDue) and not _of_run_queue(record):
            if await self._sweep.send_timer(message):
                logger.warning("a timer from %s is sent again", record.queue)
                count("TimersRescued")
                return
            message = None  # it is not due: nobody of ours sent it
        run_id = _run_of(record, message)
        reason = _reason(record, message)
        await self._letters.keep(record, reason, run_id)
        with logger.append_context_keys(run_id=run_id):
            logger.error("dead letter from %s: %s", record.queue, _told(record, message))
            if run_id is not None:
                await self._sweep.take_dead_letter(run_id, message, reason=reason, body=record.body)
        count("DeadLetters")


def _of_run_queue(record: Record) -> bool:
    """Only the run queue has a FIFO queue for its dead letters; no outsider can send to that."""
    return record.source.endswith(".fifo")


def _read(record: Record) -> Message | StepMessage | None:
    """The message, if it is one that this queue may hold."""
    try:
        if _of_run_queue(record):
            return load_message(record.body)
        return _timer_or_attempt(record.body)
    except ValidationError:
        return None


def _timer_or_attempt(body: str) -> TimerDue | StepMessage:
    try:
        return load_attempt(body)
    except ValidationError:
        return TimerDue.model_validate_json(body)


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
