"""Expense claims: small ones are paid, large ones need somebody's word first."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, Field

from stepwell import STEP_HOOK_TIMEOUT, RetryPolicy, current, hook, sleep, step, workflow

#: What is paid without asking.
SMALL = Decimal(50)


class Claim(BaseModel):
    """What somebody wants to have paid back."""

    employee: str
    purpose: str
    amount: Decimal = Field(gt=0)


class Approval(BaseModel):
    """The answer to a large claim. What does not fit is refused, and the question stays open."""

    approved: bool
    note: str = ""


class Outcome(BaseModel):
    """How a claim ended."""

    status: Literal["paid", "declined", "unanswered"]
    receipt: str | None = None


@workflow
async def claim(request: Claim) -> Outcome:
    """Have an expense claim approved if it is large, and pay it."""
    if request.amount > SMALL:
        # There is no process while it waits, only rows. `stepwell hooks list` shows the token.
        answer = await hook("approval", timeout="3d", payload_schema=Approval, on_timeout="return")
        if answer is STEP_HOOK_TIMEOUT:
            return Outcome(status="unanswered")
        if not answer.approved:
            return Outcome(status="declined")
    await sleep("10s")  # durable, for as long as you like: time to think better of it
    return Outcome(status="paid", receipt=await pay(request))


@step(retry=RetryPolicy(max_attempts=5, initial="2s"), timeout="20s")
async def pay(request: Claim) -> str:
    """Pay it out. At least once: a bank that knows the key pays once."""
    return f"{request.amount} to {request.employee}, {current.idempotency_key}"
