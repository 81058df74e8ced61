"""`step.submit`: a step beside the code that goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import FatalError, StepFailed, Ticket, hook, sleep, step, step_hook, workflow
from stepwell.errors import RunFailed
from stepwell.testing import Environment
from tests.integration.histories import found, kinds


@step(name="tickets.fine")
async def fine() -> str:
    return "fine"


@step(name="tickets.broken")
async def broken() -> None:
    raise FatalError("no")


def test_a_submitted_step_goes_on_beside_the_code(env: Environment) -> None:
    order: list[str] = []

    @step
    async def long(n: int) -> int:
        order.append("long begins")
        await asyncio.sleep(0.01)
        order.append("long ends")
        return n

    @step
    async def short() -> None:
        order.append("short")

    @workflow
    async def flow() -> list[Any]:
        ticket = long.submit(3)
        before = ticket.done
        await short()
        return [before, await ticket.result(), ticket.done, await ticket]

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [False, 3, True, 3]
    assert order == ["long begins", "short", "long ends"]
    assert {event.step for event in found(env, run, "StepCompleted")} == {"long:1", "short:1"}


def test_in_a_def_workflow_the_result_blocks(env: Environment) -> None:
    @step
    def double(n: int) -> int:
        return 2 * n

    @step
    async def triple(n: int) -> int:
        return 3 * n

    @workflow
    def flow() -> list[int]:
        tickets: list[Ticket[int]] = [double.submit(1), triple.submit(n=2), double.submit(3)]
        return [ticket.result() for ticket in reversed(tickets)]

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [6, 6, 2]
    assert {event.step for event in found(env, run, "StepCompleted")} == {
        "double:1",
        "triple:1",
        "double:2",
    }


def test_steps_of_a_def_workflow_are_really_side_by_side(env: Environment) -> None:
    together = asyncio.Event()

    @step
    async def waits() -> str:
        await together.wait()
        return "met"

    @step
    async def comes() -> str:
        together.set()
        return "came"

    @workflow
    def flow() -> list[str]:
        first, second = waits.submit(), comes.submit()
        return [first.result(), second.result()]

    assert env.run(flow) == ["met", "came"]


def test_a_failure_surfaces_at_the_result(env: Environment) -> None:
    @workflow
    async def flow() -> list[str]:
        ticket = broken.submit()
        said = [await fine()]
        for _ in range(2):
            try:
                await ticket.result()
            except StepFailed as error:
                said.append(error.message)
        return said

    assert env.run(flow) == ["fine", "no", "no"]


def test_a_failure_that_nobody_asks_for_is_nobody_s(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        broken.submit()
        await fine()
        return await fine()

    assert env.run(flow) == "fine"


def test_a_cancelled_ticket_cancels_its_step(env: Environment) -> None:
    @step
    async def asks() -> int:
        answer: int = await step_hook("answer")
        return answer

    @workflow
    async def flow() -> str:
        ticket = asks.submit()
        await sleep("1h")
        ticket.cancel()
        ticket.cancel()
        assert ticket.done
        try:
            await ticket.result()
        except asyncio.CancelledError:
            answer: str = await hook("after")
            return answer
        return "?"

    run = env.start(flow)
    env.run_until_idle()
    assert [pending.name for pending in env.hooks(run)] == ["answer"]
    env.advance("1h")
    [pending] = env.hooks(run)
    assert pending.name == "after"
    assert found(env, run, "StepCancelled")
    env.resume_hook(pending.token, "done")
    assert env.result(run) == "done"


def test_a_def_workflow_cancels_a_ticket(env: Environment) -> None:
    @step
    async def asks() -> int:
        answer: int = await step_hook("answer")
        return answer

    @workflow
    def flow() -> bool:
        ticket = asks.submit()
        sleep("1h")
        ticket.cancel()
        sleep("1h")
        return ticket.done

    run = env.start(flow)
    env.advance("1h")
    assert env.hooks(run) == ()
    env.advance("1h")
    assert env.result(run) is True


def test_who_stops_waiting_does_not_stop_the_step(env: Environment) -> None:
    @step
    async def asks() -> int:
        answer: int = await step_hook("answer")
        return answer

    @workflow
    async def flow() -> list[Any]:
        ticket = asks.submit()
        try:
            async with asyncio.timeout(60):
                await ticket.result()
        except TimeoutError:
            return ["late", await ticket.result()]
        return []

    run = env.start(flow)
    env.advance("2m")
    [pending] = env.hooks(run)
    env.resume_hook(pending.token, 5)
    assert env.result(run) == ["late", 5]


def test_a_result_that_is_not_awaited_is_told_of(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        ticket = fine.submit()
        ticket.result()
        return await ticket

    with pytest.raises(RunFailed, match="never awaited"):
        env.run(flow)


def test_gather_takes_tickets(env: Environment) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow() -> list[int]:
        return list(await asyncio.gather(*[double.submit(n) for n in range(3)]))

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [0, 2, 4]


def test_a_run_that_ends_first_ends_what_was_submitted(env: Environment) -> None:
    @step
    async def asks() -> int:
        answer: int = await step_hook("answer")
        return answer

    @workflow
    async def flow() -> str:
        asks.submit()
        await fine()
        return await fine()

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == "fine"
    assert env.hooks(run) == ()
    assert kinds(env, run)[-1] == "RunCompleted"


def test_nothing_is_submitted_while_the_pass_unwinds(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        try:
            answer: str = await hook("ask")
            return answer
        finally:
            await fine.submit().result()

    run = env.start(flow)
    env.run_until_idle()
    assert "StepCompleted" not in kinds(env, run)
    env.resume_hook(env.hooks(run)[0].token, "answer")
    assert env.result(run) == "answer"
    assert kinds(env, run).count("StepCompleted") == 1


def test_a_key_names_what_was_submitted(env: Environment) -> None:
    made: list[int] = []

    @step
    async def charge(n: int) -> int:
        made.append(n)
        return n

    @workflow
    async def flow() -> list[Any]:
        once = charge.with_options(key="charge-1")
        first, second = once.submit(3), once.submit(3)
        first.cancel()
        return [await second, await once(3), await once.submit(3)]

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [3, 3, 3]
    assert made == [3]
    assert [event.step for event in found(env, run, "StepCompleted")] == ["charge=charge-1"]


def test_the_last_ticket_of_a_key_that_is_cancelled_cancels_the_step(env: Environment) -> None:
    @step
    async def asks() -> int:
        answer: int = await step_hook("answer")
        return answer

    @workflow
    async def flow() -> str:
        once = asks.with_options(key="k")
        first, second = once.submit(), once.submit()
        await sleep("1h")
        first.cancel()
        await sleep("1h")
        second.cancel()
        await sleep("1h")
        return "done"

    run = env.start(flow)
    env.advance("1h")
    assert len(env.hooks(run)) == 1
    env.advance("1h")
    assert env.hooks(run) == ()
    env.advance("1h")
    assert env.result(run) == "done"


def test_a_map_has_no_key_of_its_own(env: Environment) -> None:
    @step
    async def fine(n: int) -> int:
        return n

    @workflow
    async def flow() -> list[int]:
        return await fine.with_options(key="k").map([1])

    with pytest.raises(RunFailed, match=r"name the items of a map with map"):
        env.run(flow)
