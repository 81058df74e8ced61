"""A workflow that carries a value of each type through a wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

from pydantic import BaseModel

from examples.outside import outside
from stepwell import (
    hook,
    step,
    workflow,
)


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    name: str
    price: Decimal


@dataclass(frozen=True, slots=True)
class Everything:
    """One of each."""

    pair: tuple[int, str]
    some: set[int]
    by_number: dict[int, str]
    price: Decimal
    at: datetime
    span: timedelta
    raw: bytes
    colour: Colour
    item: Item
    id: UUID


EVERYTHING = Everything(
    pair=(1, "a"),
    some={3, 1, 2},
    by_number={7: "seven"},
    price=Decimal("0.10"),
    at=datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    span=timedelta(hours=1, microseconds=1),
    raw=b"\x00\xff",
    colour=Colour.RED,
    item=Item(name="bolt", price=Decimal("1.50")),
    id=UUID(int=42),
)


@step(name="acceptance.make_everything")
async def make_everything() -> Everything:
    return EVERYTHING


@step(name="acceptance.see")
async def see(what: Everything, when: str) -> str:
    outside().request("seen", when, f"{what == EVERYTHING} {type(what.pair).__name__}")
    return when


@workflow(name="acceptance.values")
async def values() -> str:
    """What the first pass sees and what each replay sees is told apart by what they do with it."""
    found = await make_everything()
    await see(found, f"{found == EVERYTHING} before")
    await hook("later")
    await see(found, f"{found == EVERYTHING} after")
    return f"{type(found.some).__name__} {list(found.by_number)} {found.at.tzinfo}"
