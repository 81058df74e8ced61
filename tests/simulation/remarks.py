"""A run that says much of itself: patches, attributes, a context that its steps read."""

from __future__ import annotations

from pydantic import BaseModel

from examples.outside import outside
from stepwell import (
    RetryPolicy,
    current,
    hook,
    patched,
    set_attributes,
    set_context,
    sleep,
    step,
    workflow,
)


class Guest(BaseModel):
    name: str = "nobody"
    rounds: int = 0


@step(name="sim.greeted")
async def greeted() -> str:
    guest = current.context
    return outside().request("note", current.idempotency_key, f"{guest.name} {guest.rounds}")


@step(name="sim.greeted_away", dispatch="worker", retry=RetryPolicy(initial=0, max_attempts=20))
async def greeted_away() -> str:
    guest = current.context
    return outside().request("note", current.idempotency_key, f"{guest.name} {guest.rounds} away")


@workflow(name="sim.remarked", context=Guest)
async def remarked() -> list[str]:
    set_attributes({"stage": "begun", "rounds": 0})
    found = []
    for rounds in range(3):
        set_context(Guest(name="Ada", rounds=rounds))
        set_attributes({"rounds": rounds + 1})
        found.append(await (greeted() if patched(f"round {rounds % 2}") else greeted_away()))
    found.append(await greeted_away())
    set_attributes({"stage": "asks"})
    found.append(str(await hook("question")))
    await sleep("1h")
    set_attributes({"stage": None, "last": patched("last")})
    return found
