"""A deployment on moto, with the real handlers: what the tests of the functions are given.

Events have the shape that Lambda gives them. `deliver` does what Lambda does: it receives, invokes,
and deletes what was not named as failed. moto keeps messages back by the machine's clock; `due_now`
lets that time pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.session import Session
from moto.core.utils import unix_time_millis
from moto.sqs.models import sqs_backends

from stepwell.adapters.aws.environment import WorkerEnvironment
from stepwell.adapters.aws.handlers.inbox import Inbox
from stepwell.adapters.aws.handlers.step import StepFunction
from stepwell.adapters.aws.handlers.sweeper import Sweeper
from stepwell.adapters.aws.handlers.telemetry import metrics
from stepwell.adapters.aws.handlers.worker import Worker
from stepwell.adapters.aws.maps import DynamoMaps
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.aws.signal_queue import OnSignalQueue
from stepwell.adapters.aws.streams import DynamoStreams
from stepwell.adapters.aws.table import Table
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.adapters.local.clock import SkippingClock
from stepwell.authoring.registry import Registry, registry
from stepwell.client import Client
from stepwell.core.definitions import (
    StepDefinition,
    StreamStepDefinition,
    WorkflowDefinition,
)
from stepwell.core.messages import Message, StepAttempt
from stepwell.core.records import RunHeader
from tests.contract.given import START, run
from tests.contract.messaging import ACCOUNT, REGION
from tests.contract.storage import Storage, create_table, faulty_moto
from tests.laws import Sent, check_aws

Handle = Callable[[Mapping[str, Any], Any], Mapping[str, Any]]
MAX_RECEIVES = 3
KEYS = {"k1": "a-secret-of-enough-letters"}
#: Queues and what becomes of what they cannot deliver.
_QUEUES = {
    "run.fifo": "run-dead.fifo",
    "signal.fifo": "signal-dead.fifo",
    "step": "step-dead",
    "inbox": "inbox-dead",
}
_OTHERS = ("schedule-dead",)
_SIGNALS = ("signal.fifo", "signal-dead.fifo")


@dataclass
class LambdaContext:
    """What Lambda hands to a handler besides the event."""

    left: int = 120_000
    function_name: str = "function"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:function"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return self.left


@dataclass(kw_only=True)
class Deployed:
    """The parts of one deployment."""

    session: Session
    environment: WorkerEnvironment
    clock: SkippingClock
    aws: AwsDeployment
    worker: Worker
    step: StepFunction
    inbox: Inbox
    sweeper: Sweeper
    delivered: int = 0

    @property
    def client(self) -> Client:
        return Client(self.aws.ports, self.aws.settings)

    def header(self, run_id: str) -> RunHeader:
        found = run(self.aws.store.get_header(run_id))
        assert found is not None
        return found

    def url(self, queue: str) -> str:
        return f"{self.aws.clients.sqs.meta.endpoint_url}/{ACCOUNT}/{queue}"

    def send(
        self, queue: str, body: str | Message | StepAttempt | OnSignalQueue | Mapping[str, Any]
    ) -> str:
        """Put a message on a queue. Returns its id."""
        if isinstance(body, Mapping):
            text = json.dumps(body)
        else:
            text = body if isinstance(body, str) else body.model_dump_json(exclude_none=True)
        group = (
            body.key.owner if isinstance(body, OnSignalQueue) else getattr(body, "run_id", "group")
        )
        more: dict[str, Any] = {"MessageGroupId": group} if queue.endswith(".fifo") else {}
        sent = self.aws.clients.sqs.send_message(QueueUrl=self.url(queue), MessageBody=text, **more)
        return sent["MessageId"]

    def held(self, queue: str) -> list[Any]:
        """Every message in a queue as moto holds it, invisible ones included."""
        return list(sqs_backends[ACCOUNT][REGION].get_queue(queue)._messages)

    def bodies(self, queue: str) -> list[Any]:
        return [json.loads(message.body) for message in self.held(queue)]

    def due_now(self, queue: str) -> None:
        """Let the time pass for which the messages of a queue are kept back."""
        for message in self.held(queue):
            message.visible_at = 0.0
            message.delayed_until = 0.0
        backend = sqs_backends[ACCOUNT][REGION].get_queue(queue)
        backend.pending_message_groups.clear()
        backend.pending_messages.clear()

    def hidden_for(self, queue: str) -> list[int]:
        """In how many seconds each message comes again."""
        return [
            max(round((max(m.visible_at, m.delayed_until) - unix_time_millis()) / 1000), 0)
            for m in self.held(queue)
        ]

    def event(self, queue: str, most: int = 10) -> dict[str, Any]:
        """The event of a batch, with nothing in it when there is nothing to receive."""
        found = self.aws.clients.sqs.receive_message(
            QueueUrl=self.url(queue),
            MaxNumberOfMessages=most,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        return {"Records": [_record(queue, message) for message in found]}

    def deliver(
        self, queue: str, most: int = 10, *, left: int = 120_000, handle: Handle | None = None
    ) -> list[str]:
        """Deliver a batch, by default to the function of the queue. Returns what failed."""
        event = self.event(queue, most)
        if not event["Records"]:
            return []
        self.delivered += 1
        functions: dict[str, Any] = {
            "run.fifo": self.worker,
            "signal.fifo": self.worker,
            "step": self.step,
            "inbox": self.inbox,
        }
        handle = handle or functions.get(queue, self.sweeper).handle
        response = handle(event, LambdaContext(left))
        failed = [each["itemIdentifier"] for each in response["batchItemFailures"]]
        for record in event["Records"]:
            if record["messageId"] not in failed:
                self.aws.clients.sqs.delete_message(
                    QueueUrl=self.url(queue), ReceiptHandle=record["receiptHandle"]
                )
        return failed

    def check(self) -> None:
        """All laws, on all runs."""
        scheduler: Any = self.aws.clients.scheduler
        named = scheduler.list_schedules(GroupName="stepwell")["Schedules"]
        schedules = [scheduler.get_schedule(GroupName="stepwell", Name=s["Name"]) for s in named]
        inbox = [message.body for message in self.held("inbox")]
        timers = [body for body in inbox if _type(body) == "timer_due"]
        dead = ("run-dead.fifo", "inbox-dead", "schedule-dead")
        others = [each.body for name in (*dead, *_SIGNALS) for each in self.held(name)]
        due = [schedule["Target"]["Input"] for schedule in schedules]
        sent = Sent(
            runs=[
                *(body for body in inbox if body not in timers),
                *(each.body for name in ("run.fifo", *dead) for each in self.held(name)),
            ],
            attempts=[each.body for name in ("step", "step-dead") for each in self.held(name)],
            timers=[*timers, *(body for body in due if _type(body) == "timer_due")],
            signals=[*inbox, *others, *due],
        )
        run(check_aws(self.aws, sent, registry.workflow))

    def pump(self) -> None:
        """Deliver until nothing is to be received from the queues of runs, signals and steps."""
        for _ in range(100):
            before = self.delivered
            if self.held("signal.fifo"):
                self.deliver("signal.fifo")
            self.deliver("run.fifo", 1)
            self.deliver("step", 1)
            if self.delivered == before:
                return
        raise AssertionError("the queues do not become empty")

    def kept(self) -> list[dict[str, Any]]:
        """The rows of dead letters, as plain values."""
        found = self.aws.table.query("L#dead-letters")
        return [
            {name: next(iter(value.values())) for name, value in item.items()} for item in found
        ]

    def fault(self, client: Any, operation: str, *kinds: str) -> list[str]:
        """Let the next attempts at an operation fail; see `Storage.fault`."""
        storage = Storage(
            clients=self.aws.clients,
            table=self.aws.table,
            store=self.aws.store,
            blobs=self.aws.blobs,
            maps=DynamoMaps(self.aws.table, self.aws.clients),
            streams=DynamoStreams(self.aws.table, self.aws.clients),
        )
        return storage.fault(client, operation, *kinds)


def _type(body: str) -> Any:
    with suppress(ValueError):
        message = json.loads(body)
        return message.get("type") if isinstance(message, dict) else None


def _record(queue: str, message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {
            name: {
                "stringValue": value["StringValue"],
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": value["DataType"],
            }
            for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}",
        "awsRegion": REGION,
    }


def _make_queues(sqs: Any) -> None:
    for name in (*_QUEUES.values(), *_OTHERS, *_QUEUES):
        attributes = {"VisibilityTimeout": "150"}
        if name.endswith(".fifo"):
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        if name in _QUEUES:
            target = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{_QUEUES[name]}"
            policy = {"deadLetterTargetArn": target, "maxReceiveCount": MAX_RECEIVES}
            attributes["RedrivePolicy"] = json.dumps(policy)
        sqs.create_queue(QueueName=name, Attributes=attributes)


def variables(sqs: Any) -> dict[str, str]:
    """The environment variables that the template sets."""
    url = f"{sqs.meta.endpoint_url}/{ACCOUNT}"
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}"
    return {
        "STEPWELL_TABLE": "stepwell",
        "STEPWELL_BUCKET": "values",
        "STEPWELL_RUN_QUEUE_URL": f"{url}/run.fifo",
        "STEPWELL_SIGNAL_QUEUE_URL": f"{url}/signal.fifo",
        "STEPWELL_SIGNAL_QUEUE_ARN": f"{arn}:signal.fifo",
        "STEPWELL_SIGNAL_DEAD_LETTER_URL": f"{url}/signal-dead.fifo",
        "STEPWELL_INBOX_QUEUE_URL": f"{url}/inbox",
        "STEPWELL_STEP_QUEUE_URL": f"{url}/step",
        "STEPWELL_RUN_QUEUE_ARN": f"{arn}:run.fifo",
        "STEPWELL_SCHEDULE_GROUP": "stepwell",
        "STEPWELL_SCHEDULE_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/schedules",
        "STEPWELL_SCHEDULE_DEAD_LETTER_ARN": f"{arn}:schedule-dead",
        "STEPWELL_INBOX_DEAD_LETTER_URL": f"{url}/inbox-dead",
        "STEPWELL_KEYS_SECRET": "keys",
        "STEPWELL_MAX_RECEIVE_COUNT": str(MAX_RECEIVES),
        "STEPWELL_INLINE_LIMIT": "",
    }


class OfDeployments(Registry):
    """The process's registry. It publishes what is made for tests of deployments only.

    Other tests define workflows by the dozen, and a list of runs asks for those of each workflow
    that is published.
    """

    def workflow(self, name: str) -> WorkflowDefinition | None:
        """The workflow of this name, whoever defined it."""
        return registry.workflow(name)

    def step(self, name: str) -> StepDefinition | None:
        """The step of this name, whoever defined it."""
        return registry.step(name)

    def stream_step(self, full_name: str) -> StreamStepDefinition | None:
        """The stream step of this name, whoever defined it."""
        return registry.stream_step(full_name)

    def workflows(self) -> Mapping[str, WorkflowDefinition]:
        """The workflows that a deployment of a test publishes."""
        return {
            name: found
            for name, found in registry.workflows().items()
            if found.function.__module__.startswith(("tests.integration.aws.", "examples."))
        }


@contextmanager
def open_deployment(leave: Any = None, unchecked: str | None = None) -> Iterator[Deployed]:
    """A table, a bucket, queues, a secret and a schedule group, and all functions on them.

    What is left of runs in it has to obey the laws, or `unchecked` says why it does not.
    """
    with faulty_moto(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        session = open_session(region=REGION)
        sqs = session.create_client("sqs")
        _make_queues(sqs)
        secrets: Any = session.create_client("secretsmanager")
        secrets.create_secret(Name="keys", SecretString=json.dumps(KEYS))
        scheduler: Any = session.create_client("scheduler")
        scheduler.create_schedule_group(Name="stepwell")
        s3: Any = session.create_client("s3")
        s3.create_bucket(Bucket="values", CreateBucketConfiguration={"LocationConstraint": REGION})
        table = Table("stepwell", session=session, region=REGION)
        create_table(table)
        table.close()
        environment = WorkerEnvironment.from_env(variables(sqs))
        clock = SkippingClock(START)
        aws = open_aws(environment, session, clock=clock)
        deployed = Deployed(
            session=session,
            environment=environment,
            clock=clock,
            aws=aws,
            worker=Worker(
                aws,
                MAX_RECEIVES,
                environment.signal_dead_letter_url,
                registry=OfDeployments(),
                **({} if leave is None else {"leave": leave}),
            ),
            step=StepFunction(aws),
            inbox=Inbox(
                aws, environment.inbox_queue_url, f"{sqs.meta.endpoint_url}/{ACCOUNT}/inbox-dead"
            ),
            sweeper=Sweeper(aws),
        )
        try:
            yield deployed
            if unchecked is None:
                deployed.check()
        finally:
            for part in (deployed.worker, deployed.step, deployed.inbox, deployed.sweeper, aws):
                part.close()
            metrics.clear_metrics()
