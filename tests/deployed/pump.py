"""A deployment on this machine: built functions, moto behind them, and what AWS does between them.

Nothing happens by itself. `run_until_idle` delivers until nothing is left to deliver now; `advance`
moves the clock to each moment at which a message, a delay or a schedule comes due on the way.
Messages can be delivered twice, functions can be killed at any request that they make.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from stepwell.adapters.aws.environment import ClientEnvironment
from stepwell.adapters.aws.keys import WORKFLOWS
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.client import Client
from stepwell.core.records import Millis
from tests.contract.messaging import at_ms
from tests.deployed.built import Built
from tests.deployed.front import Front, Request, serving
from tests.deployed.function import Died, Function, Raised
from tests.deployed.queues import ACCOUNT, REGION, Message, Queue, Queues, failed_ids, record_of
from tests.deployed.reply import Reply

BUCKET = "values"
TABLE = "stepwell"
GROUP = "stepwell"
#: Deliveries after which a pump that does not come to rest is broken.
MOST = 2_000


@dataclass(kw_only=True)
class Kill:
    """Kill a function at the n-th request that it makes, before or after it is done.

    With `again`, at each such request, counted from the one before.
    """

    function: str
    request: int
    done: bool = False
    again: bool = False
    wanted: Callable[[Request], bool] = lambda request: True
    seen: int = 0
    happened: Request | None = None


@dataclass(kw_only=True)
class Deployment:
    """The functions, and what AWS does between them."""

    functions: dict[str, Function]
    queues: Queues
    front: Front
    aws: AwsDeployment
    client: Client
    clock: Clock
    #: What the functions wrote.
    log: Path
    #: Whether each message is delivered once more after it was acknowledged.
    doubled: bool = False
    #: Seconds that the functions' clocks are behind those of SQS and Scheduler.
    lag: float = 0.0
    #: Whether callers ask once more when they get no reply.
    patient: bool = False
    raised: list[str] = field(default_factory=list)
    delivered: int = 0

    @property
    def scheduler(self) -> Any:
        """The client of EventBridge Scheduler."""
        return self.aws.clients.scheduler

    # What happens by itself on AWS

    def run_until_idle(self) -> None:
        """Deliver until nothing is left to deliver now."""
        while self._deliver_one():
            self.delivered += 1
            assert self.delivered < MOST, "the deployment does not come to rest"

    def advance(self, seconds: float) -> None:
        """Move the clock on, and let everything happen that comes due on the way."""
        until = self.clock.now() + seconds
        self.run_until_idle()
        while (due := self._next_time()) is not None and due <= until:
            self.clock.move_to(due)
            self.run_until_idle()
        self.clock.move_to(until)
        self.run_until_idle()

    def settle(self) -> None:
        """Let what was given back come again, for as long as there is anything in a queue."""
        self.run_until_idle()
        while self.waiting():
            due = self._next_time()
            assert due is not None
            self.clock.move_to(due)
            self.run_until_idle()

    def advance_to_next(self) -> bool:
        """Move the clock on until something comes due. Whether there was anything."""
        due = self._next_time()
        if due is not None:
            self.clock.move_to(due)
            self.run_until_idle()
        return due is not None

    def waiting(self, *names: str) -> list[Message]:
        """What is in the queues, or in these; by default what is held back by the inbox is not."""
        chosen = names or [name for name in self.queues.by_name if name != "InboxQueue"]
        return [each for name in chosen for each in self.queues.by_name[name].messages]

    def _deliver_one(self) -> bool:
        for schedule in self.schedules():
            if schedule["at"] <= self.clock.now():
                self._fire(schedule)
                return True
        for queue in self.queues.by_name.values():
            if queue.built.function is None:
                continue
            batch = self.queues.receive(queue, queue.built.batch)
            if batch:
                self._deliver(queue, batch)
                return True
        return False

    def _deliver(self, queue: Queue, batch: list[Message]) -> None:
        assert queue.built.function is not None
        event = {"Records": [record_of(queue, each) for each in batch]}
        try:
            response = self.invoke(queue.built.function, event)
        except (Died, Raised):
            return  # they come again when they are visible again
        failed = failed_ids(response)
        for message in batch:
            if message.id in failed or message.receipt is None:
                continue
            if self.doubled and message.receives == 1:
                message.visible = self.clock.now()  # the acknowledgement was lost
            else:
                self.queues.delete(message.receipt)

    def invoke(self, function: str, event: Any) -> Any:
        """What a function returns."""
        try:
            return self.functions[function].invoke(event, ahead=self.clock.ahead - self.lag)
        except Raised as error:
            self.raised.append(f"{function}: {error}")
            raise

    def _fire(self, schedule: dict[str, Any]) -> None:
        target = schedule["Target"]
        arns = {self.queues.by_name[name].arn: name for name in ("RunQueue", "SignalQueue")}
        group = target["SqsParameters"]["MessageGroupId"]
        self.queues.put(arns[target["Arn"]], target["Input"], group)
        assert schedule["ActionAfterCompletion"] == "DELETE"
        self.scheduler.delete_schedule(GroupName=GROUP, Name=schedule["Name"])

    def schedules(self) -> list[dict[str, Any]]:
        """All schedules, with their times in seconds as `at`."""
        scheduler = self.scheduler
        listed = scheduler.list_schedules(GroupName=GROUP)["Schedules"]
        found = [scheduler.get_schedule(GroupName=GROUP, Name=each["Name"]) for each in listed]
        return [{**each, "at": at_ms(each["ScheduleExpression"]) / 1000} for each in found]

    def _next_time(self) -> float | None:
        now = self.clock.now()
        times = [
            queue.next_time(now) for queue in self.queues.by_name.values() if queue.built.function
        ]
        times += [schedule["at"] for schedule in self.schedules()]
        return min((each for each in times if each is not None), default=None)

    # What callers do

    def http(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """A request as the HTTP API hands it to the function. A body that is no text is JSON."""
        content = body if isinstance(body, str | None) else json.dumps(body)
        event = http_event(method, path, content, headers or {})
        try:
            response = self.invoke("api", event)
        except Died:
            if not self.patient:
                raise
            response = self.invoke("api", event)
        text = response.get("body") or ""
        if response.get("isBase64Encoded"):
            text = base64.b64decode(text).decode()
        return Reply(
            status=response["statusCode"],
            headers={name.lower(): value for name, value in response.get("headers", {}).items()},
            body=text,
        )

    def send(self, body: Any) -> None:
        """Put a message on the inbox queue, as another system would. No text is JSON."""
        self.aws.clients.sqs.send_message(
            QueueUrl=queue_url(self.queues.by_name["InboxQueue"]),
            MessageBody=body if isinstance(body, str) else json.dumps(body),
        )

    def sweep(self) -> Any:
        """What the rate schedule does."""
        return self.invoke("sweeper", {"source": "aws.events", "detail-type": "Scheduled Event"})

    def forget(self) -> None:
        """Make all undone but what is published; the processes stay warm."""
        client, table = self.aws.table.client, self.aws.table.name
        for item in self.items():
            if item["pk"]["S"].partition("#")[0] != WORKFLOWS:
                client.delete_item(TableName=table, Key={key: item[key] for key in ("pk", "sk")})
        s3 = self.aws.clients.s3
        for stored in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            s3.delete_object(Bucket=BUCKET, Key=stored["Key"])
        self.queues.clear()
        for schedule in self.schedules():
            self.scheduler.delete_schedule(GroupName=GROUP, Name=schedule["Name"])
        self.doubled, self.patient, self.lag, self.delivered = False, False, 0.0, 0
        self.raised.clear()

    def items(self) -> list[dict[str, Any]]:
        """All that the table holds."""
        pages = self.aws.table.client.get_paginator("scan").paginate(TableName=self.aws.table.name)
        return [item for page in pages for item in page["Items"]]

    # Faults

    @contextmanager
    def killing(self, kill: Kill) -> Iterator[Kill]:
        """Kill a function at a request that it makes."""

        def watch(request: Request, done: bool) -> bool:
            over = kill.happened is not None and not kill.again
            if over or request.caller != kill.function or not kill.wanted(request):
                return True
            if not done:
                kill.seen += 1
            if kill.seen != kill.request or done != kill.done:
                return True
            kill.happened, kill.seen = request, 0
            self.functions[kill.function].kill_now()
            return False

        before, self.front.watch = self.front.watch, watch
        try:
            yield kill
        finally:
            self.front.watch = before


class Ahead:
    """The `Clock` port of who looks on, by the deployment's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> Millis:
        """Milliseconds since the epoch."""
        return int(self._clock.now() * 1000)

    async def sleep_until(self, due: Millis) -> None:
        """Only a turn of the pump moves the clock on."""
        raise NotImplementedError


