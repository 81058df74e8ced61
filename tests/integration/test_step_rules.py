"""Rules of steps, values and waits that users of other engines trip over, a few lines each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from stepwell import (
    RetryPolicy,
    StepFailed,
    current,
    hook,
    now,
    random,
    set_context,
    sleep,
    start_child,
    step,
    step_hook,
    uuid4,
    workflow,
)
from stepwell.errors import PayloadError
from stepwell.testing import Environment
from tests.integration.histories import kinds

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a thread waits for that is to be left behind; opened when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_a_race_is_over_when_one_has_won_though_a_thread_goes_on(
    env: Environment, gate: threading.Event
) -> None:
    @step(retry=ONCE)
    def threaded_racer(n: int) -> int:
        if n:
            gate.wait(60)
        return n

    @workflow
    async def mapped() -> list[str]:
        return [each.status for each in await threaded_racer.map([0, 1], min_successful=1)]

    @workflow
    async def waited() -> list[int]:
        racers = [asyncio.create_task(threaded_racer.aio(n)) for n in (0, 1)]
        done, late = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
        for each in late:
            each.cancel()
        return [each.result() for each in done]

    assert env.run(mapped) == ["completed", "cancelled"]
    assert env.run(waited) == [0]
    assert not gate.is_set(), "nobody waited for the thread"


def test_a_thousand_def_steps_share_a_few_threads(env: Environment) -> None:
    most = [0]

    @step
    def in_a_thread(n: int) -> int:
        most[0] = max(most[0], threading.active_count())
        return n

    @workflow
    async def flow() -> int:
        return sum(await in_a_thread.map(range(1_000)))

    before = threading.active_count()
    assert env.run(flow) == 499_500
    assert most[0] - before <= 64


def test_large_results_are_kept_and_their_steps_do_not_run_again(env: Environment) -> None:
    ran: list[int] = []

    @step
    async def megabyte(n: int) -> str:
        ran.append(n)
        return str(n) * 1_000_000

    @workflow
    async def child_of_megabytes() -> list[str]:
        return await megabyte.map(range(3, 5))

    @workflow
    async def flow() -> list[str]:
        found = await asyncio.gather(
            megabyte(0), megabyte.map([1, 2]), start_child(child_of_megabytes)
        )
        await hook("go")
        return [each[0] for each in (found[0], *found[1], *found[2])]

    run = env.start(flow)
    env.run_until_idle()
    [question] = env.hooks(run)
    env.resume_hook(question.token, 1)
    assert env.result(run) == ["0", "1", "2", "3", "4"]
    assert sorted(ran) == [0, 1, 2, 3, 4]


def test_a_block_of_steps_is_tried_again_by_a_plain_loop(env: Environment) -> None:
    tried: list[str] = []

    @step(retry=ONCE)
    async def reserve_room(n: int) -> str:
        tried.append(f"reserve {n}")
        return f"room {n}"

    @step(retry=ONCE)
    async def pay_room(room: str) -> str:
        tried.append(f"pay {room}")
        if room != "room 2":
            raise ConnectionError
        return f"paid {room}"

    @workflow
    async def flow() -> str:
        for n in range(5):
            try:
                return await pay_room(await reserve_room(n))
            except StepFailed:
                await sleep("10m")
        return "given up"

    assert env.run_to_end(env.start(flow)) == "paid room 2"
    assert tried == [f"{what} {n}" for n in range(3) for what in ("reserve", "pay room")]


def plainly_plus_one(n: int) -> int:
    return n + 1


def test_whatever_way_a_step_is_called_in_a_step_it_is_a_plain_function(env: Environment) -> None:
    @step
    async def plus_one(n: int) -> int:
        return n + 1

    @step
    async def outermost(n: int) -> list[int]:
        keyed = await plus_one.with_options(key="k")(n)
        [mapped] = await plus_one.map([n])
        here = await current.step("here", plainly_plus_one, n)
        return [await plus_one(n), keyed, mapped, await plus_one.submit(n), here]

    @workflow
    async def flow() -> list[int]:
        return await outermost(1)

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [2] * 5
    assert kinds(env, run) == ["RunStarted", "StepCompleted", "RunCompleted"]


def test_equal_calls_that_change_places_are_noticed(env: Environment) -> None:
    order = ["one", "two"]

    @workflow
    async def asks_first(what: str) -> Any:
        return await hook(what)

    @workflow
    async def of_children() -> Any:
        handle = start_child.with_options(wait=False)
        handles = [await handle(asks_first, what) for what in order]
        await hook("go")
        return [await each.result() for each in handles]

    @workflow
    async def of_hooks() -> Any:
        return [await hook(what) for what in order]

    for flow in (of_children, of_hooks):
        run = env.start(flow)
        env.run_until_idle()
        order.reverse()
        env.resume_hook(env.hooks(run)[0].token, "taken")
        attention = env.get(run).attention
        assert attention is not None
        assert attention.kind == "BLOCKED"
        order.reverse()
        env.wait_for(env.client.wake(run.id))
        env.run_until_idle()
        for _ in order:
            for question in env.hooks():
                env.resume_hook(question.token, question.name)
        assert len(env.result(run)) == 2


def test_time_and_chance_are_the_same_on_every_pass(env: Environment) -> None:
    seen: list[list[str]] = []

    @workflow
    async def flow() -> list[str]:
        drawn = [str(now()), str(random()), str(uuid4())]
        seen.append(drawn)
        await sleep("1h")
        return [*drawn, str(now())]

    *drawn, later = env.run_to_end(env.start(flow))
    assert seen == [drawn, drawn]
    assert later > drawn[0]


def test_items_that_wait_wake_their_map_by_themselves(env: Environment) -> None:
    @step
    async def asks_item(n: int) -> int:
        return n * int(await step_hook("factor", key=str(n), timeout="30d"))

    @workflow
    async def flow() -> list[int]:
        return await asks_item.map([1, 2, 3])

    run = env.start(flow)
    env.run_until_idle()
    for question in env.hooks(run):
        env.resume_hook(question.token, 5)
    assert env.result(run) == [5, 10, 15], "no timer has passed"


def test_a_step_sees_the_inbox_as_it_was_when_its_turn_began(env: Environment) -> None:
    seen: list[dict[str, Any]] = []

    @step
    async def looks() -> None:
        seen.append(dict(current.run.inbox))

    @step
    async def puts() -> None:
        await env.client.put_inbox(current.run_id, "approved", True)

    @workflow
    async def flow() -> None:
        await looks()
        await puts()
        await looks()
        await hook("go")
        await looks()

    run = env.start(flow)
    env.run_until_idle()
    [question] = env.hooks(run)
    env.resume_hook(question.token, 1)
    env.result(run)
    assert seen == [{}, {}, {"approved": True}]


# The context


class Order(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str = "none"
    stage: int = 0


def test_a_replay_sees_the_context_of_each_place_and_not_the_last(env: Environment) -> None:
    seen: list[int] = []

    @workflow(context=Order)
    async def flow() -> None:
        seen.append(current.context.stage)
        for stage in (1, 2):
            set_context(Order(stage=stage))
            await hook(f"at_{stage}")
            seen.append(current.context.stage)

    run = env.start(flow)
    env.run_until_idle()
    for _ in range(2):
        env.resume_hook(env.hooks(run)[0].token, 1)
    env.result(run)
    assert seen == [0, 0, 1, 0, 1, 2]


def test_branches_set_the_context_in_recorded_order(env: Environment) -> None:
    seen: list[str] = []

    @step(dispatch="worker")
    async def of_branch(name: str) -> str:
        return name

    @workflow(context=Order)
    async def flow() -> str:
        async def branch(name: str) -> None:
            set_context(Order(tenant=await of_branch(name)))

        await asyncio.gather(*(branch(name) for name in "abc"))
        seen.append(current.context.tenant)
        await sleep("1h")
        return str(current.context.tenant)

    assert [env.run_to_end(env.start(flow))] * 2 == seen


def test_a_frozen_context_is_frozen_in_steps_and_other_fields_are_refused(env: Environment) -> None:
    @step
    async def tries_to_write() -> str:
        try:
            current.context.tenant = "other"
        except ValueError as error:
            return type(error).__name__
        return "written"

    @workflow(context=Order)
    async def flow() -> list[str]:
        set_context(current.context.model_copy(update={"tenant": "acme"}))
        refused = ""
        try:
            set_context({"tenant": "acme", "colour": "red"})
        except PayloadError as error:
            refused = str(error)
        return [await tries_to_write(), current.context.tenant, refused]

    wrote, tenant, refused = env.run(flow)
    assert (wrote, tenant) == ("ValidationError", "acme")
    assert "colour" in refused


def test_a_child_has_a_context_of_its_own(env: Environment) -> None:
    @workflow(context=Order)
    async def child_with_context() -> str:
        return str(current.context.tenant)

    @workflow(context=Order)
    async def flow() -> list[str]:
        set_context(Order(tenant="acme"))
        return [await start_child(child_with_context), current.context.tenant]

    assert env.run(flow) == ["none", "acme"]
