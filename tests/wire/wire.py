"""All AWS adapters on the door, and what is behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import botocore.loaders
import botocore.session
import pytest
from botocore.retries.quota import RetryQuota
from botocore.session import Session
from moto.dynamodb.models import dynamodb_backends
from moto.s3.models import s3_backends
from moto.scheduler.models import scheduler_backends
from moto.sqs.models import sqs_backends

from stepwell.adapters.aws.blobs import S3Blobs
from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.queue import InboxQueue, SqsQueue, SqsStepQueue
from stepwell.adapters.aws.schedules import ScheduleTarget
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.aws.signal_queue import SqsSignalQueue
from stepwell.adapters.aws.signal_timers import AwsSignalTimers
from stepwell.adapters.aws.store import DynamoStore
from stepwell.adapters.aws.streams import DynamoStreams
from stepwell.adapters.aws.table import Table
from stepwell.adapters.aws.timers import AwsTimers
from stepwell.adapters.local.clock import SkippingClock
from tests.contract.given import START
from tests.contract.messaging import ACCOUNT, REGION
from tests.contract.storage import create_table
from tests.wire.door import Asked, Door, no_faults, open_door
from tests.wire.faults import Fault

BUCKET = "values"
GROUP = "stepwell"
TABLE = "stepwell"
QUEUES = ("run.fifo", "signal.fifo", "inbox", "step")
TARGET = ScheduleTarget(
    group=GROUP,
    queue_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:run.fifo",
    role_arn=f"arn:aws:iam::{ACCOUNT}:role/schedules",
    dead_letter_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:schedules-dead",
)
SIGNAL_TARGET = replace(TARGET, queue_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:signal.fifo")
#: How long a client waits for a reply that is held, in seconds. No other reply is waited for so.
IMPATIENCE = 0.02

_loader = cache(botocore.loaders.create_loader)


@dataclass(kw_only=True)
class Wire:
    """The adapters on one account. What stands there is taken away between tests."""

    door: Door
    clients: Clients
    table: Table
    clock: SkippingClock
    #: The pauses that botocore made between attempts, in seconds.
    slept: list[float] = field(default_factory=list)
    #: The receipts of messages, by their run.
    receipts: dict[str, str] = field(default_factory=dict)
    #: What a test found out once and for all, by its name.
    known: dict[str, Any] = field(default_factory=dict)
    store: DynamoStore = field(init=False)
    blobs: S3Blobs = field(init=False)
    queue: SqsQueue = field(init=False)
    steps: SqsStepQueue = field(init=False)
    inbox: InboxQueue = field(init=False)
    timers: AwsTimers = field(init=False)
    streams: DynamoStreams = field(init=False)
    signals: SqsSignalQueue = field(init=False)
    signal_timers: AwsSignalTimers = field(init=False)

    def afresh(self) -> None:
        """New adapters on an empty account, and a door without faults that has seen nothing."""
        self.door.plan = no_faults
        self.store = DynamoStore(self.table, self.clients)
        self.blobs = S3Blobs(self.clients, BUCKET)
        self.queue = SqsQueue(self.clients, self.url("run.fifo"))
        self.steps = SqsStepQueue(self.clients, self.url("step"))
        self.inbox = InboxQueue(self.clients, self.url("inbox"))
        self.timers = AwsTimers(
            self.clients, self.clock, queue=self.queue, inbox=self.inbox, target=TARGET
        )
        self.streams = DynamoStreams(self.table, self.clients)
        self.signals = SqsSignalQueue(self.clients, self.url("signal.fifo"))
        self.signal_timers = AwsSignalTimers(
            self.clients, self.clock, queue=self.signals, inbox=self.inbox, target=SIGNAL_TARGET
        )
        wipe(QUEUES)
        self.forget()

    def forget(self) -> None:
        """Begin to count at nothing."""
        self.door.seen.clear()
        self.door.released.clear()
        self.slept.clear()

    def url(self, queue: str) -> str:
        """The URL of a queue."""
        return f"{self.door.endpoint}/{ACCOUNT}/{queue}"

    def client(self, service: str) -> Any:
        """The client that asks a service."""
        return self.table.client if service == "dynamodb" else getattr(self.clients, service)

    def items(self, text: str = "") -> list[dict[str, Any]]:
        """The items of the table whose partition key holds a text, by their keys."""
        found = [item.to_json()["Attributes"] for item in _table().all_items()]
        chosen = [item for item in found if text in item["pk"]["S"]]
        return sorted(chosen, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))

    def objects(self, text: str = "") -> dict[str, bytes]:
        """The objects in the bucket whose name holds a text."""
        return {name: key.value for name, key in _bucket().keys.items() if text in name}

    def bodies(self, queue: str, text: str = "") -> list[str]:
        """The bodies in a queue that hold a text, those kept back included."""
        return [each.body for each in queue_of(queue)._messages if text in each.body]

    def schedules(self, text: str = "") -> list[dict[str, Any]]:
        """What stands in the schedules whose name holds a text."""
        return [
            {"at": each.schedule_expression, "input": each.target["Input"]}
            for name, each in sorted(group().schedules.items())
            if text in name
        ]

    @contextmanager
    def faulty(
        self, service: str, fault: Fault, *, request: int = 1, times: int = 1
    ) -> Iterator[Nth]:
        """Let the first attempts at one of the next requests end with a fault."""
        plan = Nth(request, fault, times)
        events = self.client(service).meta.events
        events.register_first(f"request-created.{service}", plan.shorten)
        self.door.plan = plan
        try:
            yield plan
        finally:
            self.door.wait_held(plan.given_up)
            self.door.plan = no_faults
            self.door.released.set()
            events.unregister(f"request-created.{service}", plan.shorten)


def _table() -> Any:
    return dynamodb_backends[ACCOUNT][REGION].tables[TABLE]


def _bucket() -> Any:
    return s3_backends[ACCOUNT]["aws"].buckets[BUCKET]


def queue_of(name: str) -> Any:
    """A queue, as moto holds it."""
    return sqs_backends[ACCOUNT][REGION].get_queue(name)


def group() -> Any:
    """The schedule group, as moto holds it."""
    return scheduler_backends[ACCOUNT][REGION].schedule_groups[GROUP]


class Nth:
    """A plan: the first `times` attempts at request `number` end with a fault.

    It counts the requests as they come, so it changes.
    """

    def __init__(self, number: int, fault: Fault, times: int) -> None:
        self.happened = 0
        #: The operation that it befell.
        self.seen: str | None = None
        #: Attempts that the client did not wait for.
        self.given_up = 0
        self._number = number
        self._fault = fault
        self._times = times
        self._known: dict[str, int] = {}

    def _hits(self, request: str, attempt: int) -> bool:
        number = self._known.setdefault(request, len(self._known) + 1)
        return number == self._number and attempt <= self._times

    def __call__(self, asked: Asked) -> Fault | None:
        """What the door asks."""
        if not self._hits(asked.request, asked.attempt):
            return None
        self.happened += 1
        self.seen = asked.operation
        return self._fault

    def shorten(self, request: Any, **_: Any) -> None:
        """Let the client wait hardly at all for a reply that is held, and for no other."""
        retries = request.context["retries"]
        held = self._fault.held and self._hits(retries["invocation-id"], retries["attempt"])
        if held:
            self.given_up += 1
            request.context["read_timeout"] = IMPATIENCE
        else:
            request.context.pop("read_timeout", None)


@contextmanager
def open_account() -> Iterator[tuple[Door, Session, list[float]]]:
    """A door, a session whose clients go through it, and where botocore's pauses are noted."""
    with open_door() as door, pytest.MonkeyPatch.context() as patch:
        slept: list[float] = []
        patch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=slept.append))
        # Each session would read the descriptions of the services again: most of the time it takes.
        patch.setattr(botocore.session, "create_loader", lambda *_: _loader())
        # A client that has met many failures repeats nothing more. Each test is to be as the first.
        patch.setattr(RetryQuota, "acquire", lambda *_: True)
        for name, value in _variables(door).items():
            patch.setenv(name, value)
        yield door, open_session(region=REGION), slept


