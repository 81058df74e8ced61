"""Outside a run a workflow is a function, and so is a step."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from typing import Any

import pytest

from stepwell import (
    MapFailed,
    current,
    define_hook,
    hook,
    load_step_checkpoint,
    now,
    random,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    uuid4,
    workflow,
)
from stepwell.authoring.registry import registry
from stepwell.errors import UsageError
from stepwell.testing import Environment

with registry.isolated():

    @step
    async def double(n: int) -> int:
        return 2 * n

    @step
    def negate(n: int) -> int:
        return -n


def test_steps_and_workflows_are_plain_functions() -> None:
    @workflow
    async def flow(n: int) -> int:
        return await double(n) + await negate.aio(n)

    @workflow
    def blocking(n: int) -> int:
        return negate(n)

    assert asyncio.run(flow(3)) == 3
    assert blocking(3) == -3
    assert negate(2) == -2
    assert asyncio.run(double(2)) == 4


def test_sleep_is_a_plain_sleep_in_both_colours() -> None:
    async def waits() -> Any:
        return await sleep("1ms")

    assert asyncio.run(waits()) is None
    assert sleep("1ms") is None
    assert sleep(dt.datetime(2001, 1, 1, tzinfo=dt.UTC)) is None


@pytest.mark.parametrize("when", ["5", -1, True, dt.datetime(2001, 1, 1)])  # noqa: DTZ001
def test_a_sleep_that_is_no_time_is_refused_outside_as_inside(
    when: Any, stepwell_env: Environment
) -> None:
    @workflow
    async def flow() -> str:
        try:
            await sleep(when)
        except ValueError as error:
            return str(error)
        return "slept"

    with pytest.raises(ValueError, match=r".") as caught:
        sleep(when)
    assert stepwell_env.run(flow) == str(caught.value)


def test_time_and_randomness_are_plain() -> None:
    before = dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=1)
    assert before <= now() <= dt.datetime.now(dt.UTC)
    assert uuid4() != uuid4()
    assert isinstance(uuid4(), uuid.UUID)
    assert uuid4().version == 4
    assert 0 <= random() < 1


def test_hooks_need_a_run() -> None:
    ask = define_hook("ask", str)
    with pytest.raises(UsageError, match="start the workflow with a client"):
        hook("ask")
    with pytest.raises(UsageError, match="start the workflow with a client"):
        ask()
    with pytest.raises(UsageError, match=r"write hook\(...\) in a workflow"):
        step_hook("ask")


def test_step_words_need_a_step() -> None:
    for name in ("step_id", "attempt", "entry", "deadline", "cancelled", "idempotency_key"):
        with pytest.raises(UsageError, match=f"current.{name}"):
            getattr(current, name)
    with pytest.raises(UsageError, match="there is no run here"):
        current.run_id  # noqa: B018
    with pytest.raises(UsageError):
        load_step_checkpoint()
    with pytest.raises(UsageError):
        save_step_checkpoint({})


def test_words_of_the_workflow_are_refused_in_a_step_and_the_other_way_round(
    stepwell_env: Environment,
) -> None:
    @step
    async def confused() -> list[str]:
        found = []
        for word in (lambda: hook("ask"), lambda: sleep("1s")):
            try:
                await word()
            except UsageError as error:
                found.append(str(error))
        return found

    @workflow
    async def flow() -> list[str]:
        found = await confused()
        try:
            await step_hook("ask")
        except UsageError as error:
            found.append(str(error))
        return found

    in_step, sleeping, in_workflow = stepwell_env.run(flow)
    assert "inside a step write step_hook" in in_step
    assert "a step cannot wait durably" in sleeping
    assert "write hook(...) in a workflow" in in_workflow


def test_a_step_in_a_step_is_a_plain_function(stepwell_env: Environment) -> None:
    @step
    async def outer(n: int) -> int:
        return await double(n) + negate(n)

    @workflow
    async def flow() -> int:
        return await outer(5)

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == 5
    steps = [getattr(each.event, "step", None) for each in stepwell_env.history(run)]
    assert steps == [None, "outer:1", None]


def test_a_workflow_called_in_a_workflow_is_part_of_it(stepwell_env: Environment) -> None:
    @workflow
    async def inner(n: int) -> int:
        return await double(n)

    @workflow
    async def outer() -> int:
        return await inner(1) + await double(2)

    run = stepwell_env.start(outer)
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == 6
    steps = [getattr(each.event, "step", None) for each in stepwell_env.history(run)]
    assert steps == [None, "double:1", "double:2", None]


def test_time_in_a_workflow_is_the_time_of_the_last_outcome(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> list[str]:
        first = now()
        await sleep("90m")
        return [str(now() - first), str(now() - first)]

    run = stepwell_env.start(flow)
    stepwell_env.advance("2h")
    assert stepwell_env.result(run) == ["1:30:00", "1:30:00"]


def test_a_sleep_until_a_time_that_has_passed_returns_at_once(stepwell_env: Environment) -> None:
    @workflow
    async def flow() -> str:
        await sleep(0)
        await sleep(dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
        await sleep(now() + dt.timedelta(hours=1))
        return "slept"

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    [wait] = stepwell_env.get(run).waiting
    assert wait.id == "sleep:3"
    stepwell_env.advance("1h")
    assert stepwell_env.result(run) == "slept"


def test_a_map_calls_the_function_for_each_item() -> None:
    async def all_ways() -> list[Any]:
        return [
            await double.map([1, 2, 3], max_concurrency=2),
            await negate.map(n for n in (1, 2)),
            await double.map([]),
        ]

    assert asyncio.run(all_ways()) == [[2, 4, 6], [-1, -2], []]
    assert negate.map([1, 2]) == [-1, -2]


def test_so_many_functions_of_a_map_run_at_a_time() -> None:
    now_running, most = [0], [0]

    with registry.isolated():

        @step
        async def counted(n: int) -> int:
            now_running[0] += 1
            most[0] = max(most[0], now_running[0])
            await asyncio.sleep(0)
            now_running[0] -= 1
            return n

    async def mapped() -> Any:
        return await counted.map(range(9), max_concurrency=2)

    assert asyncio.run(mapped()) == list(range(9))
    assert most == [2]


def test_a_map_outside_a_run_ends_as_one_inside() -> None:
    with registry.isolated():

        @step
        async def odd(n: int) -> int:
            if n % 2:
                raise ValueError(str(n))
            return n

        @step
        def odd_too(n: int) -> int:
            if n % 2:
                raise ValueError(str(n))
            return n

    async def mapped(**options: Any) -> Any:
        return await odd.map(range(4), **options)

    with pytest.raises(ValueError, match="1"):
        asyncio.run(mapped())
    with pytest.raises(ValueError, match="1"):
        odd_too.map(range(4))
    for found in (
        asyncio.run(mapped(on_error="collect")),
        odd_too.map(range(4), on_error="collect"),
    ):
        assert found.results == [0, 2]
        assert [str(error) for error in found.errors] == ["1", "3"]
    first = odd_too.map([2, 4, 1], min_successful=1)
    assert [each.status for each in first] == ["completed", "cancelled", "cancelled"]
    with pytest.raises(MapFailed, match="2 of 4 items failed, and 1 may"):
        asyncio.run(mapped(tolerated_failures=1))


def test_a_submitted_step_is_a_task_or_what_a_function_returned() -> None:
    with registry.isolated():

        @step
        async def never() -> None:
            await asyncio.Event().wait()

        @step
        def broken() -> None:
            raise ValueError("no")

    async def all_ways() -> list[Any]:
        ticket, other = double.submit(2), never.submit()
        before = ticket.done
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other
        return [before, await ticket.result(), await negate.submit(3), other.done]

    assert asyncio.run(all_ways()) == [False, 4, -3, True]
    assert negate.submit(4).result() == -4
    failed = broken.submit()
    failed.cancel()
    assert failed.done
    with pytest.raises(ValueError, match="no"):
        failed.result()
