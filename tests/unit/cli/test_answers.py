"""Sample payloads from the schemas of hooks."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field, TypeAdapter

from stepwell.cli.answers import sample


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    text: str
    weight: float


class Answer(BaseModel):
    approved: bool
    lines: list[Line]
    first: Line
    colour: Colour
    kind: Literal["letter"]
    count: int | None
    pairs: dict[str, int]
    some: list[Line] = Field(min_length=1)
    note: str = "none"


class Tree(BaseModel):
    branches: list[Tree]


@pytest.mark.parametrize("kind", [Answer, Tree, Colour, bool, int, str, list[int], Line | None])
def test_a_sample_fits_its_schema(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    jsonschema_rs.validate(schema, sample(json.dumps(schema)))


def test_a_sample_shows_required_members_only() -> None:
    schema = json.dumps(Answer.model_json_schema())
    assert set(sample(schema)) == set(Answer.model_fields) - {"note"}


def test_an_endless_schema_ends() -> None:
    schema = {"type": "object", "required": ["again"], "properties": {"again": {"$ref": "#"}}}
    assert "again" in sample(json.dumps(schema))
