"""A trip: all of it is booked, or nothing.

The parts are booked in a saga, which takes back what was booked when a later part fails, when the
traveller declines, or when somebody cancels the run, on whatever day. Parts that may take long are
runs of their own: `watch_fares`, `find_room`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict

from examples.outside import outside
from examples.trip.cars import Car, hire_car
from examples.trip.fares import Watch, watch_fares
from examples.trip.room import Room, find_room
from stepwell import (
    ChildError,
    HookTimeout,
    RetryPolicy,
    Saga,
    current,
    hook,
    patched,
    saga,
    shield,
    start_child,
    step,
    workflow,
)

PATIENT = RetryPolicy(max_attempts=8, initial="10s")


class Trip(BaseModel):
    """What a traveller wishes for: no fare above `most`, and to know within `days`."""

    model_config = ConfigDict(frozen=True)

    traveller: str
    place: str
    most: int
    days: int = 30


class Yes(BaseModel):
    """What the traveller answers to the offer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    yes: bool


class Offer(BaseModel):
    """A trip that is booked, and not yet paid."""

    model_config = ConfigDict(frozen=True)

    fare: int
    flight: str
    room: Room
    car: Car | None
    insurance: str | None


class Booking(BaseModel):
    """How it ended."""

    model_config = ConfigDict(frozen=True)

    status: Literal["booked", "declined", "unanswered", "impossible"]
    offer: Offer | None = None
    receipt: str | None = None


@workflow
async def book_trip(trip: Trip) -> Booking:
    """Book a trip, ask the traveller, and pay for it; or leave nothing behind."""
    try:
        booking = await _book(trip)
    except _Declined:
        booking = Booking(status="declined")
    except HookTimeout:
        booking = Booking(status="unanswered")
    except ChildError:
        booking = Booking(status="impossible")
    except asyncio.CancelledError:
        await write_to(trip.traveller, "cancelled")
        raise
    await write_to(trip.traveller, booking.status)
    return booking


class _Declined(Exception):
    """The traveller does not want it."""


async def _book(trip: Trip) -> Booking:
    """Book, ask and pay. What it raises has taken back all that was booked."""
    async with saga() as done:
        offer = await _offer(trip, done)
        answer: Yes = await hook(
            "offer",
            timeout="2d",
            on_created=partial(send_offer, current.run_id),
            payload_schema=Yes,
        )
        if not answer.yes:
            raise _Declined
        async with shield():  # who pays gets tickets; a cancel meanwhile takes back both
            receipt = await pay(trip.traveller, offer.fare)
            await issue_tickets(trip.traveller)
    return Booking(status="booked", offer=offer, receipt=receipt)


async def _offer(trip: Trip, done: Saga) -> Offer:
    """Book the parts, one after the other."""
    watch = Watch(place=trip.place, most=trip.most, days=trip.days)
    fare = await start_child(watch_fares, watch)
    flight = await book_flight(trip, fare)
    # Added before: the child may have booked though it was cancelled, or failed after that.
    done.add(cancel_room, trip.traveller)
    room = await start_child(find_room, trip.traveller, trip.place)
    car = await hire_car(trip.traveller)
    # Runs from before there was insurance go on without.
    insurance = await insure(trip.traveller) if patched("insurance") else None
    return Offer(fare=fare, flight=flight, room=room, car=car, insurance=insurance)


def send_offer(run_id: str, token: str) -> None:
    """Write to the traveller, who answers with the token."""
    outside().request("offer sent", run_id, token)


@step(retry=PATIENT)
async def cancel_flight(flight: str, trip: Trip, fare: int) -> None:
    """Give the seat back."""
    what = f"{flight}, {fare} back to {trip.traveller}"
    outside().request("flight cancelled", current.idempotency_key, what)


@step(retry=PATIENT, compensate=cancel_flight)
async def book_flight(trip: Trip, fare: int) -> str:
    """Book a seat."""
    what = f"{trip.place} for {trip.traveller}, at {fare}"
    return outside().request("flight booked", current.idempotency_key, what)


@step(retry=PATIENT)
async def cancel_room(traveller: str) -> None:
    """Cancel the traveller's room, if there is one."""
    outside().request("room cancelled", current.idempotency_key, traveller)


@step(retry=PATIENT)
async def cancel_insurance(policy: str, traveller: str) -> None:
    """Withdraw from the policy."""
    what = f"{policy} of {traveller}"
    outside().request("insurance cancelled", current.idempotency_key, what)


@step(retry=PATIENT, compensate=cancel_insurance)
async def insure(traveller: str) -> str:
    """Insure the traveller."""
    return outside().request("insured", current.idempotency_key, traveller)


@step(retry=PATIENT)
async def return_money(receipt: str, traveller: str, fare: int) -> None:
    """Give the money back."""
    what = f"{fare} to {traveller}, see {receipt}"
    outside().request("money returned", current.idempotency_key, what)


@step(retry=PATIENT, compensate=return_money)
async def pay(traveller: str, fare: int) -> str:
    """Take the money."""
    return outside().request("trip paid", current.idempotency_key, f"{fare} by {traveller}")


@step(retry=PATIENT)
async def void_tickets(tickets: str, traveller: str) -> None:
    """Make the tickets worthless."""
    what = f"{tickets} of {traveller}"
    outside().request("tickets voided", current.idempotency_key, what)


@step(retry=PATIENT, compensate=void_tickets)
async def issue_tickets(traveller: str) -> str:
    """Send the tickets."""
    return outside().request("tickets issued", current.idempotency_key, traveller)


@step(retry=PATIENT)
async def write_to(traveller: str, status: str) -> None:
    """Tell the traveller how it ended."""
    outside().request("traveller told", current.idempotency_key, f"{traveller}: {status}")
