"""Forms: what a schema asks for, and what a filled-in form means."""

from __future__ import annotations

import datetime as dt
import enum
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from stepwell.api.forms import WHOLE, Form, form_of
from stepwell.api.problems import Refusal
from stepwell.core.answers import problems
from stepwell.core.payload import codec
from stepwell.errors import PayloadRejected


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Flat(BaseModel):
    """All kinds of simple members."""

    approved: bool
    note: str = Field(default="none", max_length=50)
    long: str = ""
    amount: int = Field(default=1, ge=0)
    share: float | None = None
    kind: Literal["a", "b"] | None = None
    level: Literal[1, 2] = 1
    colour: Colour = Colour.RED
    when: dt.date | None = None


def schema_of(kind: Any) -> str:
    return codec(kind, "test").schema()


def payload(form: Form, **given: str) -> Any:
    return form.payload(given)


def test_a_flat_object_has_a_field_for_each_member() -> None:
    form = form_of(schema_of(Flat))
    kinds = {each.name: each.kind for each in form.fields}
    assert kinds == {
        "approved": "choice",
        "note": "text",
        "long": "long",
        "amount": "integer",
        "share": "number",
        "kind": "choice",
        "level": "choice",
        "colour": "choice",
        "when": "text",
    }
    assert form.hint == "All kinds of simple members."
    assert [each.name for each in form.fields if each.required] == ["approved"]
    by_name = {each.name: each for each in form.fields}
    assert by_name["note"].default == "none"
    assert dict(by_name["amount"].attributes) == {"min": "0", "type": "number", "step": "1"}
    assert dict(by_name["when"].attributes)["type"] == "date"


def test_what_is_filled_in_gets_the_types_of_the_schema() -> None:
    schema = schema_of(Flat)
    given = payload(
        form_of(schema),
        approved="false",
        note="two\r\nlines",
        amount="12",
        share="0.5",
        kind='"b"',
        level="2",
        colour='"blue"',
        when="2030-01-31",
    )
    assert given == {
        "approved": False,
        "note": "two\nlines",
        "amount": 12,
        "share": 0.5,
        "kind": "b",
        "level": 2,
        "colour": "blue",
        "when": "2030-01-31",
    }
    assert problems(schema, json.dumps(given)) == []


def test_what_is_left_empty_is_left_out_where_it_may_be() -> None:
    assert payload(form_of(schema_of(Flat)), approved="true", note="", share="") == {
        "approved": True
    }

    class Required(BaseModel):
        text: str
        number: int
        other: int | None

    assert payload(form_of(schema_of(Required))) == {"text": "", "other": None}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("approved", "yes"),
        ("approved", "1"),
        ("amount", "1.5"),
        ("amount", "x"),
        ("amount", "9" * 5_000),
        ("share", "NaN"),
        ("share", "true"),
        ("share", "[1]"),
        ("kind", '"c"'),
        ("level", '"1"'),
    ],
)
def test_what_cannot_be_converted_is_left_for_the_schema_to_refuse(name: str, text: str) -> None:
    schema = schema_of(Flat)
    given = payload(form_of(schema), **{"approved": "true", name: text})
    assert {each["pointer"] for each in problems(schema, json.dumps(given))} == {f"/{name}"}


def test_a_choice_may_be_written_without_its_quotes() -> None:
    assert payload(form_of(schema_of(Flat)), approved="true", kind="b")["kind"] == "b"


def test_a_field_that_was_not_asked_for_is_refused() -> None:
    with pytest.raises(PayloadRejected) as caught:
        payload(form_of(schema_of(Flat)), approved="true", extra="1")
    assert caught.value.errors[0]["pointer"] == "/extra"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (bool, "true", True),
        (int, "7", 7),
        (str, "seven", "seven"),
        (str, "", ""),
        (Literal["x", "y"], '"y"', "y"),
        (bool | None, "", None),
    ],
)
def test_a_simple_value_is_one_field(kind: Any, text: str, value: Any) -> None:
    form = form_of(schema_of(kind))
    assert [each.name for each in form.fields] == [WHOLE]
    assert form.fields[0].kind != "json"
    assert payload(form, payload=text) == value


class Nested(BaseModel):
    inner: Flat


class Listed(BaseModel):
    many: list[int]


class Either(BaseModel):
    one: int | str


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "{}",
        "true",
        schema_of(Nested),
        schema_of(Listed),
        schema_of(Either),
        schema_of(dict[str, int]),
        schema_of(list[int]),
        '{"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}',
        '{"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}}',
        '{"$ref": "#"}',
        '{"type": ["object", "null"]}',
        '{"enum": [{"a": 1}]}',
    ],
)
def test_anything_else_is_a_field_for_json(schema: str | None) -> None:
    form = form_of(schema)
    assert [each.kind for each in form.fields] == ["json"]
    assert payload(form, payload='{"a": [1]}') == {"a": [1]}
    for bad in ("", "{", "NaN", '{"a": 1, "a": 2}'):
        with pytest.raises(Refusal):
            payload(form, payload=bad)


def test_an_object_without_members_is_a_form_without_fields() -> None:
    class Nothing(BaseModel):
        pass

    form = form_of(schema_of(Nothing))
    assert (form.fields, form.whole, payload(form)) == ((), False, {})
