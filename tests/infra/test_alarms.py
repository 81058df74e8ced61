"""What nobody would notice has an alarm."""

from __future__ import annotations

from typing import Any

import pytest

from tests.infra.templates import MESSAGING, OBSERVABILITY, PARENT, of_type

ALARMS = of_type(OBSERVABILITY, "AWS::CloudWatch::Alarm")
PASSED = PARENT["Resources"]["Observability"]["Properties"]["Parameters"]


def _watching(metric: str) -> dict[str, dict[str, Any]]:
    """The alarms on a metric, by what they watch."""
    found = {}
    for alarm in ALARMS.values():
        (dimension,) = alarm["Dimensions"]
        if alarm["MetricName"] == metric:
            value = dimension["Value"]
            found[value.get("Ref") or value["Fn::Sub"]] = alarm
    return found


@pytest.mark.parametrize(
    "metric", ["ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"]
)
def test_every_dead_letter_queue_is_watched(metric: str) -> None:
    queues = {name for name in of_type(MESSAGING, "AWS::SQS::Queue") if "DeadLetters" in name}
    assert queues <= set(_watching(metric))


def test_queues_with_groups_are_watched_long_before_sqs_stops_looking() -> None:
    watching = _watching("ApproximateNumberOfMessagesVisible")
    assert [watching[name]["Threshold"] for name in ("RunQueue", "SignalQueue")] == [50_000] * 2
    assert {"RunQueue", "SignalQueue", "InboxQueue", "StepQueue"} <= set(
        _watching("ApproximateAgeOfOldestMessage")
    )


@pytest.mark.parametrize("metric", ["Errors", "Throttles"])
def test_every_function_is_watched(metric: str) -> None:
    functions = set(of_type(PARENT, "AWS::Serverless::Function"))
    assert set(_watching(metric)) == functions


def test_functions_that_go_round_in_queues_are_watched_for_stopped_chains() -> None:
    assert set(_watching("RecursiveInvocationsDropped")) == {
        "WorkerFunction",
        "StepFunction",
        "InboxFunction",
    }


@pytest.mark.parametrize(
    ("metric", "function"),
    [
        ("OldestOverdueWait", "SweeperFunction"),
        ("DeadLetters", "SweeperFunction"),
        # What fails each time is hardly ever visible in a queue, and the queue forgets its age.
        ("MessagesGivenBack", "SweeperFunction"),
        # What it answers with 5xx is no error to Lambda.
        ("Http5xx", "ApiFunction"),
    ],
)
def test_what_functions_report_is_watched(metric: str, function: str) -> None:
    (where,) = _watching(metric)
    alarm = _watching(metric)[where]
    assert alarm["Namespace"] == "Stepwell"
    assert [each["Name"] for each in alarm["Dimensions"]] == ["service"]
    variables = PARENT["Resources"][function]["Properties"]["Environment"]["Variables"]
    assert (
        where.replace("${Deployment}", "${AWS::StackName}")
        == (variables["POWERTOOLS_SERVICE_NAME"]["Fn::Sub"])
    )
    assert PASSED["Deployment"] == {"Ref": "AWS::StackName"}


def test_a_sweeper_that_reports_nothing_is_an_alarm() -> None:
    (alarm,) = _watching("OldestOverdueWait").values()
    assert alarm["TreatMissingData"] == "breaching"


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_tells_the_topic_if_there_is_one(name: str) -> None:
    actions = {"Fn::If": ["HasTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    assert ALARMS[name]["AlarmActions"] == actions
    assert ALARMS[name]["OKActions"] == actions
    assert ALARMS[name]["AlarmDescription"]
