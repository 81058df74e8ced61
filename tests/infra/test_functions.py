"""The functions: what they are told, what feeds them, and how they are built."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.adapters.aws.environment import (
    ClientEnvironment,
    Environment,
    InboxEnvironment,
    StepEnvironment,
    WorkerEnvironment,
    output_of,
    variable_of,
)
from stepwell.core.signals import BATCH
from tests.infra.templates import FUNCTIONS, PARENT, ROOT, of_type, short

GLOBALS = PARENT["Globals"]["Function"]
ENVIRONMENTS: dict[str, type[Environment]] = {
    "ApiFunction": ClientEnvironment,
    "WorkerFunction": WorkerEnvironment,
    "StepFunction": StepEnvironment,
    "InboxFunction": InboxEnvironment,
    "SweeperFunction": Environment,
}


def _variables(name: str) -> dict[str, Any]:
    return {
        **GLOBALS["Environment"]["Variables"],
        **FUNCTIONS[name]["Environment"]["Variables"],
    }


def _feeds(name: str) -> dict[str, dict[str, Any]]:
    """What feeds a function, by queue."""
    return {
        short(event["Properties"]["Queue"]).removesuffix(".Arn"): event["Properties"]
        for event in FUNCTIONS[name].get("Events", {}).values()
        if event["Type"] == "SQS"
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_function_is_told_what_its_environment_has_and_nothing_else(name: str) -> None:
    told = {each for each in _variables(name) if each.startswith("STEPWELL_")}
    assert told == {variable_of(field) for field in ENVIRONMENTS[name].model_fields}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_metrics_and_logs_name_the_deployment_and_the_function(name: str) -> None:
    variables = _variables(name)
    service = name.removesuffix("Function").lower()
    assert variables["POWERTOOLS_SERVICE_NAME"] == {"Fn::Sub": f"${{AWS::StackName}}-{service}"}
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "Stepwell"
    assert variables["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize("model", [WorkerEnvironment, InboxEnvironment])
def test_the_outputs_hold_what_an_environment_needs(model: type[Environment]) -> None:
    needed = {output_of(name) for name, field in model.model_fields.items() if field.is_required()}
    assert needed <= set(PARENT["Outputs"])


@pytest.mark.parametrize(
    ("name", "queues"),
    [
        ("ApiFunction", []),
        ("WorkerFunction", ["RunQueue", "SignalQueue"]),
        ("StepFunction", ["StepQueue"]),
        ("InboxFunction", ["InboxQueue"]),
        (
            "SweeperFunction",
            [
                "RunDeadLetters",
                "SignalDeadLetters",
                "InboxDeadLetters",
                "StepDeadLetters",
                "ScheduleDeadLetters",
            ],
        ),
    ],
)
def test_a_function_is_fed_by_its_queues(name: str, queues: list[str]) -> None:
    feeds = _feeds(name)
    assert list(feeds) == queues
    for feed in feeds.values():
        assert feed["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert "MaximumConcurrency" in feed["ScalingConfig"]


@pytest.mark.parametrize(
    ("name", "queue"), [("WorkerFunction", "RunQueue"), ("StepFunction", "StepQueue")]
)
def test_turns_and_attempts_come_one_at_a_time(name: str, queue: str) -> None:
    assert _feeds(name)[queue]["BatchSize"] == 1


def test_signals_come_as_many_at_a_time_as_one_batch_holds() -> None:
    assert _feeds("WorkerFunction")["SignalQueue"]["BatchSize"] == BATCH


def test_the_sweeper_looks_every_minute() -> None:
    (schedule,) = [
        event
        for event in FUNCTIONS["SweeperFunction"]["Events"].values()
        if event["Type"] == "Schedule"
    ]
    assert schedule["Properties"]["Schedule"] == "rate(1 minute)"


def test_lambda_does_not_stop_what_goes_round_in_queues() -> None:
    assert {name: each.get("RecursiveLoop") for name, each in FUNCTIONS.items()} == {
        "ApiFunction": None,
        "WorkerFunction": "Allow",
        "StepFunction": "Allow",
        "InboxFunction": "Allow",
        "SweeperFunction": None,
    }


def test_no_concurrency_is_reserved() -> None:
    """A small account could not deploy it."""
    assert not [name for name, each in FUNCTIONS.items() if "ReservedConcurrentExecutions" in each]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_a_log_group_that_forgets(name: str) -> None:
    groups = of_type(PARENT, "AWS::Logs::LogGroup")
    group = groups[FUNCTIONS[name]["LoggingConfig"]["LogGroup"]["Ref"]]
    assert group["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    assert "KmsKeyId" in group


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_handler_of_a_function_is_there(name: str) -> None:
    function = FUNCTIONS[name]
    module, _, attribute = function["Handler"].rpartition(".")
    assert attribute == "handler"
    assert (ROOT / function["CodeUri"] / f"{module.replace('.', '/')}.py").is_file()


def test_all_functions_stand_on_both_layers() -> None:
    assert GLOBALS["Layers"] == [{"Ref": "EngineLayer"}, {"Ref": "DependenciesLayer"}]
    assert GLOBALS["Architectures"] == [{"Ref": "Architecture"}]
    assert GLOBALS["Runtime"] == "python3.13"


@pytest.mark.parametrize("name", ["EngineLayer", "DependenciesLayer"])
def test_a_layer_is_built_by_its_makefile(name: str) -> None:
    layer = PARENT["Resources"][name]
    assert layer["Metadata"] == {"BuildMethod": "makefile"}
    makefile = ROOT / layer["Properties"]["ContentUri"] / "Makefile"
    assert f"build-{name}:" in makefile.read_text()


def test_every_parameter_is_used() -> None:
    text = (ROOT / "template.yaml").read_text()
    assert not [name for name in PARENT["Parameters"] if f"!Ref {name}" not in text]


def test_every_parameter_is_shown_in_a_group() -> None:
    groups = PARENT["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    shown = [name for group in groups for name in group["Parameters"]]
    assert sorted(shown) == sorted(PARENT["Parameters"])
