"""`step.map`: a step over many items, inside the turns of its run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import (
    FatalError,
    MapFailed,
    MapResult,
    RetryableError,
    RetryPolicy,
    StepFailed,
    step,
    step_hook,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus, Wait
from stepwell.engine.progress import MapProgress
from stepwell.engine.settings import Limits
from stepwell.errors import RunFailed
from stepwell.testing import Environment
from tests.integration.histories import found, kinds

ONCE = RetryPolicy(max_attempts=1)


def told(result: MapResult[Any]) -> list[str]:
    """A result as plain JSON."""
    return [
        f"{each.index} {each.status} {each.result} {each.error and type(each.error).__name__}"
        for each in result
    ]


def commits(env: Environment, run: RunHandle[Any]) -> int:
    return len(env.facts(run.id).rows.commits)


def test_results_come_in_the_order_of_the_items(env: Environment) -> None:
    @step
    async def slower_first(n: int) -> int:
        await asyncio.sleep(0.02 if n == 0 else 0)
        return 10 * n

    @workflow
    async def flow() -> list[int]:
        return await slower_first.map(range(3))

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [0, 10, 20]
    ended = [event.step for event in found(env, run, "StepCompleted")]
    assert ended[-1] == "slower_first*:1#0"
    [started] = found(env, run, "MapStarted")
    assert (started.map, started.name, started.total) == ("slower_first*:1", "slower_first", 3)


def test_a_def_step_in_a_def_workflow_blocks(env: Environment) -> None:
    @step
    def double(n: int) -> int:
        return 2 * n

    @step
    async def triple(n: int) -> int:
        return 3 * n

    @workflow
    def flow() -> list[Any]:
        return [double.map([1, 2]), triple.map([1, 2]), double.map(x for x in (3,))]

    assert env.run(flow) == [[2, 4], [3, 6], [6]]


def test_a_def_step_in_an_async_workflow_is_awaited(env: Environment) -> None:
    @step
    def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow() -> list[int]:
        result: list[int] = await double.map([1, 2])
        return result

    assert env.run(flow) == [2, 4]


def test_a_map_that_is_not_awaited_is_told_of(env: Environment) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow() -> None:
        double.map([1])

    with pytest.raises(RunFailed, match=r"'double\.map' was called in .* and never awaited"):
        env.run(flow)


def test_no_items_are_no_work(env: Environment) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow() -> list[Any]:
        collected = await double.map([], on_error="collect")
        return [await double.map([]), len(collected)]

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [[], 0]
    assert kinds(env, run) == ["RunStarted", "RunCompleted"]


def test_the_first_failure_is_raised_and_cancels_the_others_at_once(env: Environment) -> None:
    began: list[int] = []

    @step(retry=ONCE)
    async def breaks(n: int) -> int:
        began.append(n)
        if n == 1:
            raise ValueError("one")
        await asyncio.sleep(60)
        return n

    @workflow
    async def flow() -> str:
        try:
            await breaks.map([0, 1, 2])
        except StepFailed as error:
            return f"{error.step} {error.type}"
        return "fine"

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == "breaks*:1#1 ValueError"
    assert began == [0, 1, 2]
    assert kinds(env, run) == ["RunStarted", "MapStarted", "StepFailed", "RunCompleted"]


def test_collecting_gives_an_outcome_for_each_item(env: Environment) -> None:
    @step(retry=ONCE)
    async def odd(n: int) -> int:
        if n % 2:
            raise FatalError(str(n))
        return n

    @workflow
    async def flow() -> list[Any]:
        result = await odd.map([0, 1, 2, 3], on_error="collect")
        return [told(result), result.results, [str(error) for error in result.errors]]

    outcomes, results, errors = env.run(flow)
    assert outcomes == [
        "0 completed 0 None",
        "1 failed None StepFailed",
        "2 completed 2 None",
        "3 failed None StepFailed",
    ]
    assert results == [0, 2]
    assert len(errors) == 2
    assert "FatalError: 1" in errors[0]


def test_enough_successes_end_a_map_and_cancel_the_losers(env: Environment) -> None:
    @step(retry=ONCE)
    async def racer(n: int) -> int:
        if n == 0:
            raise ValueError("down")
        await asyncio.sleep(0 if n == 2 else 60)
        return n

    @workflow
    async def flow() -> list[str]:
        return told(await racer.map([0, 1, 2, 3], min_successful=1))

    assert env.run(flow) == [
        "0 failed None StepFailed",
        "1 cancelled None None",
        "2 completed 2 None",
        "3 cancelled None None",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tolerated_failures": 1}, "2 of 4 items failed, and 1 may"),
        ({"tolerated_failures": 0}, "1 of 4 items failed, and 0 may"),
        ({"min_successful": 3}, "2 of 4 items failed, so the 3 that have to succeed cannot"),
        ({"min_successful": 5}, "0 of 4 items failed, so the 5 that have to succeed cannot"),
    ],
)
def test_too_many_failures_fail_a_map(env: Environment, options: dict[str, Any], said: str) -> None:
    @step(retry=ONCE)
    async def falls(n: int) -> int:
        if n < 2:
            raise ValueError(str(n))
        await asyncio.sleep(60)
        return n

    @workflow
    async def flow() -> list[Any]:
        try:
            await falls.map(range(4), **options)
        except MapFailed as error:
            return [str(error), error.map, len(error.result)]
        return []

    text, identity, count = env.run(flow)
    assert text == f"map of step 'falls': {said}"
    assert (identity, count) == ("falls*:1", 4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_error": "ignore"}, 'on_error is "fail" or "collect"'),
        ({"on_error": "fail", "min_successful": 1}, "goes neither with"),
        ({"on_error": "fail", "tolerated_failures": 1}, "goes neither with"),
        ({"max_concurrency": 0}, "max_concurrency is a whole number from 1 up"),
        ({"max_concurrency": True}, "max_concurrency is a whole number from 1 up"),
        ({"min_successful": 0}, "min_successful is a whole number from 1 up"),
        ({"tolerated_failures": -1}, "tolerated_failures is a whole number from 0 up"),
        ({"tolerated_failures": 0.5}, "tolerated_failures is a whole number from 0 up"),
        ({"key": lambda item: "same"}, "two items of one map have the key 'same'"),
        ({"key": lambda item: item}, "item key 1: give text"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    env: Environment, options: dict[str, Any], said: str
) -> None:
    @step
    async def any_step(n: int) -> int:
        return n

    @workflow
    async def flow() -> None:
        await any_step.map([1, 2], **options)

    with pytest.raises(RunFailed) as caught:
        env.run(flow)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ({1, 2}, "a set comes in another order on every pass"),
        (7, "map takes items to go over, not int"),
        (iter(int, 1), "at most 100,000 items"),
    ],
)
def test_items_that_cannot_be_gone_over_are_refused(
    env: Environment, items: Any, said: str
) -> None:
    @step
    async def any_step(n: int) -> int:
        return n

    @workflow
    async def flow() -> None:
        await any_step.map(items)

    with pytest.raises(RunFailed) as caught:
        env.run(flow)
    assert said in str(caught.value)


def test_an_error_of_the_generator_is_its_own(env: Environment) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise TypeError("of the generator")

    @step
    async def any_step(n: int) -> int:
        return n

    @workflow
    async def flow() -> None:
        await any_step.map(items())

    with pytest.raises(RunFailed, match="TypeError: of the generator"):
        env.run(flow)


def test_an_item_that_cannot_be_carried_begins_nothing(env: Environment) -> None:
    @step
    async def takes_int(n: int) -> int:
        return n

    @workflow
    async def flow() -> str:
        try:
            await takes_int.map([1, "two"])
        except Exception as error:
            return type(error).__name__
        return "fine"

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == "PayloadError"
    assert "StepCompleted" not in kinds(env, run)


def test_keys_name_the_items(env: Environment) -> None:
    @step
    async def load(order: dict[str, str]) -> str:
        return order["id"]

    @workflow
    async def flow() -> list[str]:
        orders = [{"id": "a#1"}, {"id": "b"}]
        return await load.map(orders, key=lambda order: order["id"])

    run = env.start(flow)
    env.run_until_idle()
    assert {event.step for event in found(env, run, "StepCompleted")} == {
        "load*:1#a#1",
        "load*:1#b",
    }


def test_so_many_run_at_a_time(env: Environment) -> None:
    running: list[int] = []
    most: list[int] = []

    @step
    async def limited(n: int) -> int:
        running.append(n)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(n)
        return n

    @workflow
    async def flow() -> int:
        return len(await limited.map(range(20), max_concurrency=3))

    assert env.run(flow) == 20
    assert max(most) == 3


def test_one_that_waits_for_a_hook_lets_another_begin(env: Environment) -> None:
    began: list[int] = []

    @step
    async def asks(n: int) -> int:
        began.append(n)
        answer: int = await step_hook("answer", key=str(n))
        return answer + n

    @workflow
    async def flow() -> list[int]:
        return await asks.map(range(3), max_concurrency=1)

    run = env.start(flow)
    env.run_until_idle()
    assert began == [0, 1, 2]
    assert len(env.hooks(run)) == 3
    header = env.get(run)
    assert header.waiting[0] == Wait(
        kind="map",
        id="asks*:1",
        name="asks",
        since=header.waiting[0].since,
        done=0,
        total=3,
    )
    env.resume_hook(env.hooks(run)[1].token, 10)
    assert env.get(run).waiting[0].done == 1
    [progress] = env.wait_for(env.client.progress(run.id))
    assert progress == MapProgress(
        id="asks*:1",
        name="asks",
        since=progress.since,
        total=3,
        completed=1,
        failed=0,
        going_on=True,
    )
    for hook in env.hooks(run):
        env.resume_hook(hook.token, 20)
    assert env.result(run) == [20, 11, 22]


def test_one_that_waits_for_its_next_attempt_lets_another_begin(env: Environment) -> None:
    tried: list[int] = []

    @step
    async def shaky(n: int) -> int:
        tried.append(n)
        if tried.count(n) == 1 and n == 0:
            raise RetryableError(retry_after="1h")
        return n

    @workflow
    async def flow() -> list[int]:
        return await shaky.map(range(3), max_concurrency=1)

    run = env.start(flow)
    env.run_until_idle()
    assert tried == [0, 1, 2]
    env.advance("1h")
    assert env.result(run) == [0, 1, 2]


def test_a_map_that_is_over_while_the_run_goes_on_has_ended(env: Environment) -> None:
    @step(retry=ONCE)
    async def asks(n: int) -> int:
        if n == 1:
            raise ValueError("one")
        answer: int = await step_hook("answer", key=str(n))
        return answer

    @step
    async def later() -> int:
        answer: int = await step_hook("later")
        return answer

    @workflow
    async def flow() -> int:
        with contextlib.suppress(StepFailed):
            await asks.map([0, 1])
        return await later()

    run = env.start(flow)
    env.run_until_idle()
    assert [wait.name for wait in env.get(run).waiting] == ["later"]
    assert found(env, run, "MapEnded")
    [hook] = env.hooks(run)
    env.resume_hook(hook.token, 7)
    assert env.result(run) == 7
    [progress] = env.wait_for(env.client.progress(run.id))
    assert (progress.failed, progress.going_on) == (1, False)


def test_a_cancelled_run_cancels_its_items(env: Environment) -> None:
    @step
    async def asks(n: int) -> int:
        answer: int = await step_hook("answer", key=str(n))
        return answer

    @workflow
    async def flow() -> list[int]:
        return await asks.map(range(3))

    run = env.start(flow)
    env.run_until_idle()
    env.cancel(run)
    assert env.get(run).status is RunStatus.CANCELLED
    assert env.hooks(run) == ()


def test_a_thousand_items_take_a_handful_of_commits(env: Environment) -> None:
    most = [0, 0]

    @step
    async def small(n: int) -> int:
        most[0] += 1
        most[1] = max(most)
        await asyncio.sleep(0)
        most[0] -= 1
        return n

    @workflow
    async def flow() -> int:
        return sum(await small.map(range(1_000), max_concurrency=50))

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == 499_500
    assert most[1] <= 51
    assert commits(env, run) <= 25
    assert len(env.turns) == 1


def test_more_items_than_a_run_has_room_for_fail_it() -> None:
    @step
    async def small(n: int) -> int:
        return n

    @workflow
    async def flow() -> int:
        return len(await small.map(range(50)))

    with Environment(limits=Limits(steps=40)) as env, pytest.raises(RunFailed, match="41 steps"):
        env.run(flow)


def test_a_map_with_another_number_of_items_blocks_a_run(env: Environment) -> None:
    count = [3]

    @step
    async def asks(n: int) -> int:
        answer: int = await step_hook("answer", key=str(n))
        return answer

    @workflow
    async def flow() -> list[int]:
        return await asks.map(range(count[0]))

    run = env.start(flow)
    env.run_until_idle()
    count[0] = 2
    env.resume_hook(env.hooks(run)[0].token, 1)
    note = env.get(run).attention
    assert note is not None
    assert "map 'asks*:1' of 3 items" in note.reason
    count[0] = 3
    env.wait_for(env.client.wake(run.id))
    for hook in env.hooks(run):
        env.resume_hook(hook.token, 1)
    assert env.result(run) == [1, 1, 1]


def test_maps_in_branches_count_apart(env: Environment) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow() -> list[list[int]]:
        return list(await asyncio.gather(double.map([1]), double.map([2])))

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [[2], [4]]
    assert [event.map for event in found(env, run, "MapStarted")] == ["1/double*:1", "2/double*:1"]
