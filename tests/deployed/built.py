"""What `make build-local` built: functions, layers, queues and table, as its templates say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("STEPWELL_BUILD", ROOT / ".aws-sam-local")) / "build"


class _Loader(yaml.SafeLoader):
    """Reads `!Ref X` as the text "X", and every other short form as what stands in it."""


def _content(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_Loader.add_multi_constructor("!", _content)


def read_template(path: Path) -> dict[str, Any]:
    """A template in which "X" stands for a reference to X, and "X.Y" for its attribute."""
    found: dict[str, Any] = _plain(yaml.load(path.read_text(), _Loader))
    return found


def _plain(given: Any) -> Any:
    if isinstance(given, list):
        return [_plain(each) for each in given]
    if not isinstance(given, dict):
        return given
    if set(given) == {"Ref"}:
        return given["Ref"]
    if set(given) == {"Fn::GetAtt"}:
        found = given["Fn::GetAtt"]
        return found if isinstance(found, str) else ".".join(found)
    return {name: _plain(each) for name, each in given.items()}


@dataclass(frozen=True, kw_only=True)
class BuiltFunction:
    """A function as it would be deployed."""

    name: str
    handler: str
    path: tuple[Path, ...]
    timeout: int
    variables: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class BuiltQueue:
    """A queue, and who is fed from it how many messages at a time."""

    name: str
    fifo: bool
    visibility: int
    dead: str | None
    max_receives: int
    function: str | None
    batch: int


class Built:
    """The build in a folder."""

    def __init__(self, folder: Path = BUILD) -> None:
        self._folder = folder
        self._template = read_template(folder / "template.yaml")

    @cached_property
    def functions(self) -> Mapping[str, BuiltFunction]:
        """The functions, by the last part of their role: api, worker, step, inbox, sweeper."""
        return {
            name.removesuffix("Function").lower(): self._function(name, each["Properties"])
            for name, each in self._resources("AWS::Serverless::Function").items()
        }

    @cached_property
    def queues(self) -> Mapping[str, BuiltQueue]:
        """The queues by their logical names."""
        messaging = self._nested("Messaging")
        fed = self._fed()
        return {
            name: _queue(name, each.get("Properties", {}), messaging, fed.get(name, (None, 10)))
            for name, each in messaging["Resources"].items()
            if each["Type"] == "AWS::SQS::Queue"
        }

    @cached_property
    def table(self) -> dict[str, Any]:
        """What creates the table, as far as it is about keys."""
        properties = self._nested("Storage")["Resources"]["Table"]["Properties"]
        wanted = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
        return {name: properties[name] for name in wanted}

    def _function(self, name: str, properties: Mapping[str, Any]) -> BuiltFunction:
        shared = self._template["Globals"]["Function"]
        layers = self._resources("AWS::Serverless::LayerVersion")
        own = properties.get("Environment", {}).get("Variables", {})
        timeout = _value(properties["Timeout"], self._template)
        folders = (
            self._folder / layers[each]["Properties"]["ContentUri"] for each in shared["Layers"]
        )
        return BuiltFunction(
            name=name,
            handler=properties["Handler"],
            path=(self._folder / properties["CodeUri"], *(each / "python" for each in folders)),
            timeout=int(timeout),
            variables=frozenset({**shared["Environment"]["Variables"], **own}),
        )

    def _fed(self) -> dict[str, tuple[str, int]]:
        """Function and batch size by queue."""
        found: dict[str, tuple[str, int]] = {}
        for name, each in self._resources("AWS::Serverless::Function").items():
            for event in each["Properties"].get("Events", {}).values():
                if event["Type"] == "SQS":
                    source = event["Properties"]["Queue"].removesuffix("Arn").rpartition(".")[2]
                    short = name.removesuffix("Function").lower()
                    found[source] = (short, event["Properties"]["BatchSize"])
        return found

    def _nested(self, name: str) -> dict[str, Any]:
        location = self._template["Resources"][name]["Properties"]["Location"]
        return read_template(self._folder / location)

    def _resources(self, kind: str) -> dict[str, Any]:
        resources: dict[str, Any] = self._template["Resources"]
        return {name: each for name, each in resources.items() if each["Type"] == kind}


def _queue(
    name: str,
    properties: Mapping[str, Any],
    template: Mapping[str, Any],
    fed: tuple[str | None, int],
) -> BuiltQueue:
    redrive = properties.get("RedrivePolicy", {})
    return BuiltQueue(
        name=name,
        fifo=properties.get("FifoQueue", False),
        visibility=int(_value(properties["VisibilityTimeout"], template)),
        dead=redrive["deadLetterTargetArn"].removesuffix(".Arn") if redrive else None,
        max_receives=int(_value(redrive["maxReceiveCount"], template)) if redrive else 0,
        function=fed[0],
        batch=fed[1],
    )


def _value(given: Any, template: Mapping[str, Any]) -> Any:
    """A value, or the default of the parameter that it names."""
    parameter = template.get("Parameters", {}).get(given) if isinstance(given, str) else None
    return given if parameter is None else parameter["Default"]
