"""The queues, the schedule group and the role that schedules send with."""

from __future__ import annotations

import pytest

from tests.infra.templates import (
    FUNCTIONS,
    MESSAGING,
    PARENT,
    default,
    grants,
    listed,
    of_type,
    short,
    statements,
)

QUEUES = of_type(MESSAGING, "AWS::SQS::Queue")
SOURCES = {name: queue for name, queue in QUEUES.items() if "RedrivePolicy" in queue}
DEAD_LETTERS = {name: queue for name, queue in QUEUES.items() if "RedrivePolicy" not in queue}
(ROLE,) = of_type(MESSAGING, "AWS::IAM::Role").values()


def _feeds() -> list[tuple[str, str]]:
    """Each function with each queue that feeds it."""
    return [
        (function, short(event["Properties"]["Queue"]).removesuffix(".Arn"))
        for function, properties in FUNCTIONS.items()
        for event in properties.get("Events", {}).values()
        if event["Type"] == "SQS"
    ]


def test_the_queues_are_these() -> None:
    assert set(SOURCES) == {"RunQueue", "SignalQueue", "InboxQueue", "StepQueue"}
    assert set(DEAD_LETTERS) == {
        "RunDeadLetters",
        "SignalDeadLetters",
        "InboxDeadLetters",
        "StepDeadLetters",
        "ScheduleDeadLetters",
    }


@pytest.mark.parametrize("name", SOURCES)
def test_a_queue_has_a_dead_letter_queue_of_its_own_and_of_its_kind(name: str) -> None:
    target = short(SOURCES[name]["RedrivePolicy"]["deadLetterTargetArn"]).removesuffix(".Arn")
    assert target == name.replace("Queue", "DeadLetters")
    assert DEAD_LETTERS[target].get("FifoQueue") == SOURCES[name].get("FifoQueue")


@pytest.mark.parametrize("name", SOURCES)
def test_a_dead_letter_outlives_the_queue_it_came_from(name: str) -> None:
    dead = DEAD_LETTERS[name.replace("Queue", "DeadLetters")]
    assert dead["MessageRetentionPeriod"] > SOURCES[name]["MessageRetentionPeriod"]


@pytest.mark.parametrize("name", SOURCES)
def test_a_message_is_tried_at_least_ten_times(name: str) -> None:
    count = SOURCES[name]["RedrivePolicy"]["maxReceiveCount"]
    assert count == {"Ref": "MaxReceiveCount"}
    assert MESSAGING["Parameters"]["MaxReceiveCount"]["MinValue"] == 10


def test_only_turns_and_signals_have_an_order() -> None:
    assert [name for name, queue in QUEUES.items() if queue.get("FifoQueue")] == [
        "RunQueue",
        "RunDeadLetters",
        "SignalQueue",
        "SignalDeadLetters",
    ]


@pytest.mark.parametrize("queue", ["RunQueue", "SignalQueue"])
def test_a_queue_with_an_order_has_many_groups_at_once(queue: str) -> None:
    assert QUEUES[queue]["FifoThroughputLimit"] == "perMessageGroupId"
    assert QUEUES[queue]["DeduplicationScope"] == "messageGroup"
    assert QUEUES[queue]["ContentBasedDeduplication"] is True


@pytest.mark.parametrize(("function", "queue"), _feeds())
def test_a_message_stays_invisible_for_as_long_as_its_function_may_run(
    function: str, queue: str
) -> None:
    if queue in ("RunQueue", "SignalQueue"):
        return
    timeout = FUNCTIONS[function]["Timeout"]
    longest = PARENT["Parameters"][timeout["Ref"]]["MaxValue"] if "Ref" in str(timeout) else timeout
    assert QUEUES[queue]["VisibilityTimeout"] >= longest + 30


def test_a_turn_has_its_message_for_its_timeout_and_thirty_seconds() -> None:
    assert FUNCTIONS["WorkerFunction"]["Timeout"] == {"Ref": "WorkerTimeout"}
    seconds = PARENT["Mappings"]["RunVisibility"]
    allowed = PARENT["Parameters"]["WorkerTimeout"]["AllowedValues"]
    assert {timeout: each["Seconds"] for timeout, each in seconds.items()} == {
        timeout: int(timeout) + 30 for timeout in allowed
    }
    assert max(map(int, allowed)) == 300
    given = PARENT["Resources"]["Messaging"]["Properties"]["Parameters"]["RunVisibility"]
    assert given == {"Fn::FindInMap": ["RunVisibility", {"Ref": "WorkerTimeout"}, "Seconds"]}
    for queue in ("RunQueue", "SignalQueue"):
        assert QUEUES[queue]["VisibilityTimeout"] == {"Ref": "RunVisibility"}
    standard = default(PARENT, {"Ref": "WorkerTimeout"})
    assert MESSAGING["Parameters"]["RunVisibility"]["Default"] == int(standard) + 30


def test_schedules_may_send_due_timers_and_their_dead_letters_and_nothing_else() -> None:
    assert grants(ROLE) == {
        "RunQueue.Arn": {"sqs:SendMessage"},
        "SignalQueue.Arn": {"sqs:SendMessage"},
        "ScheduleDeadLetters.Arn": {"sqs:SendMessage"},
        "KmsKeyArn": {"kms:Decrypt", "kms:GenerateDataKey"},
    }
    assert len(listed(statements(ROLE))) == 2


def test_only_schedules_of_the_group_may_take_that_role() -> None:
    (trust,) = ROLE["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {
            "aws:SourceAccount": {"Ref": "AWS::AccountId"},
            "aws:SourceArn": {"Fn::GetAtt": ["Schedules", "Arn"]},
        }
    }
