"""Turns and attempts in processes that are ended from outside: `time_left`.

Time passes on the event loop's own clock, which these tests put forward by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import RetryPolicy, StepTimeout, current, hook, sleep, step, workflow
from stepwell.core.messages import Message, StepAttempt
from stepwell.core.records import Millis, RunStatus
from stepwell.engine.attempt import AttemptEnd
from stepwell.engine.endings import TurnEnd
from stepwell.engine.ports import Delivery
from stepwell.testing import Environment
from tests.integration.attempts import received, row, turns_only
from tests.integration.histories import kinds

ONCE = RetryPolicy(max_attempts=1)
AT_ONCE = RetryPolicy(initial=0)
#: What is left in these tests, and how much of it work may take.
LEFT = 120_000
USABLE = 115


class Bounded(Environment):
    """Every turn and attempt has as much time left. `take` lets seconds pass for the event loop."""

    def __init__(self, left: Millis = LEFT) -> None:
        super().__init__(chance=0.5)
        self.left = left
        loop = self._runner.get_loop()
        real, self._ahead = loop.time, 0.0
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    def take(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead += seconds

    async def _turn(self, message: Message, delivery: Delivery) -> TurnEnd:
        return await self._engine.take_turn(
            message,
            message_id=delivery.message_id,
            receive_count=delivery.receive_count,
            time_left=self.left,
        )

    async def _make(self, attempt: StepAttempt, delivery: Delivery) -> AttemptEnd:
        return await self._engine.run_attempt(
            attempt,
            message_id=delivery.message_id,
            receive_count=delivery.receive_count,
            time_left=self.left,
        )


@pytest.fixture
def env() -> Iterator[Bounded]:
    with Bounded() as environment:
        yield environment


async def outlive(env: Bounded) -> None:
    """What a body does that takes longer than its process lives."""
    env.take(USABLE + 1)
    await asyncio.Event().wait()


def what_is_told_of(env: Bounded, late: Any) -> str:
    """What a workflow gets to read of a step that runs out of time."""

    @workflow(name="told")
    async def flow() -> str:
        try:
            await late()
        except StepTimeout as error:
            return error.message
        return ""

    return env.run(flow)


def test_an_inline_step_is_cut_off_before_its_process_ends(env: Bounded) -> None:
    cleaned: list[bool] = []

    @step(retry=ONCE)
    async def endless() -> None:
        try:
            await outlive(env)
        finally:
            cleaned.append(current.cancelled)

    assert what_is_told_of(env, endless) == (
        "the attempt was cut off after 115 s, before its function ended: "
        'declare the step with dispatch="worker"'
    )
    assert cleaned == [True]
    assert env.turns == [TurnEnd.ENDED]


def test_a_dispatched_step_is_cut_off_before_its_process_ends(env: Bounded) -> None:
    @step(dispatch="worker", retry=ONCE)
    async def endless() -> None:
        await outlive(env)

    assert what_is_told_of(env, endless) == (
        "the attempt was cut off after 115 s, before its function ended: "
        "give the function of steps more time, or save checkpoints"
    )


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_a_step_that_was_cut_off_is_tried_again_as_its_policy_says(
    env: Bounded, dispatch: Any
) -> None:
    @step(retry=AT_ONCE, dispatch=dispatch)
    async def twice() -> int:
        if current.attempt == 1:
            await outlive(env)
        return current.attempt

    @workflow
    async def flow() -> int:
        return await twice()

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == 2
    assert "StepRetryScheduled" in kinds(env, run)


def test_a_declared_timeout_that_is_shorter_is_what_is_told(env: Bounded) -> None:
    @step(timeout="10s", retry=ONCE)
    async def slow() -> None:
        env.take(11)
        await asyncio.Event().wait()

    assert what_is_told_of(env, slow) == "the attempt took longer than 10 s"


def test_a_declared_timeout_that_is_longer_is_not_waited_for(env: Bounded) -> None:
    @step(timeout="10m", dispatch="inline", retry=ONCE)
    async def endless() -> None:
        await outlive(env)

    assert "cut off after 115 s" in what_is_told_of(env, endless)


def test_a_claim_holds_no_longer_than_its_process(env: Bounded) -> None:
    entered: list[int] = []

    @step(dispatch="worker", timeout="1h")
    async def away() -> None:
        entered.append(env.clock.now())

    @workflow
    async def flow() -> None:
        await away()

    run = env.start(flow)
    env.run_until_idle()
    standing = row(env, run.id, "away:1")
    assert standing is not None
    assert standing.until == entered[0] + LEFT


def chained(env: Bounded, first: float, second: float, timeout: str) -> Any:
    """Two inline steps that take some seconds each; the second one declares a timeout."""

    @step(name="one", retry=ONCE)
    async def one() -> None:
        env.take(first)

    @step(name="two", timeout=timeout, dispatch="inline", retry=ONCE)
    async def two() -> str:
        env.take(second)
        await asyncio.sleep(0)
        return "done"

    @workflow(name="chained")
    async def flow() -> str:
        await one()
        return await two()

    return flow


def test_a_step_that_would_not_end_in_time_is_left_to_the_next_turn(env: Bounded) -> None:
    run = env.start(chained(env, 50, 70, "80s"))
    env.run_until_idle()
    assert env.result(run) == "done"
    assert env.turns == [TurnEnd.HANDED_OVER, TurnEnd.ENDED]


def test_a_step_that_surely_ends_in_time_is_begun(env: Bounded) -> None:
    assert env.run(chained(env, 50, 59, "60s")) == "done"
    assert env.turns == [TurnEnd.ENDED]


def test_a_step_that_no_turn_has_the_time_for_is_begun_at_once(env: Bounded) -> None:
    assert env.run(chained(env, 50, 10, "10m")) == "done"
    assert env.turns == [TurnEnd.ENDED]


def test_a_slow_replay_does_not_hold_a_step_back_for_ever(env: Bounded) -> None:
    """Each turn takes as long to come to the step, so none would be better than the first."""

    @step(timeout="80s", dispatch="inline", retry=ONCE)
    async def long() -> str:
        return "done"

    @workflow
    async def flow() -> str:
        env.take(60)
        return await long()

    run = env.start(flow)
    for _ in range(20):
        env.take_turn()
    assert env.result(run) == "done"
    assert env.turns == [TurnEnd.ENDED]


def test_a_held_step_waits_for_those_that_are_under_way(env: Bounded) -> None:
    order: list[str] = []

    @step
    async def one(name: str, seconds: float) -> None:
        env.take(seconds)
        for _ in range(20):
            await asyncio.sleep(0)
        order.append(name)

    @step(timeout="80s", dispatch="inline")
    async def long() -> None:
        order.append("long")

    @workflow
    async def flow() -> None:
        async def chain() -> None:
            await one("first", 50)
            await long()

        async def beside() -> None:
            await one("beside", 0)
            await one("more", 0)

        await asyncio.gather(chain(), beside())

    env.run(flow)
    assert order == ["first", "beside", "more", "long"]
    assert env.turns == [TurnEnd.HANDED_OVER, TurnEnd.ENDED]


def test_a_dispatched_step_is_never_held_for_its_timeout(env: Bounded) -> None:
    @step
    async def one() -> None:
        env.take(50)

    @step(timeout="80s")
    async def away() -> str:
        return "done"

    @workflow
    async def flow() -> str:
        await one()
        return await away()

    run = env.start(flow)
    turns_only(env)
    assert env.turns == [TurnEnd.WAITING]
    assert received(env) is not None
    assert env.get(run).waiting[0].kind == "step"


def test_a_turn_begins_no_steps_in_the_last_part_of_its_time(env: Bounded) -> None:
    begun: list[int] = []

    @step
    async def ten(number: int) -> None:
        begun.append(len(env.turns))
        env.take(10)

    @workflow
    async def flow() -> None:
        for number in range(12):
            await ten(number)

    env.run(flow)
    # Three quarters of 115 s are 86 s: the ninth step begins after 80 s, a tenth would after 90 s.
    assert begun == [0] * 9 + [1] * 3
    assert env.turns == [TurnEnd.HANDED_OVER, TurnEnd.ENDED]


def test_a_run_that_is_held_back_still_takes_its_answers(env: Bounded) -> None:
    @step
    async def one() -> None:
        env.take(50)

    @step(timeout="80s", dispatch="inline")
    async def long() -> None: ...

    @workflow
    async def flow() -> Any:
        question = asyncio.create_task(hook("question"))
        nap = asyncio.create_task(sleep("1h"))
        await one()
        await long()
        await nap
        return await question

    run = env.start(flow)
    env.run_until_idle()
    assert env.turns == [TurnEnd.HANDED_OVER, TurnEnd.WAITING]
    env.resume_hook(env.hooks(run)[0].token, 42)
    env.advance("1h")
    assert env.result(run) == 42


@pytest.mark.parametrize("left", [0, 1, 50, 4_999])
def test_however_little_time_is_left_each_turn_begins_something(left: Millis) -> None:
    @step
    async def quick(number: int) -> int:
        return number

    @workflow
    async def flow() -> int:
        return await quick(1) + await quick(2) + await quick(3)

    with Bounded(left) as env:
        run = env.start(flow)
        for _ in range(20):
            env.take_turn()
        assert env.result(run) == 6
        assert len(env.turns) <= 4


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_a_step_that_never_has_the_time_fails_at_last(dispatch: Any) -> None:
    @step(retry=RetryPolicy(max_attempts=3, initial=0), dispatch=dispatch)
    async def slow() -> None:
        await asyncio.Event().wait()

    @workflow
    async def flow() -> int:
        try:
            await slow()
        except StepTimeout as error:
            return error.attempts
        return 0

    with Bounded(1) as env:
        run = env.start(flow)
        for _ in range(40):
            env.take_turn()
        assert env.get(run).status is RunStatus.COMPLETED
        assert env.result(run) == 3
