"""`wait_for_condition`: looks as steps, durable waits in between, a state that is carried along."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest

from stepwell import (
    Backoff,
    ConditionNotMet,
    RetryPolicy,
    StepFailed,
    hook,
    step,
    wait_for_condition,
    workflow,
)
from stepwell.core.records import RunStatus
from stepwell.errors import DefinitionError, RunFailed, UsageError
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, essence, found

SECOND = 1_000


def dues(env: Environment, run: Any) -> list[int]:
    """How long each wait was, in seconds."""
    started = found(env, run, "TimerStarted")
    return [(event.due - event.at) // SECOND for event in started]


async def count(seen: list[int]) -> tuple[bool, list[int]]:
    return len(seen) == 2, [*seen, len(seen)]


@workflow(name="conditions.counted")
async def counted(most: int | None = None) -> list[int]:
    seen: list[int] = await wait_for_condition(count, [], max_attempts=most)
    return seen


def test_looks_are_steps_and_carry_their_state(env: Environment) -> None:
    run = env.start(counted)
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == [0, 1, 2]
    assert [each.step for each in found(env, run, "StepCompleted")] == [
        f"count:{n}" for n in (1, 2, 3)
    ]
    assert [each.timer for each in found(env, run, "TimerFired")] == [
        "count.wait:1",
        "count.wait:2",
    ]
    assert dues(env, run) == [5, 7]


def test_a_condition_that_holds_at_once_costs_one_step(env: Environment) -> None:
    def ready(state: str) -> tuple[bool, str]:
        return True, state

    @workflow
    async def flow() -> str:
        state: str = await wait_for_condition(ready, "as it was")
        return state

    env.crash_at(10**9)
    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == "as it was"
    assert Counter(env.port_calls) == {"store.load": 1, "store.append": 1, "store.update_header": 1}


def test_what_a_look_costs(env: Environment) -> None:
    env.crash_at(10**9)
    env.start(counted)
    env.run_until_idle()
    env.crash_at(10**9)
    env.advance("5s")  # the second look of three
    # That the wait is over is durable before the look begins; the next wait goes with its outcome.
    assert Counter(env.port_calls) == {
        "store.load": 1,
        "store.append": 2,
        "timers.start": 1,
        "timers.cancel": 1,
        "store.update_header": 1,
    }


def test_a_declared_step_can_look_in_a_def_workflow(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=2, initial="1s", jitter="none"))
    def look(n: int) -> tuple[bool, int]:
        if n == 1 and not failed:
            failed.append(n)
            raise OSError("down")
        return n == 2, n + 1

    failed: list[int] = []

    @workflow
    def flow() -> int:
        n: int = wait_for_condition(look, 0, backoff="1m")
        return n

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == 3
    assert failed == [1]
    assert dues(env, run) == [60, 60]


def test_after_so_many_looks_it_gives_up(env: Environment) -> None:
    @workflow
    async def flow() -> list[Any]:
        try:
            await wait_for_condition(count, [], max_attempts=2)
        except ConditionNotMet as error:
            return [error.name, error.reason, error.attempts, error.state]
        return []

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == ["count", "attempts", 2, [0, 1]]


def test_a_retry_of_a_run_that_gave_up_does_not_look_again(env: Environment) -> None:
    looks: list[int] = []

    async def never(state: int) -> tuple[bool, int]:
        looks.append(state)
        return False, state + 1

    @workflow
    async def giving_up() -> int:
        return await wait_for_condition(never, 0, backoff="1m", max_attempts=2)

    run = env.start(giving_up)
    env.run_until_idle()
    env.advance("1h")
    env.retry(run)
    env.advance("1h")
    assert env.get(run).status is RunStatus.FAILED
    assert looks == [0, 1]


def test_after_its_time_there_is_a_last_look(env: Environment) -> None:
    async def never(n: int) -> tuple[bool, int]:
        return False, n + 1

    @workflow
    async def flow() -> None:
        await wait_for_condition(never, 0, backoff="40s", timeout="1m")

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    with pytest.raises(RunFailed, match="condition 'never' was not met in time: 3 looks"):
        env.result(run)
    assert dues(env, run) == [40, 20]


def test_the_last_look_counts(env: Environment) -> None:
    @workflow
    async def flow() -> int:
        seen = await wait_for_condition(count, [], backoff="40s", timeout="1m")
        return len(seen)

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == 3


def test_with_jitter_waits_are_drawn_from_the_seed() -> None:
    async def never(n: int) -> tuple[bool, int]:
        return False, n

    waits = []
    for seed in ("a", "a", "b"):
        with Environment(seed=seed) as env:

            @workflow(name="jittered")
            async def flow() -> None:
                await wait_for_condition(
                    never,
                    0,
                    backoff=Backoff(initial="10m", factor=1, max_delay="10m"),
                    max_attempts=4,
                )

            run = env.start(flow)
            env.run_until_idle()
            env.advance("1h")
            waits.append(dues(env, run))
    assert waits[0] == waits[1] != waits[2]
    assert all(0 <= wait < 600 for wait in waits[0])


def test_keys_keep_conditions_apart(env: Environment) -> None:
    @workflow
    async def flow() -> list[int]:
        both = await asyncio.gather(
            wait_for_condition(count, [], key="a"), wait_for_condition(count, [5], key="b")
        )
        return [len(each) for each in both]

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == [3, 3]
    assert {each.step for each in found(env, run, "StepCompleted")} == {
        "count=a#1", "count=a#2", "count=a#3", "count=b#1", "count=b#2",
    }  # fmt: skip
    assert {each.timer for each in found(env, run, "TimerFired")} == {
        "count.wait=a#1", "count.wait=a#2", "count.wait=b#1",
    }  # fmt: skip


def test_a_key_serves_one_wait(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        await wait_for_condition(count, [], key="a")
        await wait_for_condition(count, [], key="a")

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    with pytest.raises(RunFailed, match="KeyConflict"):
        env.result(run)


def test_a_look_that_fails_for_good_raises(env: Environment) -> None:
    async def broken(n: int) -> tuple[bool, int]:
        raise OSError("down")

    @workflow
    async def flow() -> str:
        try:
            await wait_for_condition(broken, 0)
        except StepFailed as error:
            return error.type
        return ""

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == "OSError"


def test_a_crash_at_any_port_call_changes_nothing() -> None:
    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        runs.append(env.start(counted))
        env.run_until_idle()
        env.advance("1h")

    histories = []
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == [0, 1, 2]
        histories.append(essence(env, runs[-1]))
    assert len(histories) > 10
    assert all(history == histories[0] for history in histories)


@pytest.mark.parametrize("outcome", [True, None, [1, 2], [True], (True, 1, 2)])
def test_a_look_that_returns_something_else_is_refused(env: Environment, outcome: Any) -> None:
    def odd(state: Any) -> Any:
        return outcome

    @workflow
    async def flow() -> None:
        await wait_for_condition(odd, 0)

    with pytest.raises(RunFailed, match=r"return \(done, state\)"):
        env.run(flow)


@step(name="conditions.declared")
async def declared(n: int) -> tuple[bool, int]:
    return True, n


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "timeout must be above zero"),
        ({"max_attempts": 0}, "max_attempts is a whole number"),
        ({"max_attempts": True}, "max_attempts is a whole number"),
        ({"backoff": "soon"}, "backoff"),
        ({"key": ""}, "wait_for_condition key ''"),
        ({"name": "no name"}, "step name 'no name'"),
    ],
)
def test_bad_options_are_refused(options: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        wait_for_condition(count, [], **options)


def test_a_declared_step_keeps_its_name() -> None:
    with pytest.raises(DefinitionError, match="leave name= out"):
        wait_for_condition(declared, 0, name="other")
    with pytest.raises(DefinitionError, match="Backoff initial"):
        Backoff(initial="soon")


def test_a_step_cannot_wait_for_a_condition(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=1))
    async def inside() -> None:
        await wait_for_condition(count, [])

    @workflow
    async def flow() -> None:
        await inside()

    with pytest.raises(RunFailed, match="a step cannot wait durably"):
        env.run(flow)


def test_one_that_is_never_awaited_is_told_of(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        wait_for_condition(count, [])

    with pytest.raises(RunFailed, match=r"'count' was called in .*flow .*and never awaited"):
        env.run(flow)


def test_it_can_be_cancelled_while_it_waits(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(3600):
                await wait_for_condition(partial(count), [], name="count", backoff="2h")
        except TimeoutError:
            return "late"
        await hook("never")
        return ""

    run = env.start(flow)
    env.run_until_idle()
    env.advance("3h")
    assert env.result(run) == "late"


def test_outside_a_run_it_looks_and_sleeps_plainly() -> None:
    def blocking(n: int) -> tuple[bool, int]:
        return n == 2, n + 1

    assert wait_for_condition(blocking, 0, backoff="1ms") == 3
    assert wait_for_condition(count, [], backoff="1ms") == [0, 1, 2]

    async def flow() -> Any:
        return await wait_for_condition(declared, 4)

    assert asyncio.run(flow()) == 4
    with pytest.raises(ConditionNotMet):
        wait_for_condition(blocking, 0, max_attempts=1)


def test_a_mark_is_no_state() -> None:
    with pytest.raises(UsageError):
        wait_for_condition(lambda state: state, 0, name="odd")
