"""All ports on the emulator, as the contract suites want them: with a clock that is moved."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from types import FunctionType, ModuleType
from typing import Any, cast
from uuid import uuid4

from botocore.exceptions import ClientError

from stepwell.adapters.aws.blobs import S3Blobs
from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.maps import DynamoMaps
from stepwell.adapters.aws.queue import InboxQueue, SqsQueue, give_back
from stepwell.adapters.aws.schedules import ScheduleTarget
from stepwell.adapters.aws.store import DynamoStore
from stepwell.adapters.aws.streams import DynamoStreams
from stepwell.adapters.aws.table import Table
from stepwell.adapters.aws.timers import AwsTimers
from stepwell.adapters.local.clock import SkippingClock
from stepwell.core.messages import load_message
from stepwell.core.records import Millis
from stepwell.engine.ports import Delivery
from tests.contract.given import MAX_RECEIVES, START, VISIBILITY, Deployment
from tests.contract.messaging import at_ms
from tests.contract.storage import create_table
from tests.e2e.emulator import REGION, Emulator, until

ACCOUNT = "000000000000"


def laws_of(suite: ModuleType, *, without: Sequence[str] = ()) -> dict[str, FunctionType]:
    """The tests of a contract suite, but for those that the service cannot keep."""
    laws = {name: law for name, law in vars(suite).items() if name.startswith("test_")}
    for name in without:
        del laws[name]
    return laws


def laws_of_deployments(suite: ModuleType) -> dict[str, FunctionType]:
    """Those tests of a contract suite that are given a deployment, and not storage of their own."""
    laws = laws_of(suite)
    return {name: law for name, law in laws.items() if "deployment" in signature(law).parameters}


class EmulatorClock(SkippingClock):
    """A clock that the emulator's queues and schedules go by as well.

    Scheduler fires what is due, and deletes it, as soon as its clock has moved. What came due is
    therefore noted before.
    """

    def __init__(
        self, emulator: Emulator, start: Millis, schedules: Callable[[], Mapping[str, Millis]]
    ) -> None:
        super().__init__(start)
        self._emulator = emulator
        self._schedules = schedules
        self._due: set[str] = set()
        emulator.stand(start / 1000)

    def take_due(self) -> set[str]:
        """The schedules that have come due since this was last asked."""
        due, self._due = self._due, set()
        return due

    def _move(self, time: Millis) -> None:
        self._due |= {name for name, at in self._schedules().items() if at <= time}
        super()._move(time)
        self._emulator.stand(time / 1000)


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A message in the dead-letter queue. SQS keeps no reason."""

    body: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """The `Consumer` port on SQS. Lambda is that in a deployment, and it rejects nothing."""

    clients: Clients
    url: str

    async def receive(self) -> Delivery | None:
        """The next message whose group is free, now."""
        found = self.clients.sqs.receive_message(
            QueueUrl=self.url,
            AttributeNames=["ApproximateReceiveCount"],
            MaxNumberOfMessages=1,
            WaitTimeSeconds=0,
        ).get("Messages", [])
        for message in found:
            return Delivery(
                body=message["Body"],
                receipt=message["ReceiptHandle"],
                receive_count=int(message["Attributes"]["ApproximateReceiveCount"]),
                message_id=message["MessageId"],
            )
        return None

    async def delete(self, delivery: Delivery) -> bool:
        """Acknowledge. False when the receipt is stale."""
        try:
            self.clients.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=delivery.receipt)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ReceiptHandleIsInvalid":
                raise
            return False
        return True

    async def give_back(self, delivery: Delivery, *, delay: Millis = 0) -> bool:
        """Make it visible again after a delay."""
        return await give_back(self.clients, self.url, delivery.receipt, delay)

    async def reject(self, delivery: Delivery, reason: str) -> None:
        """Not on AWS."""
        raise NotImplementedError


