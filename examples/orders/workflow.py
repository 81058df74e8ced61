"""An order, from its check to its delivery.

Stock is reserved line by line, a payment provider answers through a token, a parcel is packed by a
function of its own, and a child run hands it to a carrier and looks after it until it has arrived.
Whatever the order ends as, and whenever it is cancelled, the customer is told once, and neither
stock nor money is kept for nothing.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict

from examples.orders.delivery import Delivery, Parcel, deliver
from examples.outside import outside
from stepwell import (
    ChildError,
    FatalError,
    HookTimeout,
    MapFailed,
    RetryPolicy,
    current,
    hook,
    start_child,
    step,
    workflow,
)

#: Articles that the warehouse does not have any more.
SOLD_OUT = ("blue lamp",)
#: Lines that may be missing from a parcel.
MISSING_LINES = 1
PATIENT = RetryPolicy(max_attempts=5, initial="2s")


class Line(BaseModel):
    """One article of an order. `order` is the order's number."""

    model_config = ConfigDict(frozen=True)

    order: str
    article: str
    quantity: int
    price: Decimal


class Order(BaseModel):
    """What a customer wants."""

    model_config = ConfigDict(frozen=True)

    number: str
    customer: str
    lines: tuple[Line, ...]


class Payment(BaseModel):
    """What the payment provider answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paid: bool
    reference: str


class Fulfilment(BaseModel):
    """How an order ended."""

    model_config = ConfigDict(frozen=True)

    status: Literal["delivered", "sold out", "unpaid", "lost"]
    missing: tuple[str, ...] = ()
    paid: Decimal = Decimal(0)
    delivery: Delivery | None = None


@workflow
async def fulfil_order(order: Order) -> Fulfilment:
    """Reserve, charge, pack and deliver an order, and tell the customer how it ended."""
    await check_order(order)
    try:
        ended = await _fulfil(order)
    except asyncio.CancelledError:
        await release.map(order.lines, key=_article)
        await refund_payment(order)
        await notify(order, "cancelled")
        raise
    await notify(order, ended.status)
    return ended


async def _fulfil(order: Order) -> Fulfilment:
    """The order's way, without the words to the customer."""
    try:
        reserved = await reserve.map(
            order.lines, max_concurrency=2, tolerated_failures=MISSING_LINES, key=_article
        )
    except MapFailed:
        await release.map(order.lines, key=_article)
        return Fulfilment(status="sold out")
    lines = tuple(line for line, each in zip(order.lines, reserved, strict=True) if not each.error)
    amount = sum((line.quantity * line.price for line in lines), Decimal(0))
    if not await _paid(amount):
        await release.map(lines, key=_article)
        return Fulfilment(status="unpaid")
    parcel = await pack.aio(order, lines)
    try:
        delivery = await start_child(deliver, parcel)
    except ChildError:
        await refund_payment(order)
        return Fulfilment(status="lost")
    missing = tuple(line.article for line in order.lines if line not in lines)
    return Fulfilment(status="delivered", missing=missing, paid=amount, delivery=delivery)


async def _paid(amount: Decimal) -> bool:
    """Whether it is paid; the provider may refuse, or say nothing for half an hour."""
    try:
        payment: Payment = await hook(
            "payment",
            timeout="30m",
            on_created=partial(ask_for_payment, current.run_id, amount),
            payload_schema=Payment,
        )
    except HookTimeout:
        return False
    return payment.paid


def ask_for_payment(run_id: str, amount: Decimal, token: str) -> None:
    """Hand the provider a token to answer with. A crash may lead here twice, with the same one."""
    outside().request("payment asked", run_id, f"{amount} {token}")


def _article(line: Line) -> str:
    return line.article


@step
async def check_order(order: Order) -> None:
    """Refuse an order that can come to nothing: trying again would not help."""
    articles = [line.article for line in order.lines]
    if not articles or len(set(articles)) < len(articles):
        raise FatalError(f"order {order.number!r} needs lines, each of another article")
    if any(line.quantity < 1 or line.price < 0 for line in order.lines):
        raise FatalError(f"order {order.number!r} has a line that nobody can sell")


@step(retry=PATIENT)
async def reserve(line: Line) -> str:
    """Put stock aside. A warehouse that does not answer is asked again, an empty one is not."""
    if line.article in SOLD_OUT:
        raise FatalError(f"{line.article} is sold out")
    what = f"{line.quantity} {line.article}"
    return outside().request("stock reserved", current.idempotency_key, what)


@step(retry=PATIENT)
async def release(line: Line) -> None:
    """Give stock back. It does no harm where none was put aside."""
    what = f"{line.quantity} {line.article}"
    outside().request("stock released", current.idempotency_key, what)


@step(dispatch="worker", timeout="10m")
def pack(order: Order, lines: tuple[Line, ...]) -> Parcel:
    """The heavy part, with time and memory of its own: here a sum, in earnest a packing plan."""
    outside().request("parcel packed", current.idempotency_key, order.number)
    return Parcel(order=order.number, pieces=sum(line.quantity for line in lines))


@step(retry=PATIENT)
async def refund_payment(order: Order) -> None:
    """Have the provider give back what was paid, if anything was."""
    outside().request("money refunded", current.idempotency_key, order.number)


@step(retry=PATIENT)
async def notify(order: Order, status: str) -> None:
    """Tell the customer how it ended."""
    outside().request("customer told", current.idempotency_key, f"{order.number}: {status}")
