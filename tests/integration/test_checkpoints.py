"""Checkpoints: what a step keeps over retries, suspensions and the death of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import (
    STEP_HOOK_TIMEOUT,
    RetryPolicy,
    StepFailed,
    current,
    delete_step_checkpoint,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.errors import UsageError
from stepwell.testing import Environment
from tests.integration.histories import crashes_of

QUICK = RetryPolicy(initial="1m", jitter="none")


@dataclass(frozen=True)
class Progress:
    page: int
    seen: tuple[str, ...]


class Provider:
    """A payment provider: it charges once per key, and counts how often it was asked."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        self.asked = 0

    async def charge(self, key: str, amount: int) -> str:
        self.asked += 1
        self.charged.setdefault(key, amount)
        return f"receipt for {self.charged[key]}"


def test_it_survives_a_retry(env: Environment) -> None:
    seen: list[Any] = []

    @step(retry=QUICK)
    async def work() -> str:
        seen.append(await load_step_checkpoint())
        await save_step_checkpoint(f"after {current.attempt}")
        if current.attempt < 3:
            raise ConnectionError
        return "done"

    @workflow
    async def flow() -> str:
        return await work()

    assert env.run_to_end(env.start(flow)) == "done"
    assert seen == [None, "after 1", "after 2"]


def test_it_survives_suspension_and_the_death_of_the_process(
    process: Callable[..., AbstractContextManager[Environment]],
) -> None:
    setups: list[str] = []

    @step
    async def work() -> list[Any]:
        state = await load_step_checkpoint(Progress)
        if state is None:
            setups.append("setup")
            state = Progress(1, ("a", "b"))
            await save_step_checkpoint(state)
        answer = await step_hook("q")
        await save_step_checkpoint(Progress(2, (*state.seen, answer)))
        again = await load_step_checkpoint(Progress)
        return [again.page, list(again.seen)]

    @workflow
    async def flow() -> list[Any]:
        return await work()

    with process() as env:
        run = env.start(flow)
        env.run_until_idle()
    with process() as env:
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, "c")
        result = env.wait_for(env.client.result(run.id, timeout=0))
    assert result == [2, ["a", "b", "c"]]
    assert setups == ["setup"]


def test_the_last_one_saved_stands_as_it_was_saved(env: Environment) -> None:
    seen: list[Any] = []

    @step(retry=QUICK)
    async def work() -> None:
        seen.append(await load_step_checkpoint())
        data = {"turns": [1]}
        await save_step_checkpoint({"turns": []})
        await save_step_checkpoint(data)
        data["turns"].append(2)
        if current.attempt == 1:
            raise ConnectionError

    @workflow
    async def flow() -> None:
        await work()

    env.run_to_end(env.start(flow))
    assert seen == [None, {"turns": [1]}]


def test_each_step_has_its_own(env: Environment) -> None:
    @step(retry=QUICK)
    async def work(number: int) -> list[Any]:
        before = await load_step_checkpoint()
        await save_step_checkpoint(number)
        if current.attempt == 1:
            raise ConnectionError
        return [number, before]

    @workflow
    async def flow() -> list[Any]:
        return list(await asyncio.gather(work(1), work(1), work(2), work(2)))

    run = env.start(flow)
    assert env.run_to_end(run) == [[1, 1], [1, 1], [2, 2], [2, 2]]


def test_a_deletion_takes_effect_when_the_step_completes(env: Environment) -> None:
    seen: list[Any] = []

    @step(retry=QUICK)
    async def work() -> list[Any]:
        seen.append(await load_step_checkpoint())
        await save_step_checkpoint("kept")
        await delete_step_checkpoint()
        seen.append(await load_step_checkpoint())
        if current.attempt == 1:
            raise ConnectionError
        await delete_step_checkpoint()
        await save_step_checkpoint("again")
        return [await load_step_checkpoint()]

    @workflow
    async def flow() -> list[Any]:
        return await work()

    assert env.run_to_end(env.start(flow)) == ["again"]
    assert seen == [None, None, "kept", None]