class Clock:
    """The machine's clock, and how far the deployment's is ahead of it. In seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self.ahead

    def move_to(self, moment: float) -> None:
        """Go on to a moment; never back."""
        self.ahead = max(self.ahead, moment - time.time())


def queue_url(queue: Queue) -> str:
    """The URL of a queue, of which moto looks at the name only."""
    return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{queue.name}"


def http_event(method: str, path: str, body: str | None, headers: dict[str, str]) -> dict[str, Any]:
    """An event of an HTTP API, payload format 2.0."""
    bare, _, query = path.partition("?")
    given = {"host": "example.execute-api.us-east-1.amazonaws.com"}
    if body is not None:
        given["content-type"] = "application/json"
    given |= {name.lower(): value for name, value in headers.items()}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": bare,
        "rawQueryString": query,
        "headers": given,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "example",
            "domainName": given["host"],
            "http": {
                "method": method,
                "path": bare,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "test",
            },
            "requestId": "request",
            "routeKey": "$default",
            "stage": "$default",
            "time": "01/Jan/2030:00:00:00 +0000",
            "timeEpoch": 1893456000000,
        },
        "isBase64Encoded": False,
    }
    if query:
        pairs = [part.partition("=") for part in query.split("&")]
        event["queryStringParameters"] = {name: value for name, _, value in pairs}
    if body is not None:
        event["body"] = body
    return event


@contextmanager
def deployed(folder: Path, **variables: str) -> Iterator[Deployment]:
    """The build, deployed on an empty moto. More variables go to every function."""
    built, clock = Built(), Clock()
    queues = Queues(built.queues, clock.now)
    front = Front(queues)
    with (
        serving(front) as endpoint,
        (folder / "functions.log").open("ab") as log,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in _credentials("test", endpoint).items():
            patch.setenv(name, value)
        known = _create(built, queues)
        functions = {
            name: Function(
                each,
                {
                    **{variable: known[variable] for variable in each.variables},
                    **_credentials(name, endpoint),
                    "AWS_LAMBDA_FUNCTION_NAME": each.name,
                    **variables,
                },
                log,
            )
            for name, each in built.functions.items()
        }
        environment = ClientEnvironment.from_env(known)
        with open_aws(environment, clock=Ahead(clock)) as aws:
            try:
                yield Deployment(
                    functions=functions,
                    queues=queues,
                    front=front,
                    aws=aws,
                    client=Client(aws.ports, aws.refresh()),
                    clock=clock,
                    log=folder / "functions.log",
                )
            finally:
                for function in functions.values():
                    function.kill()


def _credentials(name: str, endpoint: str) -> dict[str, str]:
    """What makes an AWS client speak to the front. The access key tells it who asks."""
    return {
        "AWS_ACCESS_KEY_ID": name,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_SESSION_TOKEN": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def _create(built: Built, queues: Queues) -> dict[str, str]:
    """Create what the functions need, and say by their variables where it is."""
    boto3.client("dynamodb").create_table(TableName=TABLE, **built.table)
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    boto3.client("scheduler").create_schedule_group(Name=GROUP)
    secret = boto3.client("secretsmanager").create_secret(
        Name="keys", SecretString=json.dumps({"k1": "0123456789abcdef" * 4})
    )
    sqs = boto3.client("sqs")
    for queue in queues.by_name.values():
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        sqs.create_queue(QueueName=queue.name, Attributes=fifo if queue.built.fifo else {})
    urls = {name: queue_url(queue) for name, queue in queues.by_name.items()}
    return {
        "STEPWELL_TABLE": TABLE,
        "STEPWELL_BUCKET": BUCKET,
        "STEPWELL_RUN_QUEUE_URL": urls["RunQueue"],
        "STEPWELL_RUN_QUEUE_ARN": queues.by_name["RunQueue"].arn,
        "STEPWELL_SIGNAL_QUEUE_URL": urls["SignalQueue"],
        "STEPWELL_SIGNAL_QUEUE_ARN": queues.by_name["SignalQueue"].arn,
        "STEPWELL_SIGNAL_DEAD_LETTER_URL": urls["SignalDeadLetters"],
        "STEPWELL_INBOX_QUEUE_URL": urls["InboxQueue"],
        "STEPWELL_INBOX_DEAD_LETTER_URL": urls["InboxDeadLetters"],
        "STEPWELL_STEP_QUEUE_URL": urls["StepQueue"],
        "STEPWELL_API_URL": "https://api.example.com",
        "STEPWELL_SCHEDULE_GROUP": GROUP,
        "STEPWELL_SCHEDULE_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/schedules",
        "STEPWELL_SCHEDULE_DEAD_LETTER_ARN": queues.by_name["ScheduleDeadLetters"].arn,
        "STEPWELL_KEYS_SECRET": secret["ARN"],
        "STEPWELL_MAX_RECEIVE_COUNT": str(queues.by_name["RunQueue"].built.max_receives),
        "STEPWELL_WORKFLOWS": "workflows",
        "STEPWELL_INLINE_LIMIT": "8192",
        "STEPWELL_EVENT_LIMIT": "5000",
        "STEPWELL_HISTORY_LIMIT": "2000000",
        "STEPWELL_STEP_LIMIT": "4000",
        "STEPWELL_IDLE_HOP_LIMIT": "20",
        "STEPWELL_DEPTH_LIMIT": "10",
        "STEPWELL_RETAIN_COMPLETED": "",
        "STEPWELL_RETAIN_FAILED": "",
        "STEPWELL_RETAIN_CANCELLED": "",
        "POWERTOOLS_SERVICE_NAME": "test",
        "POWERTOOLS_METRICS_NAMESPACE": "Stepwell",
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "PYTHONHASHSEED": "0",
    }
