"""A turn ends while code waits: the code unwinds, does nothing more, and says nothing false."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stepwell import hook, sleep, step, workflow
from stepwell.authoring.registry import registry
from stepwell.core.records import RunStatus
from stepwell.errors import Suspended
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

#: What really happened, outside of what is recorded.
EFFECTS: list[str] = []

with registry.isolated():

    @step
    async def effect(name: str) -> str:
        EFFECTS.append(name)
        return name

    @step
    def plain_effect(name: str) -> str:
        EFFECTS.append(name)
        return name


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    EFFECTS.clear()


def suspended(env: Environment, body: Callable[..., Any]) -> Any:
    """A run that waits for the hook "go", its laws checked."""
    run = env.start(workflow(body))
    env.run_until_idle()
    header = env.get(run)
    assert header.status is RunStatus.SUSPENDED
    assert [wait.name for wait in header.waiting if wait.kind == "hook"] == ["go"]
    check_run(env, run)
    return run


def answered(env: Environment, run: Any) -> Any:
    [open_hook] = env.hooks(run)
    env.resume_hook(open_hook.token, "yes")
    check_run(env, run)
    return env.result(run)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_bare_except_cannot_end_a_waiting_run(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    async def flow() -> str:
        try:
            return str(await hook("go"))
        except BaseException:
            return "swallowed"

    run = suspended(stepwell_env, flow)
    told = warnings(caplog)
    assert told
    assert all("flow" in text and "swallowed the suspension" in text for text in told)
    assert answered(stepwell_env, run) == "yes"


def test_the_warning_names_the_function_that_swallowed(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    async def careless_helper() -> str:
        try:
            return str(await hook("go"))
        except:  # noqa: E722
            return "swallowed"

    async def flow() -> str:
        return await careless_helper()

    run = suspended(stepwell_env, flow)
    assert all("careless_helper" in text for text in warnings(caplog))
    assert answered(stepwell_env, run) == "yes"


def test_a_child_task_that_swallows_is_named_too(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    async def child() -> str:
        try:
            return str(await hook("go"))
        except BaseException:
            return "swallowed"

    async def flow() -> str:
        return (await asyncio.gather(child()))[0]

    run = suspended(stepwell_env, flow)
    assert any("child" in text for text in warnings(caplog))
    assert answered(stepwell_env, run) == "yes"


def test_gather_that_returns_exceptions_sees_no_suspension(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    async def flow() -> Any:
        found = await asyncio.gather(hook("go"), effect("a"), return_exceptions=True)
        seen.append(found)
        return found

    run = suspended(stepwell_env, flow)
    assert seen == []
    assert warnings(caplog) == []
    assert answered(stepwell_env, run) == ["yes", "a"]


@pytest.mark.parametrize("raising", [True, False])
def test_cleanup_of_a_waiting_run_starts_and_records_nothing(
    raising: bool, stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    reached: list[str] = []

    async def flow() -> str:
        try:
            return str(await hook("go"))
        finally:
            reached.append("finally")
            if raising:
                await effect("cleanup")
                reached.append("after")
            else:
                for primitive in (effect("x"), plain_effect.aio("x"), sleep("1h"), hook("late")):
                    try:
                        await primitive
                    except Suspended:
                        reached.append("refused")

    run = stepwell_env.start(workflow(flow))
    stepwell_env.run_until_idle()
    assert reached == (["finally"] if raising else ["finally", *["refused"] * 4])
    assert EFFECTS == []
    assert [event.event.type for event in stepwell_env.history(run)] == ["RunStarted", "HookOpened"]
    assert warnings(caplog) == []


def test_a_task_group_unwinds_with_its_children(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def child(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
            await effect(name)

    async def flow() -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child("a")), group.create_task(child("b"))]
            async with asyncio.TaskGroup() as inner:
                inner.create_task(child("c"))
                found = str(await hook("go"))
                for task in tasks:
                    task.cancel()
                raise ValueError(found)
        return "never"

    run = stepwell_env.start(workflow(flow))
    stepwell_env.run_until_idle()
    assert sorted(ended) == ["a", "b", "c"]
    assert EFFECTS == []
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    assert warnings(caplog) == []


def test_a_cancellation_handler_does_not_run_when_a_run_merely_waits(
    stepwell_env: Environment,
) -> None:
    handled: list[str] = []

    async def waits_on_an_event() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            handled.append("cancelled")
            raise

    async def flow() -> str:
        task = asyncio.create_task(waits_on_an_event())
        found = str(await hook("go"))
        assert not task.done()
        return found

    run = suspended(stepwell_env, flow)
    assert handled == []
    assert answered(stepwell_env, run) == "yes"


def test_generators_are_closed_and_their_cleanup_starts_nothing(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []
    kept: list[Any] = []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            for n in range(9):
                yield n
        finally:
            closed.append(name)
            await effect(name)

    @asynccontextmanager
    async def managed() -> AsyncIterator[None]:
        try:
            yield
        finally:
            closed.append("managed")
            await plain_effect.aio("managed")

    async def flow() -> str:
        held = numbers("held")
        kept.append(held)
        await anext(held)
        async with managed():
            async for _ in numbers("iterated"):
                return str(await hook("go"))
        return "never"

    run = stepwell_env.start(workflow(flow))
    stepwell_env.run_until_idle()
    kept.clear()
    gc.collect()
    assert sorted(closed) == ["held", "iterated", "managed"]
    assert EFFECTS == []
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    assert warnings(caplog) == []


@pytest.mark.parametrize("kind", ["step", "sleep", "asyncio.sleep", "hook", "event", "yield"])
def test_code_that_never_lets_go_is_stopped_and_has_no_effect(
    kind: str, stepwell_env: Environment
) -> None:
    async def stubborn() -> str:
        while True:
            try:
                if kind == "step":
                    await effect("again")
                elif kind == "sleep":
                    await sleep("1h")
                elif kind == "asyncio.sleep":
                    await asyncio.sleep(3600)
                elif kind == "event":
                    await asyncio.Event().wait()
                elif kind == "yield":
                    await asyncio.sleep(0)
                else:
                    await hook("other")
            except BaseException:
                pass

    async def flow() -> str:
        try:
            return str(await hook("go"))
        except BaseException:
            return await stubborn()

    run = stepwell_env.start(workflow(flow))
    stepwell_env.run_until_idle()
    gc.collect()
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    [open_hook] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(open_hook.token, "yes")
    assert stepwell_env.result(run) == "yes"
    assert EFFECTS == []


def test_tasks_begun_in_a_cleanup_never_run(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    async def flow() -> str:
        try:
            return str(await hook("go"))
        finally:
            asyncio.create_task(effect("task"))  # noqa: RUF006

    run = suspended(stepwell_env, flow)
    gc.collect()
    assert EFFECTS == []
    assert warnings(caplog) == []
    assert answered(stepwell_env, run) == "yes"


def test_a_forgotten_task_is_kept_until_its_run_goes_on(stepwell_env: Environment) -> None:
    async def flow() -> list[str]:
        async def forgotten() -> None:
            gate = asyncio.get_running_loop().create_future()
            gates.append(gate)
            gate_holder.append(1)
            await gate
            await effect("reached")

        gates: list[Any] = []
        gate_holder: list[int] = []
        asyncio.create_task(forgotten())  # noqa: RUF006
        await effect("first")
        gc.collect()
        gates.pop().set_result(None)
        await effect("second")
        return sorted(EFFECTS)

    run = stepwell_env.start(workflow(flow))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == ["first", "reached", "second"]
    check_run(stepwell_env, run)


def test_a_generator_found_by_the_collector_runs_no_code_and_shifts_no_id(
    stepwell_env: Environment,
) -> None:
    closed: list[str] = []

    async def cyclic() -> AsyncIterator[int]:
        me: list[Any] = holder
        try:
            yield 1
        finally:
            closed.append(str(len(me)))

    holder: list[Any] = []

    async def flow() -> str:
        generator = cyclic()
        box: list[Any] = [generator]
        box.append(box)
        await anext(generator)
        del generator, box
        await effect("a")
        return await asyncio.create_task(effect("b"))

    run = stepwell_env.start(workflow(flow))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == "b"
    ids = [getattr(each.event, "step", None) for each in stepwell_env.history(run)]
    assert ids == [None, "effect:1", "1/effect:1", None]
    check_run(stepwell_env, run)
