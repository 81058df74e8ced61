"""Where a value does not fit its type, and why, in words for the value's author.

Pydantic's locations mix parts of the value with labels of types; paths here hold only the former.
A reason never quotes the value: errors are recorded, and values may be private.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, PydanticSchemaGenerationError, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, from_json

#: How to get from a value to a part of it: keys, indexes and field names.
Steps = list[int | str]


class Misfit(Exception):
    """A value or text does not fit the type. `path` says where, `$` being the whole value."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def render(steps: Sequence[int | str]) -> str:
    """A path for people: `$.items[3].when`."""
    parts = ["$"]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]")
    return "".join(parts)


def text_misfit(error: ValidationError, text: str | bytes) -> Misfit:
    """The first thing that is wrong with a text."""
    try:
        data = from_json(text)
    except ValueError:
        data = None
    return value_misfit(error, data)


def value_misfit(error: ValidationError, value: Any) -> Misfit:
    """The first thing that is wrong with a value, or with the parsed data of a text."""
    details = error.errors(include_url=False)
    first = details[0]
    steps = _steps(first["loc"], value)
    if first["type"] == "missing" and not (steps and steps[-1] == first["loc"][-1]):
        steps.append(first["loc"][-1])
    steps.extend(first.get("ctx", {}).get("steps", ()))
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return Misfit(render(steps), _reason(first) + more)


def _steps(loc: tuple[int | str, ...], value: Any) -> Steps:
    """The parts of pydantic's location that are in the value; the rest are labels of types."""
    steps: Steps = []
    for each in loc:
        found, part = _part(value, each)
        if found:
            steps.append(each)
            value = part
    return steps


def _part(value: Any, step: int | str) -> tuple[bool, Any]:
    if isinstance(value, Mapping):
        # A key that is a number is text in a location as it is in JSON.
        for key in (step, *(k for k in value if str(k) == step)):
            if key in value:
                return True, value[key]
    elif isinstance(step, int):
        if isinstance(value, Sequence) and not isinstance(value, str) and step < len(value):
            return True, value[step]
    elif isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return hasattr(value, step), getattr(value, step, None)
    return False, None


def _reason(error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] in ("missing", "extra_forbidden", "value_error", "not_plain", "json_invalid"):
        return message
    # The value itself stays out of it: errors are recorded, and it may be private.
    return f"{message}, got {type(error['input']).__name__}"


def told(error: Exception) -> str:
    """The first line of an error, without pydantic's prefixes."""
    lines = [line.strip() for line in str(error).splitlines()]
    if isinstance(error, PydanticSerializationError) and "warnings:" in lines[0]:
        return "holds a value of another type than declared"
    if isinstance(error, PydanticSchemaGenerationError):
        # The rest advises to allow arbitrary types, which would not make them JSON.
        kind = lines[0].partition(" for ")[2].partition(". ")[0]
        return f"{kind} has no JSON form; use a model, a dataclass or plain types"
    text = lines[0].removeprefix("Error serializing to JSON: ") if lines else ""
    if type(error).__module__.startswith("pydantic"):
        return text
    return f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__


def refuse_uncarriable(value: Any) -> None:
    """Raises for what coercion would spoil or hide, wherever in the value it is."""
    _search(value, [], set())


def _search(value: Any, steps: Steps, seen: set[int]) -> None:
    if isinstance(value, str):
        if not value.isascii():
            _refuse_surrogates(value, steps)
    elif isinstance(value, Iterator):
        # The first try to write it has read it; what is left would be carried as if it were all.
        raise Misfit(render(steps), "an iterator can be read only once; make it a list")
    elif id(value) not in seen:
        seen.add(id(value))
        for step, part in _parts(value):
            _search(part, [*steps, step], seen)


def _refuse_surrogates(text: str, steps: Steps) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit(render(steps), "text with half of a surrogate pair is no Unicode") from None


def _parts(value: Any) -> Iterator[tuple[int | str, Any]]:
    if isinstance(value, dict):
        return ((key if isinstance(key, int) else str(key), part) for key, part in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    if isinstance(value, BaseModel):
        return iter(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return ((name, getattr(value, name, None)) for name in names)
    return iter(())
