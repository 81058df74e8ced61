"""What would answer a hook: a payload that fits its schema, and the command that sends it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from stepwell.cli.target import Target
from stepwell.client import PendingHook

_DEPTH = 8
_SAMPLES: dict[str, Any] = {
    "boolean": True,
    "integer": 0,
    "number": 0,
    "null": None,
    "object": {},
    "string": "…",
}


def answer_command(hook: PendingHook, target: Target) -> str:
    """The command that answers a hook, with a payload to be edited."""
    payload = "{}" if hook.schema is None else json.dumps(sample(hook.schema), ensure_ascii=False)
    return f"stepwell hooks resume {hook.token} --payload {shlex.quote(payload)}{target.flag}"


def sample(schema: str) -> Any:
    """A value of the kind that a JSON schema asks for, required members only.

    It shows the form; a schema's finer limits may still refuse it.
    """
    root = json.loads(schema)
    return _sample(root, root, _DEPTH)


def _sample(node: Any, root: Any, depth: int) -> Any:
    if not isinstance(node, dict) or not depth:
        return None
    if "$ref" in node:
        return _sample(_resolve(node["$ref"], root), root, depth - 1)
    for known in ("const", "default"):
        if known in node:
            return node[known]
    for choices in ("enum", "examples"):
        if node.get(choices):
            return node[choices][0]
    for union in ("anyOf", "oneOf", "allOf"):
        if node.get(union):
            return _sample(node[union][0], root, depth - 1)
    kind = node.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        members = node.get("properties", {})
        return {
            name: _sample(members.get(name), root, depth - 1) for name in node.get("required", ())
        }
    if kind == "array":
        return [_sample(node.get("items"), root, depth - 1)] if node.get("minItems") else []
    return _SAMPLES.get(kind)


def _resolve(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found
