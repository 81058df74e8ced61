"""Each function has a role of its own, which may do what the function does and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.infra.templates import FUNCTIONS, MESSAGING, PARENT, grants, listed, of_type, statements

ROLES = of_type(PARENT, "AWS::IAM::Role")
ALL_ROLES = {**ROLES, **of_type(MESSAGING, "AWS::IAM::Role")}

_READ_AND_WRITE = {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
_QUERY = {"dynamodb:Query"}
_MANY = {"dynamodb:BatchGetItem"}
_SEND = {"sqs:SendMessage"}
_RECEIVE = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
}
_VALUES = {
    "Bucket.Arn/values/*": {"s3:GetObject", "s3:PutObject"},
    "Bucket.Arn": {"s3:ListBucket"},
}
_TOKENS = {"Keys.Id": {"secretsmanager:GetSecretValue"}}
_SCHEDULES = "arn:${AWS::Partition}:scheduler:${AWS::Region}:${AWS::AccountId}:schedule/Schedules/*"


def _for_all(function: str) -> dict[str, set[str]]:
    return {
        f"{function}Logs.Arn": {"logs:CreateLogStream", "logs:PutLogEvents"},
        "KmsKeyArn": {"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"},
    }


NEEDS = {
    "Api": {
        "Table.Arn": _READ_AND_WRITE | _QUERY | _MANY,
        "Table.Arn/index/runs": _QUERY,
        "Table.Arn/index/wanted": _QUERY,
        "RunQueue.Arn": _SEND,
        "SignalQueue.Arn": _SEND,
        **_VALUES,
        **_TOKENS,
    },
    "Worker": {
        "Table.Arn": _READ_AND_WRITE | _QUERY | _MANY | {"dynamodb:BatchWriteItem"},
        "Table.Arn/index/wanted": _QUERY,
        "RunQueue.Arn": _RECEIVE | _SEND,
        "SignalQueue.Arn": _RECEIVE | _SEND,
        "SignalDeadLetters.Arn": _SEND,
        "InboxQueue.Arn": _SEND,
        "StepQueue.Arn": _SEND,
        _SCHEDULES: {
            "scheduler:CreateSchedule",
            "scheduler:GetSchedule",
            "scheduler:UpdateSchedule",
            "scheduler:DeleteSchedule",
        },
        "ScheduleRole.Arn": {"iam:PassRole"},
        **_VALUES,
        "Bucket.Arn/values/*": _VALUES["Bucket.Arn/values/*"] | {"s3:DeleteObject"},
        **_TOKENS,
    },
    "Step": {
        "Table.Arn": _READ_AND_WRITE | _QUERY | {"dynamodb:BatchWriteItem"},
        "StepQueue.Arn": _RECEIVE | _SEND,
        "RunQueue.Arn": _SEND,
        "SignalQueue.Arn": _SEND,
        **_VALUES,
        **_TOKENS,
    },
    "Inbox": {
        "Table.Arn": _READ_AND_WRITE | _QUERY | _MANY,
        "InboxQueue.Arn": _RECEIVE | _SEND,
        "InboxDeadLetters.Arn": _SEND,
        "RunQueue.Arn": _SEND,
        "SignalQueue.Arn": _SEND,
        **_VALUES,
        **_TOKENS,
    },
    "Sweeper": {
        "Table.Arn": _READ_AND_WRITE | _MANY,
        "Table.Arn/index/wanted": _QUERY,
        "Table.Arn/index/expiring": _QUERY,
        "RunDeadLetters.Arn": _RECEIVE,
        "SignalDeadLetters.Arn": _RECEIVE,
        "InboxDeadLetters.Arn": _RECEIVE,
        "StepDeadLetters.Arn": _RECEIVE,
        "ScheduleDeadLetters.Arn": _RECEIVE,
        "RunQueue.Arn": _SEND,
        "SignalQueue.Arn": _SEND,
        "Bucket.Arn/values/*": {"s3:PutObject"},
    },
}


def test_each_function_has_a_role_of_its_own() -> None:
    assert {name: function["Role"] for name, function in FUNCTIONS.items()} == {
        f"{name}Function": {"Fn::GetAtt": [f"{name}Role", "Arn"]} for name in NEEDS
    }
    assert set(ROLES) == {f"{name}Role" for name in NEEDS}


@pytest.mark.parametrize("name", NEEDS)
def test_a_role_grants_what_its_function_needs_and_nothing_else(name: str) -> None:
    assert grants(ROLES[f"{name}Role"]) == {**NEEDS[name], **_for_all(name)}


@pytest.mark.parametrize("name", ALL_ROLES)
def test_no_role_has_a_wildcard_for_actions_or_for_all_resources(name: str) -> None:
    role = ALL_ROLES[name]
    assert set(role) == {"AssumeRolePolicyDocument", "Policies"}  # no managed policies
    for statement in statements(role):
        assert statement["Effect"] == "Allow"
        assert {"NotAction", "NotResource", "NotPrincipal"}.isdisjoint(statement)
        assert not [action for action in listed(statement["Action"]) if "*" in action]
        assert "*" not in listed(statement["Resource"])


@pytest.mark.parametrize("name", ROLES)
def test_only_lambda_takes_the_role_of_a_function(name: str) -> None:
    assert ROLES[name]["AssumeRolePolicyDocument"]["Statement"] == [
        {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ]


def test_one_role_can_be_passed_by_one_function_to_one_service() -> None:
    passing: list[tuple[str, Any]] = [
        (name, statement)
        for name, role in ALL_ROLES.items()
        for statement in statements(role)
        if "iam:PassRole" in listed(statement["Action"])
    ]
    ((name, statement),) = passing
    assert name == "WorkerRole"
    assert statement["Resource"] == {"Fn::GetAtt": ["Messaging", "Outputs.ScheduleRoleArn"]}
    assert statement["Condition"] == {
        "StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}
    }


def test_sam_writes_no_role_itself() -> None:
    """Those it writes may do what they do on everything."""
    assert not [
        name for name, each in FUNCTIONS.items() if "Policies" in each or "Role" not in each
    ]
    for function in FUNCTIONS.values():
        for event in function.get("Events", {}).values():
            assert event["Type"] in ("SQS", "Schedule")  # ScheduleV2 would bring a role
