"""Workflows whose steps run at most once, and whose steps are undone."""

from __future__ import annotations

from examples.outside import outside
from stepwell import StepInterrupted, current, hook, saga, step, workflow


@step(name="acceptance.wire", at_most_once=True)
async def wire() -> str:
    outside().request("wired", current.idempotency_key, "wired")
    return "wired"


@step(name="acceptance.wire_away", at_most_once=True, dispatch="worker")
async def wire_away() -> str:
    outside().request("wired", current.idempotency_key, "wired")
    return "wired"


@workflow(name="acceptance.wires_once")
async def wires_once(away: bool = False) -> str:
    try:
        return await (wire_away() if away else wire())
    except StepInterrupted:
        return "ask the bank"


@step(name="acceptance.release")
async def release(receipt: str, what: str) -> None:
    outside().request("released", current.idempotency_key, what)


@step(name="acceptance.book", compensate=release)
async def book(what: str) -> str:
    return outside().request("booked", current.idempotency_key, what)


@workflow(name="acceptance.books")
async def books() -> None:
    async with saga():
        await book("flight")
        await book("hotel")
        await hook("payment")
        raise RuntimeError("the card was refused")
