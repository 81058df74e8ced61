"""A refund that a person approves.

The step `review_refund` drafts the refund, asks a reviewer and waits in its middle, for a day if
need be. While it waits there is no process, only rows: the draft lies in the step's checkpoint, and
the reviewer's answer brings the step back to where it was.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

from examples.outside import outside
from stepwell import (
    STEP_HOOK_TIMEOUT,
    current,
    load_step_checkpoint,
    save_step_checkpoint,
    step,
    step_hook,
    workflow,
)


class Order(BaseModel):
    """What the customer wants the money back for."""

    model_config = ConfigDict(frozen=True)

    number: str
    customer: str
    amount: Decimal
    complaint: str


class Review(BaseModel):
    """What the reviewer answers. Anything else is refused, and the question stays open."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approved: bool
    reviewer: str
    note: str = ""


class Draft(BaseModel):
    """The refund as proposed to the reviewer."""

    model_config = ConfigDict(frozen=True)

    text: str
    amount: Decimal


class Refund(BaseModel):
    """How it ended."""

    model_config = ConfigDict(frozen=True)

    status: Literal["paid", "declined", "unanswered"]
    draft: str
    receipt: str | None = None


@workflow
async def refund(order: Order) -> Refund:
    """Draft a refund, have it approved, pay it and tell the customer."""
    draft, review = await review_refund(order)
    if review is None or not review.approved:
        status: Literal["declined", "unanswered"] = "unanswered" if review is None else "declined"
        await confirm(order, status)
        return Refund(status=status, draft=draft.text)
    receipt = await pay_out.aio(order, draft.amount)
    await confirm(order, "paid")
    return Refund(status="paid", draft=draft.text, receipt=receipt)


@step
async def review_refund(order: Order) -> tuple[Draft, Review | None]:
    """The draft and the reviewer's answer to it; None if there was none within a day."""
    draft = await load_step_checkpoint(Draft)
    if draft is None:
        draft = await write_draft(order)
        await save_step_checkpoint(draft)

    async def ask(token: str) -> None:
        # Whoever has the token can answer. A crash may lead here twice, with the same token.
        outside().request("review asked", current.idempotency_key, token)

    review = await step_hook(
        "approval", timeout="24h", on_created=ask, on_timeout="return", payload_schema=Review
    )
    return draft, None if review is STEP_HOOK_TIMEOUT else review


async def write_draft(order: Order) -> Draft:
    """The expensive part: here a count, in earnest a search through contracts and a model."""
    outside().request("draft", current.idempotency_key, order.number)
    return Draft(text=f"Refund {order.customer}: {order.complaint}", amount=order.amount)


@step
def pay_out(order: Order, amount: Decimal) -> str:
    """Pay, and return the bank's receipt.

    A crash after the payment and before its record runs this again; the key makes it one payment.
    """
    return outside().request("payment", current.idempotency_key, f"{amount} to {order.customer}")


@step
async def confirm(order: Order, status: str) -> None:
    """Tell the customer how it ended."""
    outside().request("confirmation", current.idempotency_key, f"{order.number}: {status}")
