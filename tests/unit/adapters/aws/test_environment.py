"""What functions are told of their deployment."""

from __future__ import annotations

import pytest

from stepwell.adapters.aws.environment import (
    ClientEnvironment,
    Environment,
    InboxEnvironment,
    StepEnvironment,
    WorkerEnvironment,
    output_of,
)
from stepwell.errors import UsageError

URL = "https://sqs.eu-central-1.amazonaws.com/123456789012"
ARN = "arn:aws:sqs:eu-central-1:123456789012"
ALL = {
    "STEPWELL_TABLE": "table",
    "STEPWELL_BUCKET": "bucket",
    "STEPWELL_RUN_QUEUE_URL": f"{URL}/run.fifo",
    "STEPWELL_SIGNAL_QUEUE_URL": f"{URL}/signal.fifo",
    "STEPWELL_SIGNAL_QUEUE_ARN": f"{ARN}:signal.fifo",
    "STEPWELL_SIGNAL_DEAD_LETTER_URL": f"{URL}/signal-dead.fifo",
    "STEPWELL_INBOX_QUEUE_URL": f"{URL}/inbox",
    "STEPWELL_STEP_QUEUE_URL": f"{URL}/step",
    "STEPWELL_RUN_QUEUE_ARN": f"{ARN}:run.fifo",
    "STEPWELL_SCHEDULE_GROUP": "group",
    "STEPWELL_SCHEDULE_ROLE_ARN": "arn:aws:iam::123456789012:role/schedules",
    "STEPWELL_SCHEDULE_DEAD_LETTER_ARN": f"{ARN}:dead",
    "STEPWELL_INBOX_DEAD_LETTER_URL": f"{URL}/inbox-dead",
    "STEPWELL_KEYS_SECRET": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys",
}
MODELS = (
    Environment,
    ClientEnvironment,
    StepEnvironment,
    WorkerEnvironment,
    InboxEnvironment,
)


@pytest.mark.parametrize("model", MODELS)
def test_every_function_reads_what_it_needs_from_the_same_variables(
    model: type[Environment],
) -> None:
    found = model.from_env(ALL)
    assert (found.table, found.bucket, found.inline_limit) == ("table", "bucket", None)


def test_options_have_defaults() -> None:
    found = WorkerEnvironment.from_env(ALL)
    assert (found.max_receive_count, found.workflows) == (10, "workflows")


def test_options_are_read_by_their_type() -> None:
    more = {
        "STEPWELL_MAX_RECEIVE_COUNT": "20",
        "STEPWELL_WORKFLOWS": "shop.flows",
        "STEPWELL_INLINE_LIMIT": "4096",
    }
    found = WorkerEnvironment.from_env({**ALL, **more})
    assert (found.max_receive_count, found.workflows) == (20, "shop.flows")
    assert found.inline_limit == 4096


def test_a_variable_set_to_nothing_is_one_that_is_not_set() -> None:
    assert Environment.from_env({**ALL, "STEPWELL_INLINE_LIMIT": ""}).inline_limit is None
    with pytest.raises(UsageError, match="STEPWELL_TABLE: is missing"):
        Environment.from_env({**ALL, "STEPWELL_TABLE": ""})


def test_the_error_names_every_variable_that_is_missing() -> None:
    with pytest.raises(UsageError) as caught:
        InboxEnvironment.from_env({"STEPWELL_TABLE": "table"})
    missing = {
        "STEPWELL_BUCKET",
        "STEPWELL_RUN_QUEUE_URL",
        "STEPWELL_SIGNAL_QUEUE_URL",
        "STEPWELL_INBOX_QUEUE_URL",
        "STEPWELL_INBOX_DEAD_LETTER_URL",
        "STEPWELL_KEYS_SECRET",
    }
    assert {name for name in ALL if name in str(caught.value)} == missing


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STEPWELL_RUN_QUEUE_URL", "run.fifo"),
        ("STEPWELL_RUN_QUEUE_URL", f"{URL}/run"),
        ("STEPWELL_SIGNAL_QUEUE_URL", f"{URL}/signal"),
        ("STEPWELL_SIGNAL_DEAD_LETTER_URL", f"{URL}/signal-dead"),
        ("STEPWELL_INBOX_QUEUE_URL", "inbox"),
        ("STEPWELL_RUN_QUEUE_ARN", f"{URL}/run.fifo"),
        ("STEPWELL_SCHEDULE_ROLE_ARN", "schedules"),
        ("STEPWELL_MAX_RECEIVE_COUNT", "0"),
        ("STEPWELL_MAX_RECEIVE_COUNT", "many"),
        ("STEPWELL_INLINE_LIMIT", "65537"),
        ("STEPWELL_WORKFLOWS", "../workflows"),
        ("STEPWELL_WORKFLOWS", "workflows.py/"),
    ],
)
def test_the_error_names_a_variable_that_is_wrong(variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=variable):
        WorkerEnvironment.from_env({**ALL, variable: value})


def test_outputs_are_named_like_the_variables() -> None:
    fields = {*WorkerEnvironment.model_fields, *InboxEnvironment.model_fields}
    assert {output_of(field) for field in fields} >= {
        "Table",
        "Bucket",
        "RunQueueUrl",
        "RunQueueArn",
        "SignalQueueUrl",
        "SignalQueueArn",
        "SignalDeadLetterUrl",
        "InboxQueueUrl",
        "StepQueueUrl",
        "ScheduleGroup",
        "ScheduleRoleArn",
        "ScheduleDeadLetterArn",
        "KeysSecret",
    }