@contextmanager
def open_wire() -> Iterator[Wire]:
    """An account with a table, a bucket, queues and a schedule group, behind a door."""
    with open_account() as (door, session, slept):
        create(session, QUEUES)
        clients, table = Clients(session, threads=2), Table(TABLE, region=REGION, session=session)
        yield Wire(door=door, clients=clients, table=table, clock=SkippingClock(START), slept=slept)
        clients.close()
        table.close()


def _variables(door: Door) -> dict[str, str]:
    """What makes every AWS client of this process go through a door."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": door.endpoint,
        "NO_PROXY": "127.0.0.1",
    }


def create(session: Session, queues: Sequence[str], **policies: str) -> None:
    """Create all that the adapters need; `policies` say what becomes of messages in vain."""
    sqs: Any = session.create_client("sqs")
    for name in queues:
        attributes = {"VisibilityTimeout": "150"}
        if name.endswith(".fifo"):
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        if policy := policies.get(name.removesuffix(".fifo")):
            attributes["RedrivePolicy"] = policy
        sqs.create_queue(QueueName=name, Attributes=attributes)
    scheduler: Any = session.create_client("scheduler")
    scheduler.create_schedule_group(Name=GROUP)
    s3: Any = session.create_client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    table = Table(TABLE, region=REGION, session=session)
    create_table(table)
    for client in (sqs, scheduler, s3, table):
        client.close()


def wipe(queues: Sequence[str]) -> None:
    """Empty everything: moto goes through all that it holds."""
    dynamodb_backends[ACCOUNT][REGION].tables[TABLE].items.clear()
    _bucket().keys.clear()
    group().schedules.clear()
    for name in queues:
        queue = queue_of(name)
        for held in (queue._messages, queue._pending_messages, queue.deleted_messages):
            held.clear()