def open_deployment(emulator: Emulator) -> Deployment:
    """A table, a bucket, queues and a schedule group of their own; the clocks stand at START."""
    name = f"ports-{uuid4().hex[:12]}"
    clients = Clients()
    table = Table(name, region=REGION)
    create_table(table)
    clients.s3.create_bucket(Bucket=name)
    sqs = clients.sqs
    dead = sqs.create_queue(QueueName=f"{name}-dead.fifo", Attributes={"FifoQueue": "true"})
    redrive = {"deadLetterTargetArn": _arn(f"{name}-dead.fifo"), "maxReceiveCount": MAX_RECEIVES}
    url = sqs.create_queue(
        QueueName=f"{name}.fifo",
        Attributes={
            "FifoQueue": "true",
            "ContentBasedDeduplication": "true",
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
            "VisibilityTimeout": str(VISIBILITY // 1000),
            "RedrivePolicy": json.dumps(redrive),
        },
    )["QueueUrl"]
    inbox_url = sqs.create_queue(QueueName=f"{name}-inbox")["QueueUrl"]
    clients.scheduler.create_schedule_group(Name=name)
    clock = EmulatorClock(emulator, START, lambda: _schedules(clients, name))
    queue, inbox = SqsQueue(clients, url), InboxQueue(clients, inbox_url)
    target = ScheduleTarget(
        group=name,
        queue_arn=_arn(f"{name}.fifo"),
        role_arn=f"arn:aws:iam::{ACCOUNT}:role/{name}",
        dead_letter_arn=_arn(f"{name}-dead"),
    )

    def close() -> None:
        emulator.stand(None)
        clients.close()
        table.close()

    return Deployment(
        maps=DynamoMaps(table, clients),
        streams=DynamoStreams(table, clients),
        store=DynamoStore(table, clients),
        blobs=S3Blobs(clients, name),
        queue=queue,
        consumer=Receiver(clients=clients, url=url),
        step_queue=cast("Any", None),  # Lambda receives from it, in `test_deployment`
        timers=AwsTimers(clients, clock, queue=queue, inbox=inbox, target=target),
        clock=clock,
        fire_due=lambda: _fire_due(clients, clock, queue, name),
        dead_letters=lambda: _letters(clients, dead["QueueUrl"]),
        close=close,
    )


async def _fire_due(clients: Clients, clock: EmulatorClock, queue: SqsQueue, name: str) -> int:
    """Hand on what the inbox lets go, and wait until Scheduler has fired all that is due."""
    sqs, fired = clients.sqs, 0
    inbox_url = sqs.get_queue_url(QueueName=f"{name}-inbox")["QueueUrl"]
    while found := sqs.receive_message(
        QueueUrl=inbox_url, MaxNumberOfMessages=10, WaitTimeSeconds=0
    ).get("Messages", []):
        for message in found:
            await queue.send(load_message(message["Body"]))
            sqs.delete_message(QueueUrl=inbox_url, ReceiptHandle=message["ReceiptHandle"])
            fired += 1
    until(
        "schedules that are due have fired",
        lambda: all(at > clock.now() for at in _schedules(clients, name).values()) or None,
    )
    return fired + len(clock.take_due())


def _schedules(clients: Clients, group: str) -> Mapping[str, Millis]:
    """The group's schedules, by name, and their times."""
    scheduler, times = clients.scheduler, {}
    for each in scheduler.list_schedules(GroupName=group)["Schedules"]:
        with suppress(scheduler.exceptions.ResourceNotFoundException):  # it has fired meanwhile
            found = scheduler.get_schedule(GroupName=group, Name=each["Name"])
            times[each["Name"]] = at_ms(found["ScheduleExpression"])
    return times


async def _letters(clients: Clients, url: str) -> Sequence[Letter]:
    found = clients.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=0)
    return tuple(Letter(body=message["Body"]) for message in found.get("Messages", []))


def _arn(queue: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"