def test_a_crash_after_a_deletion_does_not_start_from_scratch() -> None:
    setups: list[str] = []
    runs: list[Any] = []

    @step
    async def work() -> str:
        state = await load_step_checkpoint()
        if state is None:
            setups.append("setup")
            state = "state"
            await save_step_checkpoint(state)
        answer = await step_hook("q")
        await delete_step_checkpoint()
        return f"{state} {answer}"

    @workflow
    async def flow() -> str:
        return await work()

    def scenario(env: Environment) -> None:
        setups.clear()
        runs.append(env.start(flow))
        env.run_until_idle()
        [waiting] = env.hooks()
        setups.append("answered")
        env.resume_hook(waiting.token, "yes")

    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "state yes"
        assert setups[-1] == "answered"


def test_deleting_none_is_no_error(env: Environment) -> None:
    @step
    async def work() -> str:
        await delete_step_checkpoint()
        return "done"

    @workflow
    async def flow() -> str:
        return await work()

    assert env.run(flow) == "done"


def test_a_value_that_cannot_be_carried_fails_at_once_and_says_where(env: Environment) -> None:
    @step
    async def work() -> None:
        await save_step_checkpoint({"a": [1, object()]})

    @workflow
    async def flow() -> list[Any]:
        try:
            await work()
        except StepFailed as failed:
            return [failed.type, failed.attempts, failed.message]
        return []

    type_, attempts, message = env.run(flow)
    assert (type_, attempts) == ("stepwell.errors.PayloadError", 1)
    assert "checkpoint of step 'work'" in message
    assert "$.a[1]" in message


def test_a_large_one_comes_back_whole(env: Environment) -> None:
    @step
    async def work() -> int:
        state = await load_step_checkpoint()
        if state is None:
            await save_step_checkpoint(["x" * 1000] * 500)
        await step_hook("q")
        return len(state)

    @workflow
    async def flow() -> int:
        return await work()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token)
    assert env.result(run) == 500


@pytest.mark.parametrize(
    "use", [load_step_checkpoint, delete_step_checkpoint, lambda: save_step_checkpoint(1)]
)
def test_it_belongs_to_a_step(env: Environment, use: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match="checkpoint"):
        use()

    @workflow
    async def flow() -> str:
        try:
            await use()
        except UsageError:
            return "refused"
        return "taken"

    assert env.run(flow) == "refused"


def test_what_happens_once_happens_once_under_a_crash_anywhere() -> None:
    provider = Provider()
    runs: list[Any] = []
    credits: list[str] = []

    @step(retry=QUICK)
    async def order(amount: int) -> str:
        state = await load_step_checkpoint()
        if state is None:
            credits.append(current.idempotency_key)
            receipt = await provider.charge(current.idempotency_key, amount)
            state = {"receipt": receipt}
            await save_step_checkpoint(state)
        answer = await step_hook("ship", timeout="24h", on_timeout="return")
        shipped = "kept" if answer is STEP_HOOK_TIMEOUT else "shipped"
        await delete_step_checkpoint()
        return f"{state['receipt']}: {shipped}"

    @workflow
    async def flow() -> str:
        first = await order(100)
        await sleep("1h")
        second = await order(100)
        return f"{first}; {second}"

    def scenario(env: Environment) -> None:
        provider.__init__()  # type: ignore[misc]
        credits.clear()
        runs.append(env.start(flow))
        env.run_until_idle()
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, True)
        env.advance("2d")

    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "receipt for 100: shipped; receipt for 100: kept"
        assert len(provider.charged) == 2
        assert provider.asked - 2 <= env.crashes
        assert len(set(credits)) == 2


def test_a_step_beside_others_can_save_after_a_crash_anywhere() -> None:
    runs: list[Any] = []

    @step
    async def quick(number: int) -> int:
        return number

    @step
    async def slow() -> list[Any]:
        before = await load_step_checkpoint()
        await asyncio.sleep(0)
        await save_step_checkpoint("one")
        await asyncio.sleep(0)
        await save_step_checkpoint("two")
        return [before is None or before in ("one", "two"), await load_step_checkpoint()]

    @workflow
    async def flow() -> list[Any]:
        return list(await asyncio.gather(slow(), *(quick(number) for number in range(4)), slow()))

    def scenario(env: Environment) -> None:
        runs.append(env.start(flow))
        env.advance("1h")

    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == [[True, "two"], 0, 1, 2, 3, [True, "two"]]
