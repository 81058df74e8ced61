"""Right and wrong uses of the public names, for the type checker. Never run.

A wrong use carries an ignore with its code; the checker reports one that is not needed, so a use
that stops being wrong is found as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from pydantic import BaseModel

from stepwell import (
    ChildHandle,
    Client,
    MapResult,
    Result,
    RetryPolicy,
    Ticket,
    ask,
    continue_as_new,
    current,
    define_hook,
    hook,
    now,
    patched,
    random,
    saga,
    set_attributes,
    set_context,
    shield,
    sleep,
    start_child,
    step,
    step_guard,
    step_hook,
    uuid4,
    workflow,
)
from stepwell.authoring.decorators import AsyncStep, SyncStep, Workflow
from stepwell.client import RunHandle
from stepwell.core.records import RunHeader, RunStatus
from stepwell.engine.catalogue import Publication
from stepwell.engine.ports import Page
from stepwell.testing import Environment


class Order(BaseModel):
    id: str


class Approval(BaseModel):
    approved: bool


@step
async def charge(order: Order, amount: int = 1) -> str:
    return order.id


@step
def render(order: Order) -> bytes:
    return order.id.encode()


@step(name="ship-it", retry=RetryPolicy(max_attempts=2), timeout="5m", identity="name")
async def ship(order: Order) -> float:
    return 1.0


@step(timeout=timedelta(seconds=1))
def pack(order: Order, *, wrap: bool) -> int:
    return 1


@step(stream=True)
async def talk(n: int) -> AsyncIterator[str | Result[int]]:
    yield "word"
    yield Result(n)


approval = define_hook("approval", Approval)


@workflow(context=Order)
async def carrying(order: Order) -> str:
    return str(current.context.id)


@workflow
async def flow(order: Order, note: str | None = None) -> list[str]:
    assert_type(await charge(order), str)
    assert_type(await charge(order, amount=2), str)
    assert_type(await charge.with_options(key="a", timeout="5s")(order), str)
    assert_type(await render.with_options(key="b").aio(order), bytes)
    async with saga() as undo:
        undo.add(charge, order)
    assert_type(patched("check"), bool)
    set_attributes({"stage": "charging", "amount": 2, "vip": True, "gone": None})
    set_attributes({"stage": [1]})  # type: ignore[dict-item]
    set_context(order)
    current.logger.info("charged", extra={"order": order.id})
    assert_type(await render.aio(order), bytes)
    assert_type(await ship(order), float)
    assert_type(await pack.aio(order, wrap=True), int)
    assert_type(await approval(timeout="1d"), Approval)
    assert_type(now(), datetime)
    assert_type(uuid4(), UUID)
    assert_type(random(), float)
    await talk(3)
    await sleep("1h")
    await sleep(datetime(2030, 1, 1, tzinfo=UTC))
    await hook("ask", payload_schema=Approval, on_timeout="return")

    assert_type(await charge.map([order]), list[str])
    assert_type(await charge.map([order], on_error="fail"), list[str])
    assert_type(await charge.map([order], on_error="collect"), MapResult[str])
    assert_type(await charge.map([order], min_successful=1), MapResult[str])
    assert_type(await charge.map([order], tolerated_failures=1), MapResult[str])
    assert_type(await charge.submit(order, amount=2), str)
    assert_type(charge.submit(order), Ticket[str])
    assert_type(render.submit(order), Ticket[bytes])
    charge.submit("an id")  # type: ignore[arg-type]
    await charge.map([order], on_error="ignore")  # type: ignore[call-overload]

    await charge("an id")  # type: ignore[arg-type]
    await charge()  # type: ignore[call-arg]
    await charge(order, amount="2")  # type: ignore[arg-type]
    await charge(order, currency="EUR")  # type: ignore[call-arg]
    await render.aio()  # type: ignore[call-arg]
    await pack.aio(order)  # type: ignore[call-arg]
    await ship(3)  # type: ignore[arg-type]
    await talk("three")  # type: ignore[arg-type]
    await render(order)  # type: ignore[misc]
    charge.aio(order)  # type: ignore[attr-defined]
    await sleep([])  # type: ignore[arg-type]
    await hook("ask", on_timeout="explode")  # type: ignore[arg-type]
    await step_hook(3)  # type: ignore[arg-type]
    return []


@workflow(name="blocking", version="2")
def blocking(order: Order) -> int:
    assert_type(render(order), bytes)
    assert_type(pack(order, wrap=False), int)
    render("an id")  # type: ignore[arg-type]
    pack(order)  # type: ignore[call-arg]
    assert_type(current.attempt, int)
    assert_type(current.deadline, float | None)
    return 1


# `assert_type` knows no parameter lists: a call with each of them is in the functions above.
is_async: AsyncStep[..., str] = charge
is_sync: SyncStep[..., bytes] = render
is_workflow: Workflow[..., int] = blocking
is_not_async: AsyncStep[..., bytes] = render  # type: ignore[assignment]
is_not_sync: SyncStep[..., str] = charge  # type: ignore[assignment]


async def starts(client: Client, order: Order) -> None:
    run = await client.start(flow, order, note="x")
    assert_type(run, RunHandle[list[str]])
    assert_type(await run.result(timeout="1m"), list[str])
    blocked = await client.with_options(idempotency_key="k").start(blocking, order)
    assert_type(blocked, RunHandle[int])
    assert_type(await client.result(run.id), Any)

    assert_type(await client.start_named("flow", {"order": {"id": "a"}}), RunHandle[Any])
    assert_type(await client.publish([flow.definition]), Publication)
    assert_type(await client.list_runs(attention="STUCK"), Page[RunHeader])
    await client.start_named(flow)  # type: ignore[arg-type]
    await client.start_named("flow", [order])  # type: ignore[arg-type]
    await client.publish([flow])  # type: ignore[list-item]
    await client.list_runs(attention="LOST")  # type: ignore[arg-type]
    await client.start(flow)  # type: ignore[call-overload]
    await client.start(flow, "an id")  # type: ignore[call-overload]
    await client.start(flow, order, note=3)  # type: ignore[arg-type]
    await client.start(blocking, order, 2)  # type: ignore[call-overload]
    await client.start(charge, order)  # type: ignore[call-overload]


def tests(env: Environment, order: Order) -> None:
    run = env.start(flow, order)
    assert_type(run, RunHandle[list[str]])
    assert_type(env.result(run), list[str])
    env.start(flow, 3)  # type: ignore[call-overload]


@step(timeout=[])  # type: ignore[call-overload, untyped-decorator]
async def bad_timeout() -> None: ...


@step(identity="place")  # type: ignore[call-overload, untyped-decorator]
async def bad_identity() -> None: ...


@step(retries=3)  # type: ignore[call-overload, untyped-decorator]
async def unknown_option() -> None: ...


@workflow(retry=3)  # type: ignore[call-overload, untyped-decorator]
async def unknown_workflow_option() -> None: ...


@step(stream=True)  # type: ignore[arg-type]
async def not_a_stream() -> int:
    return 1


@workflow
async def child(order: Order, times: int = 1) -> bytes:
    return order.id.encode() * times


@workflow
def blocking_child(order: Order) -> int:
    return len(order.id)


async def with_children(order: Order) -> None:
    assert_type(await start_child(child, order, times=2), bytes)
    assert_type(await start_child(blocking_child, order), int)
    assert_type(await start_child("child", order={"id": "1"}), Any)
    handle = await start_child.with_options(wait=False, key="k")(child, order)
    assert_type(handle, ChildHandle[bytes])
    assert_type(await handle.result(), bytes)
    kept = start_child.with_options(on_parent_close="abandon")
    assert_type(await kept(child, order), bytes)
    guarded = start_child.with_options(context=order, prepare_step=watches, review_step=[])
    assert_type(await guarded(child, order), bytes)
    await start_child(child, 7)  # type: ignore[call-overload]
    await start_child(child, order, wait=True)  # type: ignore[call-arg]
    start_child.with_options(on_parent_close="leave")  # type: ignore[call-overload]


@step_guard
def watches(step: dict[str, Any]) -> dict[str, Any]:
    return step


async def with_shields_and_questions(order: Order) -> None:
    async with shield():
        assert_type(await charge(order), str)
    async with saga() as undoing:
        undoing.add(charge, order, amount=2)
    assert_type(await ask("Which colour?"), Any)
    assert_type(patched("name"), bool)
    patched(7)  # type: ignore[arg-type]
    set_attributes({"a": [1]})  # type: ignore[dict-item]


async def tries_again(client: Client, run: RunHandle[int]) -> None:
    assert_type(await client.cancel(run.id, "reason", wait="30s"), RunStatus)
    assert_type(await client.fork(run.id, at=2, edits={2: 1}), RunHandle[Any])
    assert_type(await client.chain(run.id), tuple[RunHeader, ...])
    await client.pause(run.id, reason=5)  # type: ignore[arg-type]
    await client.resume(run.id, prepare_step=[watches])
    await client.fork(run.id, edits={"2": 1})  # type: ignore[dict-item]
    await client.fork(run.id, at="2")  # type: ignore[arg-type]
    await client.retry(run)  # type: ignore[arg-type]
    await client.cancel(run.id, wait=[1])  # type: ignore[arg-type]


@workflow
def goes_on(order: Order) -> int:
    with shield():
        continue_as_new(order)
    return 1
