"""A whole deployment behind the door: the handlers, and what AWS does between them.

Time stands still but for `wait`. What Lambda, Scheduler and the test itself ask is not counted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from botocore.session import Session

from stepwell.adapters.aws.environment import WorkerEnvironment
from stepwell.adapters.aws.handlers.inbox import Inbox
from stepwell.adapters.aws.handlers.step import StepFunction
from stepwell.adapters.aws.handlers.sweeper import Sweeper
from stepwell.adapters.aws.handlers.telemetry import metrics
from stepwell.adapters.aws.handlers.worker import Worker
from stepwell.adapters.aws.secret import FRESH
from stepwell.adapters.aws.store import DynamoStore
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.adapters.local.clock import SkippingClock
from stepwell.api import http_api
from stepwell.authoring.registry import Registry
from stepwell.client import Client, PendingHook
from stepwell.core.records import Millis
from tests.contract.given import START, run
from tests.contract.messaging import ACCOUNT, REGION, at_ms
from tests.deployed.pump import http_event
from tests.integration.aws.deployment import KEYS, Deployed, LambdaContext, variables
from tests.wire.door import Door, no_faults
from tests.wire.wire import create, group, open_account, wipe

RECEIVES = 5
_FED = {"run.fifo": "run-dead.fifo", "step": "step-dead", "inbox": "inbox-dead"}
QUEUES = (*_FED.values(), "schedule-dead", *_FED)
#: A caller asks again so often; no drive needs more rounds of deliveries.
_PATIENCE = 4
_ROUNDS = 60


@dataclass(kw_only=True)
class Cloud:
    """The deployment. Its functions are new for each drive, as after a cold start."""

    door: Door
    aws: AwsDeployment
    clock: SkippingClock
    deployed: Deployed
    _loop: asyncio.Runner

    def http(self, method: str, path: str, body: Any, **headers: str) -> dict[str, Any]:
        """What the HTTP API answers; asked again while it says that something failed."""
        api = http_api(lambda token=None: Client(self.aws.ports, self.aws.refresh(token)))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        event = http_event(method, path, json.dumps(body), named)
        for _ in range(_PATIENCE):
            reply = self._loop.run(api.resolve_async(event, LambdaContext()))
            if reply["statusCode"] < 500:
                break
        assert reply["statusCode"] in (200, 202), reply
        found: dict[str, Any] = json.loads(reply["body"])
        return found

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What is asked meanwhile is asked by nobody."""
        self.door.quiet = True
        try:
            yield
        finally:
            self.door.quiet = False

    def put(self, queue: str, body: Mapping[str, Any]) -> None:
        """Somebody sends a message."""
        with self.unseen():
            self.deployed.send(queue, body)

    def settle(self) -> None:
        """Deliver all that can be delivered now, and again what failed."""
        for _ in range(_ROUNDS):
            before = self.deployed.delivered
            for queue in _FED:
                if self._due(queue):
                    self.deployed.deliver(queue, 1)
            if self.deployed.delivered == before:
                return
        raise AssertionError("the queues do not become empty")

    def wait(self, milliseconds: Millis) -> None:
        """Let time pass, and settle at each moment at which something is due."""
        until = self.clock.now() + milliseconds
        self.settle()
        while (due := self._next()) is not None and due <= until:
            self.clock.advance(max(due - self.clock.now(), 0))
            self._fire()
            self.settle()
        self.clock.advance(until - self.clock.now())

    def hooks(self, run_id: str) -> tuple[PendingHook, ...]:
        """The open hooks of a run, with their tokens."""
        with self.unseen():
            return run(self.deployed.client.list_hooks(run_id=run_id)).items

    def dead(self) -> list[Any]:
        """All that could not be delivered, and the rows of what the sweeper keeps."""
        queues = (*_FED.values(), "schedule-dead")
        with self.unseen():
            return [*(self.deployed.held(queue) for queue in queues), self.deployed.kept()]

    def _due(self, queue: str) -> bool:
        """Let the time pass for which messages stay away. Whether one may come now.

        A timer may not before its time.
        """
        messages = [
            each
            for each in self.deployed.held(queue)
            if queue != "inbox" or json.loads(each.body).get("due", 0) <= self.clock.now()
        ]
        for message in messages:
            message.visible_at = message.delayed_until = 0.0
        return bool(messages)

    def _next(self) -> Millis | None:
        """When the next timer is due."""
        held = [json.loads(message.body) for message in self.deployed.held("inbox")]
        times = [body["due"] for body in held if "due" in body]
        times += [at_ms(each.schedule_expression) for each in group().schedules.values()]
        return min(times, default=None)

    def _fire(self) -> None:
        """What Scheduler does."""
        schedules = group().schedules
        for name, schedule in list(schedules.items()):
            if at_ms(schedule.schedule_expression) <= self.clock.now():
                self.put("run.fifo", json.loads(schedule.target["Input"]))
                del schedules[name]


class Account:
    """An account with a deployment, for one drive after the other."""

    def __init__(self, door: Door, session: Session) -> None:
        self.door = door
        self.session = session
        create(session, QUEUES, **{name.removesuffix(".fifo"): _policy(name) for name in _FED})
        secrets: Any = session.create_client("secretsmanager")
        secrets.create_secret(Name="keys", SecretString=json.dumps(KEYS))
        secrets.close()
        sqs: Any = session.create_client("sqs")
        self._environment = WorkerEnvironment.from_env(
            variables(sqs) | {"STEPWELL_MAX_RECEIVE_COUNT": str(RECEIVES)}
        )
        self._dead = f"{sqs.meta.endpoint_url}/{ACCOUNT}/inbox-dead"
        sqs.close()
        self.clock = SkippingClock(START)
        self._aws = open_aws(self._environment, session, clock=self.clock)

    @contextmanager
    def cloud(self, known: Registry) -> Iterator[Cloud]:
        """New functions on an empty account. The keys were read just now."""
        self.door.plan = no_faults
        wipe(QUEUES)
        self.clock.advance(FRESH)
        self._aws.refresh()
        self.door.seen.clear()
        store = DynamoStore(self._aws.table, self._aws.clients)
        aws = replace(self._aws, store=store, ports=replace(self._aws.ports, store=store))
        deployed = Deployed(
            session=self.session,
            environment=self._environment,
            clock=self.clock,
            aws=aws,
            worker=Worker(aws, RECEIVES, self._environment.signal_dead_letter_url, registry=known),
            step=StepFunction(aws, registry=known),
            inbox=Inbox(aws, self._environment.inbox_queue_url, self._dead),
            sweeper=Sweeper(aws),
        )
        with asyncio.Runner() as loop:
            yield Cloud(door=self.door, aws=aws, clock=self.clock, deployed=deployed, _loop=loop)
        for part in (deployed.worker, deployed.step, deployed.inbox, deployed.sweeper):
            part.close()
        metrics.clear_metrics()

    def close(self) -> None:
        """Close the connections."""
        self._aws.close()


def _policy(queue: str) -> str:
    target = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{_FED[queue]}"
    return json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": RECEIVES})


@contextmanager
def open_accounts() -> Iterator[Account]:
    """An account behind a door."""
    with open_account() as (door, session, _):
        account = Account(door, session)
        yield account
        account.close()
