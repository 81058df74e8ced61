"""The delivery of a parcel: a run of its own, to be looked at, cancelled and retried alone."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from examples.outside import outside
from stepwell import (
    Backoff,
    RetryPolicy,
    current,
    step,
    wait_for_condition,
    workflow,
)

#: What the carrier says of a parcel, look by look. It loses those of more pieces than it can carry.
SCANS = ("handed over", "on its way", "delivered")
MOST_PIECES = 20
LOOKS = Backoff(initial="1h", factor=4, max_delay="1d", jitter="none")
Scan = Literal["none", "handed over", "on its way", "delivered"]


class Parcel(BaseModel):
    """What is sent."""

    model_config = ConfigDict(frozen=True)

    order: str
    pieces: int


class Tracking(BaseModel):
    """What is known of a parcel: its number with the carrier, how many scans, and the last one."""

    model_config = ConfigDict(frozen=True)

    number: str
    scans: int = 0
    last: Scan = "none"


class Delivery(BaseModel):
    """A parcel that has arrived."""

    model_config = ConfigDict(frozen=True)

    number: str
    scans: int


@workflow
async def deliver(parcel: Parcel) -> Delivery:
    """Hand a parcel to the carrier, and look after it until it has arrived.

    Fails with `ConditionNotMet` when it has not after two weeks.
    """
    number = await hand_over_parcel(parcel)
    arrived: Tracking = await wait_for_condition(
        look_after, Tracking(number=number), backoff=LOOKS, timeout="14d"
    )
    return Delivery(number=number, scans=arrived.scans)


@step(retry=RetryPolicy(max_attempts=6, initial="5s"))
async def hand_over_parcel(parcel: Parcel) -> str:
    """Book the carrier, who is not always there. Returns the parcel's number with them."""
    kind = "heavy parcel" if parcel.pieces > MOST_PIECES else "parcel"
    receipt = outside().request("carrier booked", current.idempotency_key, kind)
    return f"{kind} {receipt}"


@step
async def look_after(known: Tracking) -> tuple[bool, Tracking]:
    """Ask the carrier for the scan after those that are known, and whether it was the last."""
    outside().request("scan asked", current.idempotency_key, known.number)
    if known.number.startswith("heavy"):
        return False, known
    scan: Scan = SCANS[known.scans]  # type: ignore[assignment]  # as in the carrier's list
    seen = known.model_copy(update={"scans": known.scans + 1, "last": scan})
    return scan == "delivered", seen
