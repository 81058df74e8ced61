"""A deployment on moto, and the command line at work on it in this process.

The stack is there for its outputs alone, which name what was made beside it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stepwell.adapters.aws.environment import ClientEnvironment
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.authoring.registry import registry
from stepwell.cli.main import run_command
from stepwell.core.messages import Message, dump_message, load_message
from stepwell.engine.turn import Engine
from tests.contract.storage import BUCKET, REGION, open_storage
from tests.integration.cli.shell import Done
from tests.laws import Sent, check_aws

STACK = "shop"
#: What a command is given to find it, and what one that we suggest should hold.
FLAGS = ("--stack", STACK, "--region", REGION)


@dataclass(frozen=True)
class Deployed:
    """A deployment, and the command line at work on it. `folder` has the module `app`."""

    aws: AwsDeployment
    queue_url: str
    folder: Path
    capsys: pytest.CaptureFixture[str]
    #: What was taken out of the run queue to be looked at.
    taken: list[Message] = field(default_factory=list)

    def __call__(self, *arguments: str) -> Done:
        """Run a command on the stack."""
        return self.command(*arguments, *FLAGS)

    def command(self, *arguments: str) -> Done:
        """Run a command as it stands."""
        self.capsys.readouterr()  # what workflows printed before
        code = run_command(arguments)
        captured = self.capsys.readouterr()
        return Done(code, captured.out, captured.err)

    def started(self, target: str, given: Any = None, key: str = "k") -> Any:
        """A run that was started and now waits."""
        with self.working():
            done = self(
                "run", target, "--input", json.dumps(given or []), "--wait", "0s",
                "--idempotency-key", key, "--json",
            )  # fmt: skip
        assert done.code == 6, done.err
        return done.json

    def sent(self) -> list[Message]:
        """What waits in the run queue; it is taken out."""
        found = [load_message(body) for body, *_ in self._received()]
        self.taken.extend(found)
        return found

    def check(self) -> None:
        """All laws, on all runs; what was taken out of the queue counts as on its way."""
        bodies = [dump_message(message) for message in [*self.sent(), *self.taken]]
        asyncio.run(check_aws(self.aws, Sent(runs=bodies), registry.workflow))

    def work(self) -> None:
        """Take the turns that can be taken now."""
        engine = Engine(self.aws.ports, self.aws.settings, registry, lambda: 0.5)
        for body, message_id, receive_count in self._received():
            asyncio.run(
                engine.take_turn(
                    load_message(body), message_id=message_id, receive_count=receive_count
                )
            )
        engine.close()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let a worker take turns meanwhile."""
        stop = threading.Event()
        failures: list[Exception] = []

        def work() -> None:
            try:
                while not stop.wait(0.01):
                    self.work()
            except Exception as error:
                failures.append(error)
                signal.raise_signal(signal.SIGINT)  # whoever waits for a run would wait for ever

        worker = threading.Thread(target=work)
        worker.start()
        try:
            yield
        finally:
            stop.set()
            worker.join()
        if failures:
            raise failures[0]

    def _received(self) -> Iterator[tuple[str, str, int]]:
        sqs, url = self.aws.clients.sqs, self.queue_url
        while found := sqs.receive_message(QueueUrl=url, AttributeNames=["All"]).get("Messages"):
            for each in found:
                count = int(each["Attributes"]["ApproximateReceiveCount"])
                yield each["Body"], each["MessageId"], count
                sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])


@contextmanager
def deployed(
    folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Deployed]:
    """A deployment, with the module `app` to be found in the current folder."""
    shutil.copy(Path(__file__).with_name("app.py"), folder)
    patch.chdir(folder)
    patch.syspath_prepend(folder)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "STEPWELL_DB"):
        patch.delenv(name, raising=False)
    # Other tests define workflows by the hundred, and a list of runs asks for those of each that is
    # published.
    for kind in ("_workflows", "_steps"):
        patch.setattr(registry, kind, [{}])
    level = logging.getLogger("stepwell.local").level
    with open_storage() as storage:
        session = open_session(region=REGION)
        _make_stack(session, storage.table.name)
        environment = ClientEnvironment.from_stack(STACK, session)
        aws = open_aws(environment, session)
        made = Deployed(aws, environment.run_queue_url, folder, capsys)
        try:
            yield made
            made.check()
        finally:
            aws.close()
    logging.getLogger("stepwell.local").setLevel(level)
    with suppress(KeyError):
        del sys.modules["app"]


def _make_stack(session: Any, table: str) -> None:
    secret = session.create_client("secretsmanager").create_secret(
        Name="keys", SecretString=json.dumps({"k1": "only for tests, not a secret" * 2})
    )
    outputs = {
        "Table": table,
        "Bucket": BUCKET,
        "KeysSecret": secret["ARN"],
        "RunQueueUrl": {"Ref": "RunQueue"},
        "SignalQueueUrl": {"Ref": "SignalQueue"},
    }
    template = {
        "Resources": {
            name: {
                "Type": "AWS::SQS::Queue",
                "Properties": {
                    "QueueName": queue,
                    "FifoQueue": True,
                    "ContentBasedDeduplication": True,
                    "FifoThroughputLimit": "perMessageGroupId",
                    "DeduplicationScope": "messageGroup",
                },
            }
            for name, queue in (("RunQueue", "run.fifo"), ("SignalQueue", "signal.fifo"))
        },
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    session.create_client("cloudformation").create_stack(
        StackName=STACK, TemplateBody=json.dumps(template)
    )
