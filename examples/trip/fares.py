"""A watch of fares, however long: it goes on as a new run every few days."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from examples.outside import outside
from stepwell import FatalError, continue_as_new, current, sleep, step, workflow

#: What the airline asks, day by day; the last one for good.
FARES = (410, 395, 402, 388, 310)
#: Days that one run watches. Its history stays short, however long the watch.
DAYS_PER_RUN = 2


class Watch(BaseModel):
    """What to wait for: a fare to a place of no more than `most`, until day `days`; today's day."""

    model_config = ConfigDict(frozen=True)

    place: str
    most: int
    days: int
    day: int = 0


@workflow
async def watch_fares(watch: Watch) -> int:
    """The first fare that is low enough; looks once a day.

    Fails when there was none in all those days.
    """
    for _ in range(DAYS_PER_RUN):
        fare = await look_up_fare(watch.place, watch.day)
        if fare <= watch.most:
            return fare
        watch = watch.model_copy(update={"day": watch.day + 1})
        if watch.day == watch.days:
            raise FatalError(f"no fare to {watch.place} of {watch.most} in {watch.days} days")
        await sleep("1d")
    return continue_as_new(watch)


@step
async def look_up_fare(place: str, day: int) -> int:
    """What the airline asks on a day."""
    outside().request("fare asked", current.idempotency_key, f"{place}, day {day}")
    return FARES[min(day, len(FARES) - 1)]
