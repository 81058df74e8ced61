"""Steps: their identity, what they know of themselves, and how their failures reach a workflow."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from stepwell import RetryPolicy, StepFailed, current, sleep, step, workflow
from stepwell.engine.step_runner import StepEntry
from stepwell.errors import (
    DefinitionError,
    PayloadError,
    RunFailed,
    StepInterrupted,
    UsageError,
)
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, essence, found

ONCE = RetryPolicy(max_attempts=1)


class Declined(Exception):
    pass


def test_equal_calls_are_steps_of_their_own(env: Environment) -> None:
    ticks: list[int] = []

    @step
    async def tick() -> int:
        ticks.append(1)
        return len(ticks)

    @workflow
    async def three() -> list[int]:
        return [await tick(), await tick(), await tick()]

    assert env.run(three) == [1, 2, 3]


def test_equal_parallel_calls_are_steps_of_their_own(env: Environment) -> None:
    ticks: list[int] = []

    @step
    async def tick(number: int) -> int:
        ticks.append(number)
        return len(ticks)

    @workflow
    async def three() -> list[int]:
        done = list(await asyncio.gather(tick(7), tick(7), tick(7)))
        await sleep("1s")
        return sorted(done)

    run = env.start(three)
    env.run_until_idle()
    assert env.run_to_end(run) == [1, 2, 3]
    assert ticks == [7, 7, 7]


def test_a_step_that_has_ended_leaves_nothing_to_the_collector(env: Environment) -> None:
    def entries() -> int:
        return sum(isinstance(each, StepEntry) for each in gc.get_objects())

    @step
    async def counted() -> int:
        await asyncio.sleep(0)
        return entries()

    @workflow
    async def three() -> list[int]:
        return [await counted(), await counted(), await counted()]

    gc.collect()
    gc.disable()
    try:
        before = entries()
        assert env.run(three) == [before + 1] * 3
    finally:
        gc.enable()


def test_bare_and_called_decorators_register_alike(env: Environment) -> None:
    @step
    async def bare() -> str:
        return "bare"

    @step()
    async def called() -> str:
        return "called"

    @workflow()
    async def both() -> list[str]:
        return [await bare(), await called()]

    assert env.run(both) == ["bare", "called"]


def test_a_second_definition_of_a_name_is_refused() -> None:
    @step(name="charge")
    async def one() -> None: ...

    with pytest.raises(DefinitionError, match="defined twice"):

        @step(name="charge")
        async def other() -> None: ...


def test_outside_a_run_a_step_is_a_plain_function() -> None:
    @step
    async def double(number: int) -> int:
        return number * 2

    @step
    def triple(number: int) -> int:
        return number * 3

    assert asyncio.run(double(4)) == 8
    assert triple(4) == 12


def test_inside_a_step_another_step_is_a_plain_function(env: Environment) -> None:
    @step
    async def inner() -> str:
        return "inner"

    @step
    async def outer() -> str:
        return "outer of " + await inner()

    @workflow
    async def nested() -> str:
        return await outer()

    run = env.start(nested)
    env.run_until_idle()
    assert env.result(run) == "outer of inner"
    assert [event.step for event in found(env, run, "StepCompleted")] == ["outer:1"]


def test_a_step_knows_its_run_its_try_and_its_key(env: Environment) -> None:
    seen: list[dict[str, Any]] = []

    @step(retry=RetryPolicy(initial="1s", jitter="none"))
    async def look() -> None:
        seen.append(
            {
                "run": current.run_id,
                "step": current.step_id,
                "attempt": current.attempt,
                "entry": current.entry,
                "deadline": current.deadline,
                "cancelled": current.cancelled,
                "key": current.idempotency_key,
            }
        )
        if current.attempt == 1:
            raise Declined

    @workflow
    async def flow() -> None:
        await look()

    run = env.start(flow)
    env.run_to_end(run)
    always = {
        "run": run.id,
        "step": "look:1",
        "entry": 1,
        "deadline": None,
        "cancelled": False,
        "key": f"{run.id}/look:1",
    }
    assert seen == [always | {"attempt": 1}, always | {"attempt": 2}]


def test_a_def_step_knows_the_same(env: Environment) -> None:
    @step(timeout="1h")
    def look() -> list[Any]:
        assert current.deadline is not None
        return [current.attempt, current.idempotency_key, current.cancelled]

    @workflow
    def flow() -> list[Any]:
        return look()

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [1, f"{run.id}/look:1", False]


@pytest.mark.parametrize(
    "name", ["attempt", "entry", "deadline", "cancelled", "idempotency_key", "step_id", "run_id"]
)
def test_outside_a_step_nothing_is_known_of_it(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        getattr(current, name)


def test_a_failed_step_is_told_alike_on_every_pass(env: Environment) -> None:
    seen: list[tuple[Any, ...]] = []

    @step(retry=ONCE)
    async def charge() -> None:
        try:
            raise KeyError("account")
        except KeyError as missing:
            raise Declined("no money") from missing

    @workflow
    async def flow() -> str:
        try:
            await charge()
        except StepFailed as failed:
            seen.append(
                (
                    type(failed),
                    failed.step,
                    failed.name,
                    failed.attempts,
                    failed.type,
                    failed.message,
                    failed.cause,
                    str(failed),
                )
            )
        await sleep("1h")
        return "done"

    run = env.start(flow)
    assert env.run_to_end(run) == "done"
    assert len(seen) == 2
    assert seen[0] == seen[1]
    kind, identity, name, attempts, type_, message, cause, _ = seen[0]
    assert (kind, identity, name, attempts) == (StepFailed, "charge:1", "charge", 1)
    assert type_ == f"{__name__}.Declined"
    assert message == "no money"
    assert cause.type == "KeyError"


def test_a_workflow_branches_by_the_type_of_the_error(env: Environment) -> None:
    @step(retry=ONCE)
    async def parse(text: str) -> int:
        return int(text)

    @workflow
    async def flow(text: str) -> int:
        try:
            return await parse(text)
        except StepFailed as failed:
            if failed.type == "ValueError":
                return -1
            raise

    assert env.run(flow, "12") == 12
    assert env.run(flow, "twelve") == -1


def test_a_failure_nobody_catches_fails_the_run_with_its_cause(env: Environment) -> None:
    @step(retry=ONCE)
    async def charge() -> None:
        raise Declined("no money")

    @workflow
    async def flow() -> None:
        await charge()

    run = env.start(flow)
    env.run_until_idle()
    with pytest.raises(RunFailed) as failed:
        env.result(run)
    assert failed.value.failure.type == "stepwell.errors.StepFailed"
    assert failed.value.failure.cause is not None
    assert failed.value.failure.cause.type == f"{__name__}.Declined"


def test_a_recorded_step_never_runs_again(env: Environment) -> None:
    runs: list[str] = []

    @step
    async def note(what: str) -> str:
        runs.append(what)
        return what

    @workflow
    async def flow() -> str:
        await note("first")
        await sleep("1h")
        await note("second")
        await sleep("1h")
        return await note("third")

    run = env.start(flow)
    assert env.run_to_end(run) == "third"
    assert runs == ["first", "second", "third"]


def test_a_crash_anywhere_leaves_the_same_history() -> None:
    @step
    async def add(left: int, right: int) -> int:
        return left + right

    @workflow
    async def flow() -> int:
        first, second = await asyncio.gather(add(1, 2), add(3, 4))
        await sleep("1m")
        return await add(first, second)

    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        runs.append(env.start(flow))
        env.advance("1h")

    histories = []
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == 10
        said = essence(env, runs[-1])
        histories.append((sorted(said[1:3], key=str), said[:1], said[3:]))
    assert len(histories) > 10
    assert all(history == histories[0] for history in histories)


def test_a_step_whose_process_always_dies_is_given_up(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=2))
    async def fatal() -> None:
        env.crash_at(1)

    @workflow
    async def flow() -> str:
        try:
            await fatal()
        except StepInterrupted as interrupted:
            return f"{interrupted.name} died {interrupted.attempts} times"
        return "survived"

    assert env.run(flow) == "fatal died 2 times"


def test_arguments_that_do_not_fit_fail_without_a_retry(env: Environment) -> None:
    @step
    async def double(number: int) -> int:
        return number * 2

    @workflow
    async def flow() -> str:
        try:
            await double("many")  # type: ignore[arg-type]
        except PayloadError as error:
            return f"{error.owner} {error.path}"
        return "accepted"

    assert env.run(flow) == "step 'double' $.number"


def test_the_wrong_colour_is_a_named_error(env: Environment) -> None:
    @step
    def plain() -> int:
        return 1

    @workflow
    async def wrong() -> int:
        return plain()

    @workflow
    async def right() -> int:
        return await plain.aio()

    @workflow
    def blocking() -> int:
        return plain()

    run = env.start(wrong)
    env.run_until_idle()
    with pytest.raises(RunFailed, match="aio"):
        env.result(run)
    assert env.run(right) == 1
    assert env.run(blocking) == 1
