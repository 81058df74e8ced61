"""Orders on their way through two streams: they are shipped on one and paid for on the other.

Both streams have a run for each order, by its number. A step on one tells the other what it has
done; a carrier that fails is asked again, and an order that nobody can ship is put aside for a
person while other orders go on.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal

from pydantic import BaseModel, Field

from examples.outside import outside
from stepwell import (
    RetryPolicy,
    Signal,
    StreamStepContext,
    current,
    emit,
    get_checkpoint,
    get_current_signal,
    run_stream_workflow,
    save_checkpoint,
    schedule_signal,
    set_result,
    sleep,
    step,
    stream_step,
    stream_workflow,
    terminate,
    workflow,
)

ORDERS, BILLING = "pipeline.orders", "pipeline.billing"
PATIENT = RetryPolicy(max_attempts=3, initial="1s")
#: For how long a bill may be disputed after it was paid.
GRACE = "14d"


class Placed(BaseModel):
    """An order. Its price is per piece; without an address it goes where the customer says."""

    item: str
    pieces: int = Field(gt=0)
    price: Decimal = Field(gt=0)
    address: str | None = None


class Sale(BaseModel):
    """What has become of an order."""

    parcel: str | None = None
    receipt: str | None = None
    refunded: bool = False


class NoAddress(Exception):
    """Nobody has said where the parcel is to go."""


@stream_workflow(name=ORDERS)
async def orders() -> None:
    """One order."""


@stream_workflow(name=BILLING)
async def billing() -> None:
    """The bill of one order."""


@step(name="pipeline.address", retry=RetryPolicy(max_attempts=1))
async def address_of(number: str) -> str:
    """Where the customer wants an order, by what they have said since."""
    said = outside().effects("address given")
    if number not in said:
        raise NoAddress(f"there is no address for order {number}")
    return said[number]


@step(name="pipeline.ship", retry=RetryPolicy(max_attempts=3, initial="1h", jitter="none"))
async def ship(item: str, pieces: int, address: str) -> str:
    """Hand a parcel to the carrier, who is asked again after an hour."""
    parcel = f"{pieces} x {item} to {address}"
    outside().request("parcel shipped", current.idempotency_key, parcel)
    return parcel


async def unless_called_off(signal: Signal, ctx: StreamStepContext) -> None:
    """An order that is called off before it was shipped is not; its bill is closed."""
    if signal.signal_type == "order.called_off":
        await emit(BILLING, "bill.closed")
        await ctx.cancel("called off")
    else:
        await ctx.resume()


@stream_step(
    stream=ORDERS,
    signals={"order.placed": Placed, "order.called_off": None},
    on_signal=unless_called_off,
    retry=RetryPolicy(max_attempts=2, initial="1m"),
)
async def fulfilment() -> None:
    """Ship an order, and have it paid for."""
    signal = await get_current_signal()
    if signal is None:
        return
    order = signal.payload
    address = order["address"] or await address_of(signal.stream_run_id)
    parcel = await ship(order["item"], order["pieces"], address)
    amount = order["pieces"] * order["price"]
    # On the stream run of the same name: the bill of this order.
    await emit(BILLING, "order.shipped", {"amount": str(amount), "parcel": parcel})
    await set_result(parcel)
    await terminate()


@step(name="pipeline.charge", retry=PATIENT)
async def charge(amount: str) -> str:
    """Take the money."""
    return outside().request("bill charged", current.idempotency_key, amount)


@step(name="pipeline.refund", retry=PATIENT)
async def refund(receipt: str, reason: str) -> None:
    """Give the money back."""
    outside().request("bill refunded", current.idempotency_key, f"{receipt}: {reason}")


@stream_step(
    stream=BILLING, signals=["order.shipped", "bill.disputed", "bill.settled", "bill.closed"]
)
async def bookkeeping() -> None:
    """Charge a day after the parcel has left; a dispute in the meantime comes behind that."""
    signal = await get_current_signal()
    if signal is None:
        return
    if signal.signal_type == "order.shipped":
        await sleep("1d")
        receipt = await charge(signal.payload["amount"])
        await save_checkpoint({"receipt": receipt})
        await schedule_signal(BILLING, "bill.settled", delay=GRACE)
        return
    paid = await get_checkpoint()
    disputed = signal.signal_type == "bill.disputed" and paid is not None
    if disputed:
        await refund(paid["receipt"], signal.payload["reason"])
    await set_result({**(paid or {}), "refunded": disputed})
    await terminate()


@workflow(name="pipeline.sale")
async def sale(number: str) -> Sale:
    """An order and its bill, each on a stream of its own, until neither goes on."""
    shipped, billed = await asyncio.gather(
        run_stream_workflow(orders, stream_run_id=number),
        run_stream_workflow(billing, stream_run_id=number),
    )
    return Sale(parcel=shipped.get_result("fulfilment"), **billed.get_result("bookkeeping"))
