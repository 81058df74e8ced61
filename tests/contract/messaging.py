"""SQS and Scheduler on moto, with faults: what the tests of the AWS queue and timers are given.

What moto does wrong stays out: order after a redelivery, deduplication after a delete, firing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse
from moto.sqs.models import sqs_backends

from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.queue import InboxQueue, SqsQueue
from stepwell.adapters.aws.schedules import ScheduleTarget
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.aws.signal_queue import SignalLater, SqsSignalQueue, load_signal_body
from stepwell.adapters.aws.signal_timers import AwsSignalTimers
from stepwell.adapters.aws.timers import AwsTimers
from stepwell.adapters.local.clock import SkippingClock
from stepwell.core.messages import load_message
from stepwell.engine.ports import Delivery
from tests.contract.given import START

ACCOUNT = "123456789012"
REGION = "eu-central-1"
GROUP = "stepwell"
TARGET = ScheduleTarget(
    group=GROUP,
    queue_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:run.fifo",
    role_arn=f"arn:aws:iam::{ACCOUNT}:role/stepwell/schedules",
    dead_letter_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:schedules-dead",
)
SIGNAL_TARGET = replace(TARGET, queue_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:signal.fifo")
_SKIP = "x-test-fault"


@dataclass(kw_only=True)
class Messaging:
    """The queues and the schedule group, and the adapters on them."""

    clients: Clients
    run_url: str
    inbox_url: str
    queue: SqsQueue
    inbox: InboxQueue
    timers: AwsTimers
    signals: SqsSignalQueue
    signal_timers: AwsSignalTimers
    clock: SkippingClock
    slept: list[float] = field(default_factory=list)

    async def receive(self) -> Delivery | None:
        """The next message of the run queue."""
        found = self.clients.sqs.receive_message(
            QueueUrl=self.run_url, AttributeNames=["All"], WaitTimeSeconds=0
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
        """What Lambda does with a message that did not fail."""
        self.clients.sqs.delete_message(QueueUrl=self.run_url, ReceiptHandle=delivery.receipt)
        return True

    def sent(self, queue: str = "run.fifo") -> list[Any]:
        """Every message in a queue as moto holds it, delayed and received ones included."""
        return list(sqs_backends[ACCOUNT][REGION].get_queue(queue)._messages)

    def delays(self) -> list[int]:
        """By how many seconds each message of the inbox is kept back."""
        return [
            max(round((message.delayed_until - message.sent_timestamp) / 1000), 0)
            for message in self.sent("inbox")
        ]

    def schedules(self) -> list[dict[str, Any]]:
        """All schedules of the group, in full."""
        scheduler = self.clients.scheduler
        listed = scheduler.list_schedules(GroupName=GROUP)["Schedules"]
        return [dict(scheduler.get_schedule(GroupName=GROUP, Name=s["Name"])) for s in listed]

    async def fire_due(self) -> int:
        """What AWS does when time passes: fire schedules, hand on what was kept back."""
        fired = 0
        for schedule in sorted(self.schedules(), key=lambda s: str(s["ScheduleExpression"])):
            if at_ms(schedule["ScheduleExpression"]) <= self.clock.now():
                target = schedule["Target"]
                self.clients.sqs.send_message(
                    QueueUrl=self.url(target["Arn"].rpartition(":")[2]),
                    MessageBody=target["Input"],
                    MessageGroupId=target["SqsParameters"]["MessageGroupId"],
                )
                self.clients.scheduler.delete_schedule(GroupName=GROUP, Name=schedule["Name"])
                fired += 1
        for message in self.sent("inbox"):
            delay = round((message.delayed_until - message.sent_timestamp) / 1000) * 1000
            if START + delay <= self.clock.now():  # moto's clock runs by itself; ours began here
                await self._hand_on(message.body)
                fired += 1
        return fired

    async def _hand_on(self, body: str) -> None:
        if json.loads(body)["type"] == "timer_due":
            await self.queue.send(load_message(body))
        else:
            later = load_signal_body(body)
            assert isinstance(later, SignalLater)
            await self.signals.send([later.signal])

    def url(self, queue: str) -> str:
        """The URL of a queue."""
        return self.run_url.replace("run.fifo", queue)

    def fault(self, operation: str, *kinds: str) -> list[str]:
        """Let the next calls of an operation fail, one kind each. Returns what is left to happen.

        `throttle` and `500` are replies, with nothing done. A `reset` comes before the request is
        done, `lost` and `timeout` after it.
        """
        client = self.clients.sqs if _is_sqs(operation) else self.clients.scheduler
        service = client.meta.service_model.service_id.hyphenize()
        left = list(kinds)

        def before(request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
            if not left or left[0] in ("lost", "timeout"):
                return None
            kind = left.pop(0)
            if kind == "reset":
                raise ConnectionClosedError(endpoint_url=request.url)
            request.headers[_SKIP] = kind
            return _reply(request, kind)

        def after(request: AWSPreparedRequest, event_name: str, **_: Any) -> None:
            if not event_name.endswith(f".{operation}"):
                return
            if left and left[0] in ("lost", "timeout") and _SKIP not in request.headers:
                error = ReadTimeoutError if left.pop(0) == "timeout" else ConnectionClosedError
                raise error(endpoint_url=request.url)

        events: Any = client.meta.events
        events.register_first(f"before-send.{service}.{operation}", before)
        # Handlers of the more general name come later: moto's, and after it this one.
        events.register_last("before-send", after)
        return left

    def count(self, operation: str) -> list[str]:
        """A list that grows by one with each attempt at an operation."""
        client = self.clients.sqs if _is_sqs(operation) else self.clients.scheduler
        service = client.meta.service_model.service_id.hyphenize()
        seen: list[str] = []

        def note(request: AWSPreparedRequest, **_: Any) -> None:
            seen.append(operation)

        client.meta.events.register_first(f"before-send.{service}.{operation}", note)
        return seen


def at_ms(expression: str) -> int:
    """The time that an `at(...)` names, read by other means than it was written."""
    match = re.fullmatch(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)", expression)
    assert match is not None
    time = datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return int(time.timestamp()) * 1000


def _is_sqs(operation: str) -> bool:
    return "Message" in operation


def _reply(request: AWSPreparedRequest, kind: str) -> AWSResponse:
    code, status = {
        "throttle": ("ThrottlingException", 429),
        "500": ("InternalServerException", 500),
        "denied": ("AccessDeniedException", 403),
        "conflict": ("ConflictException", 409),
        "quota": ("ServiceQuotaExceededException", 402),
        "expired": ("InvalidParameterValue", 400),
    }[kind]
    message = "Value x for parameter ReceiptHandle is invalid. Reason: The receipt has expired."
    body = f'{{"__type":"{code}","message":"{message}"}}'
    headers = {"x-amzn-errortype": code, "content-type": "application/json"}
    return AWSResponse(request.url, status, headers, MockRawResponse(body))  # type: ignore[arg-type]


@contextmanager
def open_messaging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Messaging]:
    """Queues and a schedule group on moto, with pauses between attempts left out."""
    stub: Callable[..., Any] = BotocoreStubber.__call__

    def unless_faulty(self: Any, event_name: str, request: Any, **more: Any) -> Any:
        # botocore calls all handlers, so a reply of ours would not keep moto from doing the work.
        return None if _SKIP in request.headers else stub(self, event_name, request, **more)

    slept: list[float] = []
    monkeypatch.setattr(BotocoreStubber, "__call__", unless_faulty)
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=slept.append))
    with mock_aws():
        clients = Clients(open_session(region=REGION), threads=4)
        sqs = clients.sqs
        fifo: Any = {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "true",
            "VisibilityTimeout": "150",
        }
        run_url, signal_url = (
            sqs.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
            for name in ("run.fifo", "signal.fifo")
        )
        inbox_url = sqs.create_queue(QueueName="inbox")["QueueUrl"]
        clients.scheduler.create_schedule_group(Name=GROUP)
        queue, inbox = SqsQueue(clients, run_url), InboxQueue(clients, inbox_url)
        signals = SqsSignalQueue(clients, signal_url)
        clock = SkippingClock(START)
        yield Messaging(
            clients=clients,
            run_url=run_url,
            inbox_url=inbox_url,
            queue=queue,
            inbox=inbox,
            timers=AwsTimers(clients, clock, queue=queue, inbox=inbox, target=TARGET),
            signals=signals,
            signal_timers=AwsSignalTimers(
                clients, clock, queue=signals, inbox=inbox, target=SIGNAL_TARGET
            ),
            clock=clock,
            slept=slept,
        )
        clients.close()
