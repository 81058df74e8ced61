"""Where there is much of something: large values, many waits, more `def` steps than threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stepwell import RetryPolicy, StepFailed, sleep, step, workflow
from stepwell.core.records import RunStatus
from stepwell.engine.threads import ThreadPool, in_thread
from stepwell.errors import DefinitionError, UsageError
from stepwell.testing import Environment


def test_values_that_are_long_only_in_bytes_leave_in_commits_of_their_size(
    stepwell_env: Environment,
) -> None:
    @step
    async def smile(number: int) -> str:
        return "\U0001f600" * 2_000

    @workflow
    async def smiles() -> int:
        return len(await asyncio.gather(*(smile(n) for n in range(100))))

    assert stepwell_env.run(smiles) == 100


def test_long_errors_of_many_steps_leave_in_commits_of_their_size(
    stepwell_env: Environment,
) -> None:
    @step(retry=RetryPolicy(max_attempts=1))
    async def complain(number: int) -> None:
        try:
            raise ValueError("\U0001f600" * 3_000)
        except ValueError as error:
            raise LookupError("\U0001f600" * 3_000) from error

    @workflow
    async def complaints() -> int:
        ended = await asyncio.gather(*(complain(n) for n in range(80)), return_exceptions=True)
        return sum(isinstance(each, StepFailed) for each in ended)

    assert stepwell_env.run(complaints) == 80


def test_a_header_shows_the_oldest_of_many_waits_and_counts_the_others() -> None:
    @workflow
    async def naps() -> int:
        return len(await asyncio.gather(*(sleep("1h") for _ in range(2_400))))

    with Environment(unchecked="its history is long, and it is about the header") as env:
        run = env.start(naps)
        env.run_until_idle()
        header = env.get(run)
        assert (len(header.waiting), header.waits_not_shown) == (100, 2_300)
        env.advance("1h")
        assert env.result(run) == 2_400
        assert env.get(run).waits_not_shown == 0


def test_what_a_caller_adds_is_bounded_before_anything_is_sent(stepwell_env: Environment) -> None:
    @workflow
    async def nothing() -> None: ...

    client = stepwell_env.client
    with pytest.raises(DefinitionError, match="key"):
        client.with_options(idempotency_key="k" * 257)
    with pytest.raises(UsageError, match="tags"):
        client.with_options(tags=("t",) * 51)
    with pytest.raises(UsageError, match="tag"):
        client.with_options(tags=("t" * 1_001,))
    run = stepwell_env.start(nothing)
    with pytest.raises(UsageError, match="reason"):
        stepwell_env.cancel(run, "r" * 1_001)


def test_a_def_step_that_waits_for_a_thread_does_not_begin_after_its_timeout(
    stepwell_env: Environment,
) -> None:
    began: list[int] = []
    gate = threading.Event()

    @step(timeout="50ms", retry=RetryPolicy(max_attempts=1))
    def hold(number: int) -> None:
        began.append(number)
        gate.wait(30)

    @workflow
    async def holds() -> int:
        return len(await asyncio.gather(*(hold.aio(n) for n in range(70)), return_exceptions=True))

    assert stepwell_env.run(holds) == 70
    gate.set()
    # Whoever waited for a thread has one now; the last one to come shows that they are through.
    done = threading.Event()
    stepwell_env._engine._pool.submit(done.set)
    assert done.wait(30)
    assert len(began) <= 64


def test_an_abandoned_call_gives_its_thread_back_when_it_returns() -> None:
    async def play() -> None:
        pool = ThreadPool(limit=1)
        gate = threading.Event()
        for _ in range(3):
            stuck = asyncio.create_task(in_thread(pool, lambda: gate.wait(30)))
            await asyncio.sleep(0)
            stuck.cancel()
            await asyncio.wait([stuck])
        assert await in_thread(pool, lambda: "free") == "free"
        gate.set()
        while pool.limit > 1:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_no_start_is_recorded_for_a_step_that_is_not_waited_for_any_more(
    stepwell_env: Environment,
) -> None:
    @step(retry=RetryPolicy(max_attempts=1))
    async def refuse() -> None:
        raise ValueError

    @step
    async def linger() -> None:
        await asyncio.Event().wait()

    @step
    async def follow() -> None: ...

    @workflow
    async def flow() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(linger())
                group.create_task(refuse())
        except* StepFailed:
            pass
        await sleep("1h")
        await follow()

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.crash_at(2)
    stepwell_env.advance("1h")
    assert stepwell_env.crashes == 1
    assert stepwell_env.get(run).status is RunStatus.COMPLETED
    started = [r.event for r in stepwell_env.history(run) if r.event.type == "StepStarted"]
    assert [event.name for event in started] == ["follow"]
