"""Schedules of EventBridge Scheduler that send one message each, and then are deleted.

A schedule fires within a minute after its time, never before. It is named after what it is for, so
that making it again finds it.

Names and expressions are checked here: emulators take what the service refuses.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from stepwell.adapters.aws.clients import Clients, error_code
from stepwell.adapters.aws.queue import seconds_up
from stepwell.core.records import Millis
from stepwell.engine.ports import TransientError

if TYPE_CHECKING:  # the stubs are a tool of development and are not deployed
    from types_boto3_scheduler.type_defs import (
        CreateScheduleInputTypeDef,
        GetScheduleOutputTypeDef,
    )

#: How often a schedule that comes and goes under our hands is looked at before giving up.
ROUNDS = 3

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The last second that `at(...)` can name.
_END: Millis = 253_402_300_799_000
_NAME = re.compile(r"[0-9A-Za-z_.-]{1,64}")
_RUN_PART = re.compile(r"[0-9A-Za-z_-]{1,32}")
_AT = re.compile(r"at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)")
_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", re.ASCII)
_QUEUE_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[\w-]+(\.fifo)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTarget:
    """Where schedules are kept and what they may do. Raises `ValueError` on what AWS would refuse.

    The role may send to the queue and to the dead letters, and is assumed by Scheduler.
    """

    group: str
    queue_arn: str
    role_arn: str
    dead_letter_arn: str

    def __post_init__(self) -> None:
        _check(_NAME, "schedule group", self.group)
        _check(_QUEUE_ARN, "ARN of the queue", self.queue_arn)
        _check(_ROLE_ARN, "ARN of the role for schedules", self.role_arn)
        _check(_QUEUE_ARN, "ARN of the dead-letter queue", self.dead_letter_arn)
        if not self.queue_arn.endswith(".fifo"):
            raise ValueError(f"schedules send to a FIFO queue: {self.queue_arn!r}")
        if self.dead_letter_arn.endswith(".fifo"):
            raise ValueError(
                f"Scheduler takes no FIFO queue for dead letters: {self.dead_letter_arn!r}"
            )


class Schedules:
    """The schedules of one group, made sure of and deleted."""

    def __init__(self, clients: Clients, group: str) -> None:
        self._clients = clients
        self._group = group

    async def make_sure(self, wanted: CreateScheduleInputTypeDef) -> None:
        """Leave a schedule standing that does this. It may change under our hands."""
        for _ in range(ROUNDS):
            if await self._create(wanted):
                return
            standing = await self._find(wanted["Name"])
            if standing is None:  # it has just fired or been cancelled
                continue
            if _agrees(standing, wanted) or await self._replace(wanted):
                return
        raise TransientError(f"schedule {wanted['Name']!r} is being changed by somebody else")

    async def delete(self, name: str) -> None:
        """Delete a schedule if it is there; it may still fire."""
        try:
            await self._clients.call(
                self._clients.scheduler.delete_schedule, GroupName=self._group, Name=name
            )
        except ClientError as error:
            # A conflict: it is being changed at this moment. It fires once and is gone.
            if error_code(error) not in ("ResourceNotFoundException", "ConflictException"):
                raise

    async def _create(self, wanted: CreateScheduleInputTypeDef) -> bool:
        """Whether it was created; False when one of its name stands."""
        try:
            await self._clients.call(self._clients.scheduler.create_schedule, **wanted)
        except ClientError as error:
            if error_code(error) == "ConflictException":
                return False
            raise  # a group that is not there, too
        return True

    async def _find(self, name: str) -> GetScheduleOutputTypeDef | None:
        try:
            return await self._clients.call(
                self._clients.scheduler.get_schedule, GroupName=self._group, Name=name
            )
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return None
            raise

    async def _replace(self, wanted: CreateScheduleInputTypeDef) -> bool:
        """Whether it was replaced; False when it is gone or somebody else is changing it."""
        try:
            await self._clients.call(self._clients.scheduler.update_schedule, **wanted)
        except ClientError as error:
            if error_code(error) in ("ResourceNotFoundException", "ConflictException"):
                return False
            raise
        return True


def name_of(run_id: str, *rest: str | int) -> str:
    """The name of a schedule: the run, as far as it can stand there, and a hash of all.

    Schedules of a run share the part before the dot, so that an operator finds them by prefix.
    """
    run = run_id if _RUN_PART.fullmatch(run_id) else sha256(run_id.encode()).hexdigest()[:32]
    whole = sha256(json.dumps([run_id, *rest]).encode()).hexdigest()[:31]
    return f"{run}.{whole}"


def at_expression(due: Millis) -> str:
    """`at(...)` in UTC, rounded up to the second. Raises `ValueError` outside years 1 to 9999."""
    if due > _END:
        raise ValueError(f"a schedule cannot name a time after the year 9999: {due} ms")
    try:
        time = _EPOCH + timedelta(seconds=seconds_up(due))
    except OverflowError as error:
        raise ValueError(f"a schedule cannot name a time before the year 1: {due} ms") from error
    return f"at({time.replace(tzinfo=None).isoformat(timespec='seconds')})"


def schedule(
    name: str, due: Millis, target: ScheduleTarget, *, group: str, body: str
) -> CreateScheduleInputTypeDef:
    """The request for a schedule that sends a body to a group of the queue when it is due."""
    expression = at_expression(due)
    _check(_NAME, "schedule name", name)
    _check(_AT, "schedule expression", expression)
    return {
        "GroupName": target.group,
        "Name": name,
        "ScheduleExpression": expression,
        "ScheduleExpressionTimezone": "UTC",
        "State": "ENABLED",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": target.queue_arn,
            "RoleArn": target.role_arn,
            # Scheduler replaces `<aws.scheduler.…>` in what it sends, and a value may hold that.
            "Input": body.replace("<", "\\u003c"),
            "SqsParameters": {"MessageGroupId": group},
            "DeadLetterConfig": {"Arn": target.dead_letter_arn},
            # The service's own defaults, stated so that a comparison knows them: a day of tries.
            "RetryPolicy": {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185},
        },
    }


def _agrees(standing: GetScheduleOutputTypeDef, wanted: CreateScheduleInputTypeDef) -> bool:
    """Whether what stands does what is wanted. Other fields than those we set do not count."""
    here, there = dict(standing), dict(wanted)
    return all(here.get(field) == value for field, value in there.items())


def _check(pattern: re.Pattern[str], what: str, text: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"{what} {text!r}: AWS would not take it")
