"""Maps of a dispatched step: their items are made outside of the turns of their run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    FatalError,
    MapFailed,
    Result,
    RetryableError,
    RetryPolicy,
    StepFailed,
    StepInterrupted,
    current,
    hook,
    load_step_checkpoint,
    save_step_checkpoint,
    set_context,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.authoring.guards import guard_change
from stepwell.core.payload import Sizes
from stepwell.core.records import RunStatus
from stepwell.errors import RunFailed
from stepwell.testing import Environment
from tests.integration.attempts import turns_only
from tests.integration.histories import found, kinds

OBSERVE = {"power": "observe"}
ONCE = RetryPolicy(max_attempts=1)
AT_ONCE = RetryPolicy(initial=0, jitter="none")


def statuses(result: Any) -> list[str]:
    return [each.status for each in result]


def test_items_run_outside_of_the_turns_and_of_the_log(env: Environment) -> None:
    seen: list[tuple[int, str]] = []

    @step(dispatch="worker")
    async def double(n: int) -> int:
        seen.append((current.attempt, current.idempotency_key))
        return 2 * n

    @workflow
    async def flow() -> list[int]:
        return await double.map([1, 2, 3])

    run = env.start(flow)
    turns_only(env)
    assert seen == []
    assert kinds(env, run) == ["RunStarted", "MapStarted"]
    [wait] = env.get(run).waiting
    assert (wait.kind, wait.done, wait.total) == ("map", None, 3)
    env.take_turn()
    env.take_turn()
    [progress] = env.wait_for(env.client.progress(run.id))
    assert (progress.completed, progress.total, progress.going_on) == (2, 3, True)
    env.run_until_idle()
    assert env.result(run) == [2, 4, 6]
    assert sorted(seen) == [(1, f"{run.id}/double*:1#{n}") for n in range(3)]
    assert kinds(env, run) == ["RunStarted", "MapStarted", "MapEnded", "RunCompleted"]
    assert len(env.turns) == 2


def test_def_workflows_and_def_steps(env: Environment) -> None:
    @step(dispatch="worker")
    def double(n: int) -> int:
        return 2 * n

    @workflow
    def flow() -> list[Any]:
        return [double.map([1, 2]), double.map([3], key=str)]

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [[2, 4], [6]]


@pytest.mark.parametrize("count", [128, 129, 300])
@pytest.mark.parametrize("most", [None, 1, 3, 40])
def test_many_items_take_few_turns(env: Environment, count: int, most: int | None) -> None:
    @step(dispatch="worker")
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow() -> int:
        return sum(await double.map(range(count), max_concurrency=most))

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == count * (count - 1)
    assert len(env.turns) == 2
    assert len(kinds(env, run)) == 4


@pytest.mark.parametrize("most", [1, 3, 20])
def test_so_many_items_are_under_way_at_a_time(env: Environment, most: int) -> None:
    @step(dispatch="worker")
    async def limited(n: int) -> int:
        return n

    @workflow
    async def flow() -> int:
        return len(await limited.map(range(60), max_concurrency=most))

    run = env.start(flow)
    turns_only(env)
    sent = []
    while env.take_turn():
        sent.append(len(env.wait_for(env._local.step_queue.attempts_of(run.id))))
    assert max(sent) <= most
    assert env.result(run) == 60


def test_the_first_failure_is_raised_and_calls_off_the_others(env: Environment) -> None:
    made: list[int] = []

    @step(dispatch="worker", retry=ONCE)
    async def breaks(n: int) -> int:
        made.append(n)
        if n == 1:
            raise ValueError("one")
        return n

    @workflow
    async def flow() -> str:
        try:
            await breaks.map(range(200), max_concurrency=2)
        except StepFailed as error:
            return f"{error.step} {error.type}"
        return "fine"

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == "breaks*:1#1 ValueError"
    assert len(made) < 20


def test_collecting_gives_an_outcome_for_each_item(env: Environment) -> None:
    @step(dispatch="worker", retry=ONCE)
    async def odd(n: int) -> int:
        if n % 2:
            raise FatalError(str(n))
        return n

    @workflow
    async def flow() -> list[Any]:
        result = await odd.map(range(4), on_error="collect")
        return [statuses(result), result.results, [str(error) for error in result.errors]]

    run = env.start(flow)
    env.run_until_idle()
    outcomes, results, errors = env.result(run)
    assert outcomes == ["completed", "failed"] * 2
    assert results == [0, 2]
    assert "FatalError: 1" in errors[0]


@pytest.mark.parametrize("count", [5, 300])
def test_enough_successes_end_a_map(env: Environment, count: int) -> None:
    @step(dispatch="worker", retry=ONCE)
    async def racer(n: int) -> int:
        if n < 2:
            raise ValueError("down")
        return n

    @workflow
    async def flow() -> list[Any]:
        first = await racer.map(range(count), min_successful=2, max_concurrency=1)
        answer: str = await hook("after")
        return [first.results, statuses(first)[:5], answer]

    run = env.start(flow)
    env.run_until_idle()
    env.resume_hook(env.hooks(run)[0].token, "yes")
    results, first, answer = env.result(run)
    assert results[:2] == [2, 3]
    assert first[:4] == ["failed", "failed", "completed", "completed"]
    assert answer == "yes"
    assert len(results) < 6 or count == 5


@pytest.mark.parametrize("count", [5, 300])
def test_too_many_failures_fail_a_map(env: Environment, count: int) -> None:
    @step(dispatch="worker", retry=ONCE)
    async def falls(n: int) -> int:
        if n < 3:
            raise ValueError(str(n))
        return n

    @workflow
    async def flow() -> str:
        try:
            await falls.map(range(count), tolerated_failures=1)
        except MapFailed as error:
            return str(error)
        return "fine"

    run = env.start(flow)
    env.run_until_idle()
    assert f"of {count} items failed, and 1 may" in env.result(run)


def test_failures_are_tried_again_by_the_policy(env: Environment) -> None:
    tried: list[tuple[int, int]] = []

    @step(dispatch="worker")
    async def shaky(n: int) -> int:
        tried.append((n, current.attempt))
        if current.attempt < 3:
            raise RetryableError(retry_after="2m")
        return n

    @workflow
    async def flow() -> list[int]:
        return await shaky.map(range(2), max_concurrency=1)

    run = env.start(flow)
    env.run_until_idle()
    assert tried == [(0, 1)]
    env.advance("2m")
    assert tried == [(0, 1), (0, 2)]
    env.advance("1h")
    assert env.result(run) == [0, 1]
    assert tried == [(n, attempt) for n in (0, 1) for attempt in (1, 2, 3)]
    assert len(env.turns) == 2


def test_a_long_delay_is_a_timer_of_the_run(env: Environment) -> None:
    @step(dispatch="worker")
    async def shaky(n: int) -> int:
        if n == 1 and current.attempt == 1:
            raise RetryableError(retry_after="3d")
        return current.attempt

    @workflow
    async def flow() -> list[int]:
        return await shaky.map(range(3))

    run = env.start(flow)
    env.run_until_idle()
    assert [wait.kind for wait in env.get(run).waiting] == ["map", "retry"]
    assert kinds(env, run) == ["RunStarted", "MapStarted", "StepStarted", "StepRetryScheduled"]
    env.advance("3d")
    assert env.result(run) == [1, 2, 1]


def test_an_item_waits_for_a_hook_in_its_middle(env: Environment) -> None:
    entered: list[tuple[int, int]] = []

    @step(dispatch="worker")
    async def asks(n: int) -> str:
        entered.append((n, current.entry))
        state = await load_step_checkpoint()
        if state is None:
            await save_step_checkpoint({"draft": n})
        answer = await step_hook("answer", key=str(n), timeout="1d", on_timeout="return")
        return f"{n} {answer}"

    @workflow
    async def flow() -> list[str]:
        return await asks.map(range(3), max_concurrency=1)

    run = env.start(flow)
    env.run_until_idle()
    assert entered == [(0, 1), (1, 1), (2, 1)]
    asked = {pending.hook_id: pending for pending in env.hooks(run)}
    assert sorted(asked) == [f"asks*:1#{n}>answer@{n}" for n in range(3)]
    env.resume_hook(asked["asks*:1#1>answer@1"].token, "yes")
    env.resume_hook(asked["asks*:1#0>answer@0"].token, "no")
    assert env.get(run).status is RunStatus.SUSPENDED
    env.advance("25h")
    first, second, third = env.result(run)
    assert (first, second) == ("0 no", "1 yes")
    assert "HookTimeout" in third or "TIMEOUT" in third
    assert found(env, run, "MapEnded")


def test_an_answer_that_comes_before_the_run_knows_of_the_item(env: Environment) -> None:
    @step(dispatch="worker")
    async def asks(n: int) -> str:
        answer: str = await step_hook("answer")
        return answer

    @workflow
    async def flow() -> list[str]:
        return await asks.map([1])

    run = env.start(flow)
    turns_only(env)
    delivery = env.wait_for(env._local.step_queue.receive())
    assert delivery is not None
    env.wait_for(env._attempt(delivery))
    [pending] = env.hooks(run)
    env.wait_for(env.client.resume_hook(pending.token, "early"))
    env.run_until_idle()
    assert env.result(run) == ["early"]


def test_large_inputs_and_results_are_kept_apart() -> None:
    @step(dispatch="worker")
    async def repeat(text: str) -> str:
        return text * 2

    @workflow
    async def flow() -> int:
        return sum(map(len, await repeat.map(["x" * 500, "y", "z" * 700], max_concurrency=2)))

    with Environment(sizes=Sizes(inline_limit=200)) as env:
        run = env.start(flow)
        env.run_until_idle()
        assert env.result(run) == 2402


def test_a_run_that_is_cancelled_calls_off_its_items(env: Environment) -> None:
    made: list[int] = []

    @step(dispatch="worker")
    async def slow(n: int) -> int:
        made.append(n)
        return n

    @workflow
    async def flow() -> list[int]:
        return await slow.map(range(5))

    run = env.start(flow)
    turns_only(env)
    env.wait_for(env.client.cancel(run.id))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    assert made == []


def test_a_map_that_is_not_waited_for_any_more_is_called_off(env: Environment) -> None:
    made: list[int] = []

    @step(dispatch="worker")
    async def slow(n: int) -> int:
        made.append(n)
        raise RetryableError(retry_after="10m")

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(60):
                await slow.map(range(3))
        except TimeoutError:
            await sleep("1h")
            return "late"
        return "?"

    run = env.start(flow)
    env.advance("2h")
    assert env.result(run) == "late"
    assert sorted(made) == [0, 1, 2]
    [ended] = found(env, run, "MapEnded")
    assert (ended.outcomes, ended.left) == (None, True)


def test_an_item_that_kills_its_process_fails_by_its_policy(env: Environment) -> None:
    @step(dispatch="worker", retry=RetryPolicy(max_attempts=2, initial=0))
    async def fine(n: int) -> int:
        return n

    @workflow
    async def flow() -> list[Any]:
        try:
            return await fine.map(range(2))
        except StepInterrupted as error:
            return [error.step, error.attempts]

    run = env.start(flow)
    turns_only(env)
    for _ in range(3):
        env.crash_at(2)  # after it has looked at the shard: in the body, or when it has ended
        env.take_turn()
    env.run_until_idle()
    assert env.result(run) in ([0, 1], ["fine*:1#0", 2], ["fine*:1#1", 2])


def test_other_items_block_a_run(env: Environment) -> None:
    items = [[1, 2]]

    @step(dispatch="worker")
    async def asks(n: int) -> int:
        answer: int = await step_hook("answer", key=str(n))
        return answer

    @workflow
    async def flow() -> list[int]:
        return await asks.map(items[0])

    run = env.start(flow)
    env.run_until_idle()
    items[0] = [1, 3]
    env.resume_hook(env.hooks(run)[0].token, 1)
    note = env.get(run).attention
    assert note is not None
    assert "map 'asks*:1' of items" in note.reason


def test_an_item_that_is_too_large_fails_its_map() -> None:
    @step(dispatch="worker")
    async def echo(text: str) -> str:
        return text

    @workflow
    async def flow() -> list[str]:
        return await echo.map(["small", "x" * 5_000])

    sizes = Sizes(inline_limit=200, hard_limit=1_000)
    with Environment(sizes=sizes) as env, pytest.raises(RunFailed, match="PayloadTooLarge"):
        env.run(flow)


def test_items_have_the_guards_of_their_run() -> None:
    asked: list[str] = []

    def guard(payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(payload["key"])
        if payload["args"] == [2]:
            return {"power": "replace", "result": 20}
        return {"power": "block", "reason": "three"} if payload["args"] == [3] else OBSERVE

    @step(dispatch="worker")
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow() -> list[Any]:
        found = await double.map([1, 2, 3], on_error="collect")
        return [found.results, [type(error).__name__ for error in found.errors]]

    with Environment() as env:
        given = guard_change(guard, (), "n")
        assert given is not None
        run = env.wait_for(env.client.with_guards(given.guards).start(flow))
        env.run_until_idle()
        assert env.result(run) == [[2, 20], ["StepBlocked"]]
    assert sorted(asked) == [f"double*:1#{n}" for n in range(3)]


class Caller(BaseModel):
    tenant: str = "none"


def test_items_read_the_context_of_their_run(env: Environment) -> None:
    @step(dispatch="worker")
    async def reads(n: int) -> str:
        return f"{n} {current.context.tenant}"

    @workflow(context=Caller)
    async def flow() -> list[str]:
        before = await reads.map([1], max_concurrency=1)
        set_context(Caller(tenant="later"))
        return before + await reads.map([2])

    client = env.client.with_options(context=Caller(tenant="first"))
    run = env.wait_for(client.start(flow))
    env.run_until_idle()
    assert env.result(run) == ["1 first", "2 later"]


def test_items_read_the_inbox_of_their_run(env: Environment) -> None:
    @step(dispatch="worker")
    async def reads(n: int) -> str:
        return f"{n} {current.run.inbox.get('note')}"

    @workflow
    async def flow() -> list[str]:
        await hook("go")
        return await reads.map([1])

    run = env.start(flow)
    env.run_until_idle()
    env.wait_for(env.client.put_inbox(run.id, "note", "x" * 20_000))
    env.resume_hook(env.hooks(run)[0].token)
    assert env.result(run) == [f"1 {'x' * 20_000}"]


def test_a_map_with_options_of_its_own(env: Environment) -> None:
    tried: list[int] = []

    @step(dispatch="worker", retry=ONCE)
    async def shaky(n: int) -> int:
        tried.append(n)
        if len(tried) < 3:
            raise ValueError("not yet")
        return n

    @workflow
    async def flow() -> list[int]:
        return await shaky.with_options(retry=RetryPolicy(initial=0, jitter="none")).map([5])

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [5]
    assert tried == [5, 5, 5]


def test_a_step_that_streams_is_dispatched_item_by_item(env: Environment) -> None:
    @step(dispatch="worker", stream=True)
    async def spoken(n: int) -> AsyncIterator[str | Result[int]]:
        yield "word"
        yield Result(n)

    @workflow
    async def flow() -> list[int]:
        return await spoken.map([1, 2])

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [1, 2]
    assert [chunk.value for chunk in env.output(run, "spoken*:1#1")] == ["word"]
