"""A room for a trip: hotels are asked one after the other, and each has two days to answer."""

from __future__ import annotations

from functools import partial

from pydantic import BaseModel, ConfigDict

from examples.outside import outside
from stepwell import STEP_HOOK_TIMEOUT, FatalError, current, hook, step, workflow

HOTELS = ("Harbour Inn", "Park House")


class Room(BaseModel):
    """A room that was booked."""

    model_config = ConfigDict(frozen=True)

    hotel: str
    receipt: str


class Vacancy(BaseModel):
    """What a hotel answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    free: bool


@workflow
async def find_room(traveller: str, place: str) -> Room:
    """Book a room in the first hotel that has one. Fails when none has."""
    for hotel in HOTELS:
        vacancy = await hook(
            "vacancy",
            key=hotel,
            timeout="2d",
            on_created=partial(ask_hotel, current.run_id, hotel),
            payload_schema=Vacancy,
            on_timeout="return",
        )
        if vacancy is not STEP_HOOK_TIMEOUT and vacancy.free:
            return await book_room(traveller, hotel)
    raise FatalError(f"no room in {place}")


def ask_hotel(run_id: str, hotel: str, token: str) -> None:
    """Write to a hotel; it answers with the token."""
    outside().request("hotel asked", f"{run_id}/{hotel}", f"{hotel} {token}")


@step
async def book_room(traveller: str, hotel: str) -> Room:
    """Book it."""
    receipt = outside().request("room booked", current.idempotency_key, f"{hotel} for {traveller}")
    return Room(hotel=hotel, receipt=receipt)
