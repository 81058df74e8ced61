"""Inputs that come as JSON: the same start as the call with the code, as far as a schema tells."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from stepwell.core.inputs import filled_input, input_digest
from stepwell.core.payload import Arguments, arguments


class Line(BaseModel):
    kind: Literal["line"] = "line"
    article: str
    price: float = 1.0
    amounts: tuple[float, int] = (1.0, 2)
    note: str | None = None


class Tree(BaseModel):
    size: int = 1
    left: Tree | None = None
    others: list[Tree] = Field(default=[])


async def flow(
    line: Line | None = None,
    tree: Tree | None = None,
    words: set[str] = set(),  # noqa: B006
    prices: dict[str, float] = {},  # noqa: B006
    anything: Any = None,
    count: int = 3,
    *more: Line,
    on: dt.date = dt.date(2030, 1, 1),
    **others: float,
) -> None: ...


@pytest.fixture(scope="module")
def taken() -> Arguments:
    return arguments(flow, "workflow 'flow'")


CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any], str], ...] = (
    ((), {}, "{}"),
    ((), {"count": 3}, '{"count": 3}'),
    ((), {"count": 3}, '{"count": 3.0}'),
    ((), {"count": 4}, "{}"),
    ((Line(article="a"),), {}, '{"line": {"article": "a"}}'),
    ((Line(article="a", note="n"),), {}, '{"line": {"note": "n", "article": "a", "price": 1}}'),
    ((Line(article="a", price=2),), {}, '{"line": {"article": "a", "price": 2}}'),
    ((Line(article="a", amounts=(3, 4)),), {}, '{"line": {"article": "a", "amounts": [3, 4]}}'),
    ((None, Tree(left=Tree(size=2))), {}, '{"tree": {"left": {"size": 2, "left": null}}}'),
    ((None, Tree(others=[Tree()])), {}, '{"tree": {"others": [{"size": 1}]}}'),
    ((), {"words": {"b", "a"}}, '{"words": ["b", "a"]}'),
    ((), {"prices": {"b": 1, "a": 2}}, '{"prices": {"b": 1, "a": 2.0}}'),
    ((), {"anything": {"b": [1, 1.0], "a": None}}, '{"anything": {"b": [1, 1.0], "a": null}}'),
    ((), {"on": dt.date(2031, 1, 1)}, '{"on": "2031-01-01"}'),
    ((), {"on": dt.date(2030, 1, 1)}, '{"on": "2030-01-01"}'),
    ((None, None, set(), {}, None, 3, Line(article="ä")), {}, '{"more": [{"article": "ä"}]}'),
    ((), {"x": 1}, '{"others": {"x": 1}}'),
)


@pytest.mark.parametrize(("args", "kwargs", "text"), CALLS)
def test_a_call_and_the_json_that_says_the_same_have_the_same_digest(
    taken: Arguments, args: Any, kwargs: Any, text: str
) -> None:
    same = kwargs != {"count": 4}
    digest = input_digest(json.loads(text), taken.schema())
    assert (digest == taken.digest(args, kwargs)) is same


@pytest.mark.parametrize(("args", "kwargs", "text"), CALLS)
def test_the_recorded_input_holds_its_defaults_as_that_of_a_call_does(
    taken: Arguments, args: Any, kwargs: Any, text: str
) -> None:
    filled = filled_input(json.loads(text), taken.schema())
    assert taken.decode(filled) == taken.decode(text)
    if kwargs != {"count": 4}:
        recorded, read = json.loads(taken.encode(args, kwargs)), json.loads(filled)
        assert sorted(read.pop("words")) == sorted(recorded.pop("words"))
        assert read == recorded


def test_without_a_schema_the_order_of_keys_alone_does_not_matter() -> None:
    assert input_digest({"a": 1, "b": {"c": 1, "d": 2}}, "{}") == input_digest(
        {"b": {"d": 2, "c": 1}, "a": 1}, "{}"
    )
    assert input_digest({"a": 1}, "{}") != input_digest({"a": 1.0}, "{}")
    assert filled_input({"a": 1}, "{}") == '{"a":1}'


def test_a_default_that_does_not_fit_its_own_schema_is_left_to_the_code() -> None:
    schema = json.dumps({"properties": {"count": {"type": "integer", "minimum": 0, "default": -1}}})
    assert json.loads(filled_input({"other": 1}, schema)) == {"other": 1}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": True}},
        {"properties": {"a": {"$ref": "#/$defs/Gone"}}},
        {"properties": {"a": {"anyOf": [{"type": "number"}, {"type": "string"}]}}},
    ],
)
def test_what_a_schema_leaves_open_is_taken_as_it_is(schema: Any) -> None:
    given = {"a": {"b": [1]}}
    assert input_digest(given, json.dumps(schema)) == input_digest(given, "{}")


def test_a_number_that_no_float_can_hold_stays_what_it_is() -> None:
    schema = json.dumps({"properties": {"a": {"type": "number"}}})
    huge = {"a": 10**400}
    assert input_digest(huge, schema) == input_digest(huge, "{}")
