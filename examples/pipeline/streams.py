"""Orders on their way through two streams: they are shipped on one and paid for on the other.

Both streams have a run for each order, by its number. A step on one tells the other what it has
done; a carrier that fails is asked again, and an address that nobody can ship to is put aside for a
person while other orders go on.
"""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel, Field

from stepwell import (
    RetryPolicy,
    Signal,
    StreamStepContext,
    emit,
    get_checkpoint,
    get_current_signal,
    run_stream_workflow,
    save_checkpoint,
    set_result,
    sleep,
    step,
    stream_step,
    stream_workflow,
    terminate,
    workflow,
)

ORDERS, BILLING = "pipeline.orders", "pipeline.billing"


class Placed(BaseModel):
    """An order. Its price is per piece."""

    item: str
    pieces: int = Field(gt=0)
    price: Decimal = Field(gt=0)
    address: str


class Unreachable(Exception):
    """The carrier does not answer."""


@stream_workflow(name=ORDERS)
async def orders() -> None:
    """One order."""


@stream_workflow(name=BILLING)
async def billing() -> None:
    """The bill of one order."""


@step(name="pipeline.ship", retry=RetryPolicy(max_attempts=2, initial="1s"))
async def ship(item: str, pieces: int, address: str) -> str:
    """Hand a parcel to the carrier."""
    if not address.strip():
        raise ValueError("there is no address")
    return f"{pieces} x {item} to {address}"


async def unless_called_off(signal: Signal, ctx: StreamStepContext) -> None:
    """An order that is called off before it was shipped is not."""
    if signal.signal_type == "order.called_off":
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
    parcel = await ship(order["item"], order["pieces"], order["address"])
    amount = order["pieces"] * order["price"]
    # On the stream run of the same name: the bill of this order.
    await emit(BILLING, "order.shipped", {"amount": str(amount), "parcel": parcel})
    await set_result({"parcel": parcel})
    await terminate()


@step(name="pipeline.charge")
async def charge(amount: str) -> str:
    """Take the money."""
    return f"paid {amount}"


@stream_step(stream=BILLING, signals=["order.shipped", "bill.disputed"])
async def bookkeeping() -> None:
    """Charge a day after the parcel has left; a dispute in the meantime comes behind that."""
    signal = await get_current_signal()
    if signal is None:
        return
    if signal.signal_type == "bill.disputed":
        paid = await get_checkpoint()
        await set_result({"disputed": signal.payload["reason"], "receipt": paid["receipt"]})
        await terminate()
        return
    await sleep("1d")
    receipt = await charge(signal.payload["amount"])
    await save_checkpoint({"receipt": receipt})
    await set_result({"receipt": receipt})
    if not signal.payload.get("on_trust"):
        await terminate()


@workflow(name="pipeline.bill")
async def bill(number: str) -> str:
    """The bill of an order, once it is paid."""
    result = await run_stream_workflow(billing, stream_run_id=number)
    return str(result.get_result("bookkeeping")["receipt"])
