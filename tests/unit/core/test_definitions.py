"""What is published of a workflow, and the order of its versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell.core.definitions import WorkflowDefinition, published, version_order
from stepwell.core.payload import arguments, returns


def declared(
    function: Callable[..., Any], *, name: str = "", version: str = "1"
) -> WorkflowDefinition:
    return WorkflowDefinition(
        name=name or function.__name__,
        version=version,
        function=function,
        colour="async",
        arguments=arguments(function, "workflow"),
        result=returns(function, "workflow"),
    )


class Order(BaseModel):
    number: str
    amount: float = 0


async def bill(order: Order, note: str = "") -> Order:
    """Bill an order.

    Later.
    """
    return order


def test_what_is_published_tells_how_to_start_it_and_what_comes_back() -> None:
    told = published(declared(bill, version="3"), at=17)
    assert (told.name, told.version, told.published_at) == ("bill", "3", 17)
    assert told.description == "Bill an order.\n\nLater."
    assert json.loads(told.input_schema)["required"] == ["order"]
    assert told.result_schema is not None
    assert json.loads(told.result_schema)["properties"].keys() == {"number", "amount"}


def test_the_digest_is_of_all_that_is_published_but_the_time() -> None:
    definition = declared(bill)

    async def billed(order: Order, note: str = "") -> Order:
        """Another text."""
        return order

    async def other_input(order: Order) -> Order:
        """Bill an order.

        Later.
        """
        return order

    async def other_result(order: Order, note: str = "") -> None:
        """Bill an order.

        Later.
        """

    digests = {
        published(each, at=1).digest
        for each in (
            definition,
            replace(definition, version="2"),
            replace(definition, name="another"),
            *(declared(each, name="bill") for each in (billed, other_input, other_result)),
        )
    }
    assert len(digests) == 6
    assert published(definition, at=2).digest == published(definition, at=1).digest


class Odd:
    """A type that no JSON stands for."""


def test_a_type_without_json_schema_is_published_without() -> None:
    async def odd(given: Odd) -> Odd:
        return given

    async def unresolved(given: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
        """What nobody defined."""

    for function in (odd, unresolved):
        assert published(declared(function), at=1).input_schema == "{}"
    assert published(declared(odd), at=1).result_schema is None


@pytest.mark.parametrize("text", ["x" * 70_000, "\N{GRINNING FACE}" * 40_000])
def test_a_schema_too_long_to_be_kept_is_published_without(text: str) -> None:
    async def long(x: int) -> None: ...

    long.__annotations__["x"] = type("Long", (BaseModel,), {"__doc__": text})
    assert published(declared(long), at=1).input_schema == "{}"


def test_versions_sort_as_they_are_meant() -> None:
    ordered = ["", "0", "1", "1.2", "1.9", "1.10", "2", "9", "10", "2024-01", "v1", "v2", "v10"]
    shuffled = [*ordered[1::2], *ordered[::2]]
    assert sorted(shuffled, key=version_order) == ordered


@pytest.mark.parametrize(("one", "other"), [("1", "01"), ("v007", "v7"), ("1.0", "1.00")])
def test_leading_zeros_say_nothing_of_a_version(one: str, other: str) -> None:
    assert version_order(one) == version_order(other)
