"""A car for a trip: several companies are asked at once, and the first to answer gets the order."""

from __future__ import annotations

import asyncio
from functools import partial

from pydantic import BaseModel, ConfigDict

from examples.outside import outside
from stepwell import RetryPolicy, current, hook, step

PATIENT = RetryPolicy(max_attempts=8, initial="10s")
COMPANIES = ("Fjord Cars", "Northern Wheels")
#: Seconds that the companies have.
PATIENCE = 6 * 3600


class Price(BaseModel):
    """What a company answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    price: int


class Bid(BaseModel):
    """What a company has offered."""

    model_config = ConfigDict(frozen=True)

    company: str
    price: int


class Car(BaseModel):
    """A car that was ordered."""

    model_config = ConfigDict(frozen=True)

    bid: Bid
    receipt: str


async def hire_car(traveller: str) -> Car | None:
    """Order a car from the company that answers first; None if none does in time."""
    asked = [asyncio.create_task(_bid_of(company)) for company in COMPANIES]
    try:
        async with asyncio.timeout(PATIENCE):
            bid = await next(asyncio.as_completed(asked))
    except TimeoutError:
        return None
    finally:
        for each in asked:
            each.cancel()  # closes what the others were asked
    return await order_car(traveller, bid)


async def _bid_of(company: str) -> Bid:
    """What the company offers, once it has answered."""
    tell = partial(ask_company, current.run_id, company)
    answer: Price = await hook("price", key=company, on_created=tell, payload_schema=Price)
    return Bid(company=company, price=answer.price)


def ask_company(run_id: str, company: str, token: str) -> None:
    """Write to a company; it answers with the token."""
    outside().request("company asked", f"{run_id}/{company}", f"{company} {token}")


@step(retry=PATIENT)
async def cancel_car(car: Car, traveller: str, bid: Bid) -> None:
    """Withdraw the order."""
    what = f"{car.receipt} of {traveller}, {bid.company}"
    outside().request("car cancelled", current.idempotency_key, what)


@step(retry=PATIENT, compensate=cancel_car)
async def order_car(traveller: str, bid: Bid) -> Car:
    """Order it."""
    what = f"{bid.company} for {traveller}"
    return Car(bid=bid, receipt=outside().request("car ordered", current.idempotency_key, what))
