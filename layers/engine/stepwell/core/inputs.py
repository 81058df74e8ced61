"""Inputs that come as JSON, read by a workflow's published schema instead of its code.

A start by name and a start with the code should be the same start. So what the schema tells is
used: defaults are filled in for the record, and left out of the digest, and numbers are written by
their type. What it does not tell stays as given: values that JSON can spell in several ways (dates,
decimals, bytes), members of unions, and fields that have an alias, agree only if they are spelt as
Stepwell spells them. Where they do not, two starts with one key conflict; they never become two
runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stepwell.core.answers import problems
from stepwell.core.payload import digest


def filled_input(given: Mapping[str, Any], schema: str) -> str:
    """The input as JSON text, defaults filled in: a later change of them does not change it.

    Defaults that do not fit the schema themselves are left to the code.
    """
    root = json.loads(schema)
    text = _text(_read(given, root, root, fill=True))
    return json.dumps(given, ensure_ascii=False) if problems(schema, text) else text


def input_digest(given: Mapping[str, Any], schema: str) -> str:
    """The digest of an input: as `Arguments.digest` of the call, as far as the schema tells it."""
    root = json.loads(schema)
    return digest(_text(_read(given, root, root, fill=False), sort_keys=True))


def _text(value: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(value, sort_keys=sort_keys, ensure_ascii=False, separators=(",", ":"))


def _read(value: Any, node: Any, root: Any, *, fill: bool) -> Any:
    """A value as its part of the schema says, with defaults filled in or left out."""
    node = _resolved(node, root)
    if isinstance(value, Mapping):
        return _read_object(value, node, root, fill=fill)
    if isinstance(value, list):
        return _read_list(value, node, root, fill=fill)
    kind = node.get("type")
    if kind == "number" and type(value) is int:
        return _as_float(value)
    if kind == "integer" and type(value) is float and value.is_integer():
        return int(value)
    return value


def _resolved(node: Any, root: Any) -> Mapping[str, Any]:
    """What a part of the schema stands for: its reference followed, `null` beside it left out."""
    while isinstance(node, dict):
        choices = [each for each in node.get("anyOf", ()) if each != {"type": "null"}]
        if "$ref" in node:
            node = root.get("$defs", {}).get(node["$ref"].removeprefix("#/$defs/"))
        elif len(choices) == 1:
            node = choices[0]
        else:
            return node
    return {}


def _read_object(
    value: Mapping[str, Any], node: Mapping[str, Any], root: Any, *, fill: bool
) -> dict[str, Any]:
    known = node.get("properties", {})
    others = node.get("additionalProperties")
    read = {name: _read(v, known.get(name, others), root, fill=fill) for name, v in value.items()}
    for name, part in known.items():
        if not isinstance(part, dict) or "default" not in part:
            continue
        # A constant tells the members of a union apart, so it is part of every digest.
        if fill or "const" in part:
            read.setdefault(name, _read(part["default"], part, root, fill=fill))
        elif name in read and _text(read[name]) == _text(
            _read(part["default"], part, root, fill=False)
        ):
            del read[name]
    return read


def _read_list(value: list[Any], node: Mapping[str, Any], root: Any, *, fill: bool) -> list[Any]:
    first = node.get("prefixItems", [])
    read = [
        _read(each, first[n] if n < len(first) else node.get("items"), root, fill=fill)
        for n, each in enumerate(value)
    ]
    if node.get("uniqueItems") and not fill:
        read.sort(key=lambda each: json.dumps(each, sort_keys=True))
    return read


def _as_float(value: int) -> float | int:
    try:
        return float(value)
    except OverflowError:
        return value
