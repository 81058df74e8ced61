"""A deployment as the outputs of its stack tell it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from botocore.session import Session

from stepwell.adapters.aws.environment import ClientEnvironment, Environment
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.aws.wiring import open_aws
from stepwell.engine.ports import TransientError
from stepwell.errors import UsageError
from tests.contract.messaging import REGION
from tests.contract.storage import Storage, faulty_moto

OUTPUTS = {
    "Table": "table",
    "Bucket": "bucket",
    "RunQueueUrl": "https://sqs.eu-central-1.amazonaws.com/123456789012/run.fifo",
    "SignalQueueUrl": "https://sqs.eu-central-1.amazonaws.com/123456789012/signal.fifo",
    "KeysSecret": "keys",
    "ApiUrl": "https://example.invalid",
}


@pytest.fixture
def session() -> Iterator[Session]:
    with faulty_moto():
        yield open_session(region=REGION)


def create(session: Session, outputs: dict[str, str]) -> None:
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "queue"}}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    session.create_client("cloudformation").create_stack(
        StackName="orders", TemplateBody=json.dumps(template)
    )


def test_a_client_is_told_all_it_needs(session: Session) -> None:
    create(session, OUTPUTS)
    found = ClientEnvironment.from_stack("orders", session)
    assert (found.table, found.keys_secret) == ("table", "keys")


def test_a_stack_that_is_not_there_is_told(session: Session) -> None:
    with pytest.raises(UsageError, match="no stack 'orders' in eu-central-1"):
        ClientEnvironment.from_stack("orders", session)


def test_a_stack_of_something_else_is_told(session: Session) -> None:
    create(session, {"Table": "table"})
    with pytest.raises(UsageError, match="Bucket: is missing; RunQueueUrl: is missing"):
        ClientEnvironment.from_stack("orders", session)


def test_a_session_without_a_region_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    nowhere = open_session()
    with pytest.raises(UsageError, match="no AWS region"):
        ClientEnvironment.from_stack("orders", nowhere)
    environment = Environment(
        table="table",
        bucket="bucket",
        run_queue_url=OUTPUTS["RunQueueUrl"],
        signal_queue_url=OUTPUTS["SignalQueueUrl"],
    )
    with pytest.raises(UsageError, match="no AWS region"):
        open_aws(environment, nowhere)


@pytest.mark.parametrize(
    ("kinds", "error"), [(["denied"], UsageError), (["500"] * 9, TransientError)]
)
def test_a_stack_that_cannot_be_read_is_told(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    kinds: list[str],
    error: type[Exception],
) -> None:
    create(session, OUTPUTS)
    client = session.create_client("cloudformation")
    Storage.fault(None, client, "DescribeStacks", *kinds)  # type: ignore[arg-type]
    monkeypatch.setattr(session, "create_client", lambda *_, **__: client)
    with pytest.raises(error):
        ClientEnvironment.from_stack("orders", session)


def test_without_a_secret_there_are_no_settings(session: Session) -> None:
    environment = Environment(
        table="table",
        bucket="bucket",
        run_queue_url=OUTPUTS["RunQueueUrl"],
        signal_queue_url=OUTPUTS["SignalQueueUrl"],
    )
    with open_aws(environment, session) as aws:
        for ask in (lambda: aws.settings, aws.refresh):
            with pytest.raises(UsageError, match="STEPWELL_KEYS_SECRET"):
                ask()
