"""The templates as plain values, and what a value of the parent stands for in a nested template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cfnlint.decode import cfn_yaml

ROOT = Path(__file__).parents[2]
NESTED_OUTPUT = re.compile(r"\$\{(\w+)\.Outputs\.(\w+)\}")


def load(path: Path) -> dict[str, Any]:
    """A template, with its short forms written out: `!Ref X` as `{"Ref": "X"}`."""
    plain: dict[str, Any] = _plain(cfn_yaml.load(str(path)))
    return plain


def _plain(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {str(name): _plain(value) for name, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    return str(node) if isinstance(node, str) else node


PARENT = load(ROOT / "template.yaml")


def of_type(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The properties of a template's resources of one type."""
    return {
        name: resource.get("Properties", {})
        for name, resource in template["Resources"].items()
        if resource["Type"] == kind
    }


NESTED = {
    name: load(ROOT / properties["Location"])
    for name, properties in of_type(PARENT, "AWS::Serverless::Application").items()
}
STORAGE, MESSAGING, OBSERVABILITY = (
    NESTED[name] for name in ("Storage", "Messaging", "Observability")
)
FUNCTIONS = of_type(PARENT, "AWS::Serverless::Function")


def walk(value: Any) -> Iterator[Any]:
    """A value and all that is in it."""
    yield value
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for each in inner:
            yield from walk(each)


def outputs_read(value: Any) -> set[tuple[str, str]]:
    """Each output of a nested template that a value reads: template and output."""
    found = set()
    for each in walk(value):
        if isinstance(each, str):
            found |= set(NESTED_OUTPUT.findall(each))
        elif isinstance(each, Mapping) and "Fn::GetAtt" in each:
            name, attribute = each["Fn::GetAtt"]
            if attribute.startswith("Outputs."):
                found.add((name, attribute.removeprefix("Outputs.")))
    return found


def short(value: Any) -> str:
    """What a reference stands for, in short: `RunQueue.Arn`, `Table.Arn/index/runs`, `KmsKeyArn`.

    Outputs of nested templates are followed to the resource.
    """
    if isinstance(value, str):
        return value
    ((function, argument),) = value.items()
    if function == "Ref":
        return str(argument)
    if function == "Fn::Sub":
        return re.sub(r"\$\{([^}]+)\}", lambda found: _named(*found[1].split(".", 1)), argument)
    if function == "Fn::GetAtt":
        return _named(*argument)
    raise ValueError(f"not a reference: {value}")


def _named(name: str, attribute: str = "") -> str:
    if name.startswith("AWS::"):
        return "${" + name + "}"
    if attribute.startswith("Outputs."):
        return short(NESTED[name]["Outputs"][attribute.removeprefix("Outputs.")]["Value"])
    return f"{name}.{attribute}" if attribute else name


def statements(role: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The statements of a role, also those that stand under a condition."""
    found = []
    for policy in role["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            if "Fn::If" in statement:
                _, there, otherwise = statement["Fn::If"]
                assert otherwise == {"Ref": "AWS::NoValue"}
                found.append(there)
            else:
                found.append(statement)
    return found


def listed(value: Any) -> list[Any]:
    """One or several, as several."""
    return value if isinstance(value, list) else [value]


def grants(role: Mapping[str, Any]) -> dict[str, set[str]]:
    """What a role may do to each resource."""
    found: dict[str, set[str]] = {}
    for statement in statements(role):
        for resource in listed(statement["Resource"]):
            found.setdefault(short(resource), set()).update(listed(statement["Action"]))
    return found


def default(template: Mapping[str, Any], value: Any) -> Any:
    """A value where it stands, or the default of the parameter that it refers to."""
    return template["Parameters"][value["Ref"]]["Default"] if isinstance(value, Mapping) else value
