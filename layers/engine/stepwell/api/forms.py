"""Forms from JSON schemas: flat ones become fields, all others one field for JSON text.

A form carries text alone. The same fields that drew it turn it back into a payload, which is then
checked against the schema like any other: what cannot be converted is left as text for the schema
to refuse, with its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stepwell.api.bodies import parse_json
from stepwell.api.problems import flaw
from stepwell.errors import PayloadRejected

#: The one field of a form that is no object's.
WHOLE = "payload"
_DEEPEST = 8
_INTEGER = re.compile(r"[+-]?\d{1,1000}")
_COMBINED = ("allOf", "anyOf", "oneOf", "not", "if", "$ref", "dependentRequired")
_FORMATS = {"date": "date", "email": "email", "uri": "url"}

Kind = Literal["text", "long", "integer", "number", "choice", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. `choices` are pairs of JSON text and label; `attributes` are HTML's own checks."""

    name: str
    label: str
    kind: Kind
    hint: str = ""
    required: bool = True
    nullable: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What to ask for. `whole`: its one field is the payload itself, not a member of it."""

    fields: tuple[Field, ...]
    whole: bool
    title: str = ""
    hint: str = ""

    def payload(self, given: Mapping[str, str]) -> Any:
        """The payload that filled-in fields stand for.

        Raises `PayloadRejected` on fields that were not asked for, `Refusal` on bad JSON text.
        """
        known = {each.name for each in self.fields}
        strange = [flaw(f"/{name}", "not asked for") for name in given if name not in known]
        if strange:
            raise PayloadRejected(strange)
        if self.whole:
            value = _value(self.fields[0], given.get(WHOLE, ""))
            return None if value is _ABSENT else value
        values = {each.name: _value(each, given.get(each.name, "")) for each in self.fields}
        return {name: value for name, value in values.items() if value is not _ABSENT}


_ABSENT = object()


def _value(each: Field, text: str) -> Any:
    text = text.replace("\r\n", "\n")
    if each.kind == "json":
        return parse_json(text)
    if not text:
        if not each.required:
            return _ABSENT
        if each.nullable:
            return None
        return "" if each.kind in ("text", "long") else _ABSENT
    if each.kind == "integer":
        return int(text) if _INTEGER.fullmatch(text.strip()) else text
    if each.kind == "number":
        return _number(text)
    if each.kind == "choice":
        return json.loads(text) if text in dict(each.choices) else text
    return text


def _number(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    return value if type(value) in (int, float) else text


def form_of(schema: str | None) -> Form:
    """The form that a schema asks for."""
    root = json.loads(schema) if schema is not None else {}
    node, _ = _resolved(root, root)
    title, hint = _text(node.get("title")), _text(node.get("description"))
    fields = _members(node, root) if node.get("type") == "object" else None
    if fields is not None:
        return Form(fields=fields, whole=False, title=title, hint=hint)
    one = _field(WHOLE, root, root, required=True) or Field(
        name=WHOLE, label="Answer, as JSON", kind="json"
    )
    return Form(fields=(one,), whole=True, title=title, hint=hint)


def _members(node: Mapping[str, Any], root: Any) -> tuple[Field, ...] | None:
    """A field for each property, None when the object is not flat."""
    properties = node.get("properties")
    if not isinstance(properties, dict) or any(word in node for word in _COMBINED):
        return None
    required = node.get("required", [])
    fields = [
        _field(name, part, root, required=name in required) for name, part in properties.items()
    ]
    return tuple(each for each in fields if each) if all(fields) else None


def _field(name: str, part: Any, root: Any, *, required: bool) -> Field | None:
    """The field of one value, None when it takes more than a field."""
    node, nullable = _resolved(part, root)
    kind, choices = _kind(node)
    if kind is None:
        return None
    outer = part if isinstance(part, dict) else {}
    default = outer.get("default", node.get("default"))
    return Field(
        name=name,
        label=_text(outer.get("title")) or _text(node.get("title")) or name,
        kind=kind,
        hint=_text(outer.get("description")) or _text(node.get("description")),
        required=required,
        nullable=nullable,
        choices=choices,
        attributes=_attributes(kind, node),
        default=_shown(default, kind),
    )


def _resolved(part: Any, root: Any) -> tuple[Mapping[str, Any], bool]:
    """A part of the schema with its references followed, and whether null is taken beside it."""
    nullable = False
    for _ in range(_DEEPEST):
        if not isinstance(part, dict):
            return {}, nullable
        others = [each for each in part.get("anyOf", []) if each != {"type": "null"}]
        if "$ref" in part:
            part = _target(part["$ref"], root)
        elif len(others) == 1 and len(part["anyOf"]) == 2:
            part, nullable = others[0], True
        else:
            return part, nullable
    return {}, nullable


def _target(reference: Any, root: Any) -> Any:
    # Local ones alone: a schema must not make this process fetch what it names.
    node = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _kind(node: Mapping[str, Any]) -> tuple[Kind | None, tuple[tuple[str, str], ...]]:
    if any(word in node for word in _COMBINED):
        return None, ()
    options = [node["const"]] if "const" in node else node.get("enum")
    if options is not None:
        flat = all(each is None or isinstance(each, str | int | float) for each in options)
        choices = tuple((json.dumps(each), _label(each)) for each in options)
        return ("choice", choices) if flat else (None, ())
    match node.get("type"):
        case "boolean":
            return "choice", (("true", "Yes"), ("false", "No"))
        case "integer":
            return "integer", ()
        case "number":
            return "number", ()
        case "string":
            bounded = node.get("maxLength", 1_000) <= 200
            return ("text" if bounded or "format" in node or "pattern" in node else "long"), ()
        case _:
            return None, ()


def _label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _attributes(kind: Kind, node: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a browser can check by itself; the schema is checked in any case."""
    names = {"minLength": "minlength", "maxLength": "maxlength"}
    if kind in ("integer", "number"):
        names = {"minimum": "min", "maximum": "max"}
    found = {name: str(node[key]) for key, name in names.items() if key in node}
    if kind in ("integer", "number"):
        found |= {"type": "number", "step": "1" if kind == "integer" else "any"}
    elif kind == "text":
        found["type"] = _FORMATS.get(str(node.get("format")), "text")
    return tuple(found.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(default: Any, kind: Kind) -> str:
    if kind in ("text", "long"):
        return _text(default)
    return "" if default is None else json.dumps(default)
