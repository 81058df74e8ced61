"""Who may do what: callers of the API, and the functions' own roles."""

from __future__ import annotations

import pytest

from tests.e2e.emulator import REGION
from tests.e2e.ports import ACCOUNT
from tests.e2e.stack import Stack


def test_health_and_links_are_open_and_all_else_is_signed(stack: Stack) -> None:
    assert stack.http("GET", "/healthz").status == 200
    assert stack.http("GET", "/hooks/nonsense").status == 404
    assert stack.http("GET", "/v1/runs").status == 403
    assert stack.http("GET", "/openapi.json").status == 403
    assert stack.http("GET", "/openapi.json", credentials=stack.caller).json["openapi"]


def test_a_stranger_is_refused(stack: Stack) -> None:
    assert stack.http("GET", "/v1/runs", credentials=stack.user()).status == 403


def test_a_user_who_may_read_may_not_start(stack: Stack) -> None:
    reader = stack.user(
        {
            "Effect": "Allow",
            "Action": "execute-api:Invoke",
            "Resource": f"arn:aws:execute-api:{REGION}:*:{stack.resources['HttpApi']}/*/GET/v1/*",
        }
    )
    assert stack.http("GET", "/v1/runs", credentials=reader).status == 200
    path = "/v1/workflows/nap/runs"
    reply = stack.http("POST", path, {"input": {"duration": "1s"}}, credentials=reader)
    assert reply.status == 403


#: What each function's role may not do; that it may do what it needs, the other tests show.
REFUSED = [
    ("ApiRole", "scheduler:CreateSchedule", "schedule"),
    ("ApiRole", "sqs:ReceiveMessage", "RunQueueArn"),
    ("ApiRole", "sqs:ReceiveMessage", "SignalQueueArn"),
    ("ApiRole", "sqs:SendMessage", "InboxQueueArn"),
    ("ApiRole", "dynamodb:DeleteItem", "table"),
    ("ApiRole", "dynamodb:Scan", "table"),
    ("ApiRole", "secretsmanager:PutSecretValue", "KeysSecret"),
    ("WorkerRole", "dynamodb:DeleteItem", "table"),
    ("StepRole", "s3:DeleteObject", "value"),
    ("ApiRole", "s3:DeleteObject", "value"),
    ("WorkerRole", "scheduler:CreateSchedule", "foreign schedule"),
    ("WorkerRole", "sqs:ReceiveMessage", "InboxQueueArn"),
    ("StepRole", "sqs:ReceiveMessage", "SignalQueueArn"),
    ("StepRole", "scheduler:CreateSchedule", "schedule"),
    ("StepRole", "sqs:SendMessage", "InboxQueueArn"),
    ("InboxRole", "scheduler:CreateSchedule", "schedule"),
    ("InboxRole", "sqs:ReceiveMessage", "RunQueueArn"),
    ("SweeperRole", "secretsmanager:GetSecretValue", "KeysSecret"),
    ("SweeperRole", "scheduler:CreateSchedule", "schedule"),
]
ALLOWED = [
    ("ApiRole", "sqs:SendMessage", "RunQueueArn"),
    ("ApiRole", "sqs:SendMessage", "SignalQueueArn"),
    ("StepRole", "sqs:SendMessage", "SignalQueueArn"),
    ("InboxRole", "sqs:SendMessage", "SignalQueueArn"),
    ("SweeperRole", "sqs:SendMessage", "SignalQueueArn"),
    ("WorkerRole", "sqs:SendMessage", "SignalQueueArn"),
    ("WorkerRole", "sqs:ReceiveMessage", "SignalQueueArn"),
    ("WorkerRole", "scheduler:CreateSchedule", "schedule"),
    ("WorkerRole", "scheduler:DeleteSchedule", "schedule"),
    ("WorkerRole", "dynamodb:PutItem", "table"),
    ("WorkerRole", "s3:DeleteObject", "value"),
    ("StepRole", "sqs:SendMessage", "RunQueueArn"),
    ("InboxRole", "secretsmanager:GetSecretValue", "KeysSecret"),
]


def resource(stack: Stack, name: str) -> str:
    """The ARN of what is meant."""
    where = f"{REGION}:{ACCOUNT}"
    named = {
        "table": f"arn:aws:dynamodb:{where}:table/{stack.outputs['Table']}",
        "value": f"arn:aws:s3:::{stack.outputs['Bucket']}/values/a",
        "schedule": f"arn:aws:scheduler:{where}:schedule/{stack.outputs['ScheduleGroup']}/a",
        "foreign schedule": f"arn:aws:scheduler:{where}:schedule/default/a",
    }
    return named[name] if name in named else stack.outputs[name]


@pytest.mark.parametrize(("role", "action", "on"), REFUSED)
def test_a_role_may_not_do_what_its_function_does_not_need(
    role: str, action: str, on: str, stack: Stack
) -> None:
    assert not stack.allows(role, action, resource(stack, on))


@pytest.mark.parametrize(("role", "action", "on"), ALLOWED)
def test_a_role_may_do_what_its_function_needs(
    role: str, action: str, on: str, stack: Stack
) -> None:
    assert stack.allows(role, action, resource(stack, on))


def test_a_role_is_a_functions_alone(stack: Stack) -> None:
    configured = {
        name: stack.emulator.client("lambda").get_function_configuration(
            FunctionName=stack.resources[name]
        )["Role"]
        for name in stack.resources
        if name.endswith("Function")
    }
    assert len(configured) == 5
    assert len(set(configured.values())) == 5
