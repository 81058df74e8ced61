"""The parent and its nested templates fit together."""

from __future__ import annotations

import pytest

from tests.infra.templates import NESTED, PARENT, of_type, outputs_read, walk

APPLICATIONS = of_type(PARENT, "AWS::Serverless::Application")


def test_each_output_that_is_read_exists_and_each_that_exists_is_read() -> None:
    existing = {
        (name, output)
        for name, template in NESTED.items()
        for output in template.get("Outputs", {})
    }
    assert outputs_read(PARENT) == existing


@pytest.mark.parametrize("name", NESTED)
def test_each_parameter_of_a_nested_template_is_given(name: str) -> None:
    assert set(APPLICATIONS[name]["Parameters"]) == set(NESTED[name]["Parameters"])


@pytest.mark.parametrize("name", NESTED)
def test_limits_and_defaults_of_parameters_agree_with_the_parent_s(name: str) -> None:
    for parameter, value in APPLICATIONS[name]["Parameters"].items():
        if value == {"Ref": parameter} and parameter in PARENT["Parameters"]:
            given = PARENT["Parameters"][parameter]
            taken = NESTED[name]["Parameters"][parameter]
            for limit in ("Type", "Default", "MinValue", "MaxValue"):
                assert taken.get(limit) == given.get(limit), (parameter, limit)


def test_nested_templates_do_not_name_their_own_stack() -> None:
    """A nested stack's name is made up; what needs a name is given the parent's."""
    assert not [
        each
        for template in NESTED.values()
        for each in walk(template)
        if isinstance(each, str) and "AWS::StackName" in each
    ]


def test_nothing_is_exported() -> None:
    assert not [
        output
        for template in (PARENT, *NESTED.values())
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    ]


def test_the_outputs_are_those_that_a_client_reads() -> None:
    assert set(PARENT["Outputs"]) == {
        "ApiUrl",
        "Bucket",
        "InboxDeadLetterUrl",
        "InboxQueueArn",
        "InboxQueueUrl",
        "KeysSecret",
        "RunQueueArn",
        "RunQueueUrl",
        "ScheduleDeadLetterArn",
        "ScheduleGroup",
        "ScheduleRoleArn",
        "SignalDeadLetterUrl",
        "SignalQueueArn",
        "SignalQueueUrl",
        "StepQueueUrl",
        "Table",
    }
