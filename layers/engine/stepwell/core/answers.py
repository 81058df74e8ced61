"""Answers to hooks, checked against the JSON schema that the hook was made with.

A schema is all that is needed: whoever takes an answer need not have the code that asked.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError

from stepwell.core.records import HookRow
from stepwell.errors import DefinitionError

#: Characters of a schema: it is part of the hook's row.
_SCHEMA_LIMIT = 65_536


class _Validator(Protocol):
    def iter_errors(self, instance: Any) -> Any:
        """What is wrong with an instance."""


def check_schema(schema: str, owner: str) -> None:
    """Refuse a schema that no answer could be checked against, or too long. `DefinitionError`."""
    if len(schema) > _SCHEMA_LIMIT:
        raise DefinitionError(
            f"{owner}: its JSON schema is longer than {_SCHEMA_LIMIT:,} characters"
        )
    try:
        _validator(schema)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise DefinitionError(f"{owner}: its JSON schema cannot be used: {error}") from None


def problems(schema: str, text: str) -> list[dict[str, str]]:
    """What does not fit, as JSON pointer and message; empty when all does."""
    return [
        {
            "pointer": "".join(f"/{_escaped(part)}" for part in error.instance_path),
            "message": error.message,
        }
        for error in _validator(schema).iter_errors(json.loads(text))
    ]


def _escaped(part: str | int) -> str:
    """A name or a number as a part of a JSON pointer."""
    return str(part).replace("~", "~0").replace("/", "~1")


def decision_id(row: HookRow, text: str) -> str:
    """The id of an answer's decision: whoever tries the same answer again makes the same one."""
    # In whatever order its keys came.
    text = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(f"{row.run_id}|{row.hook_id}|{text}".encode()).hexdigest()[:32]


@lru_cache(maxsize=256)
def _validator(schema: str) -> _Validator:
    # Offline: a schema must not make this process fetch what it names.
    validator: _Validator = jsonschema_rs.validator_for(
        json.loads(schema), validate_formats=True, formats=_FORMATS, offline=True
    )
    return validator


def _reads_as(kind: type[Any]) -> Callable[[str], bool]:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def reads(text: str) -> bool:
        try:
            adapter.validate_python(text)
        except ValidationError:
            return False
        return True

    return reads


#: Formats as the declared types read them, which take more than their standards name.
_FORMATS = {
    "date": _reads_as(dt.date),
    "date-time": _reads_as(dt.datetime),
    "duration": _reads_as(dt.timedelta),
    "time": _reads_as(dt.time),
    "uuid": _reads_as(uuid.UUID),
}
