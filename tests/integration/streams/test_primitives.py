"""All that works in a workflow works in a stream step: recorded for its signal, asked for once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from stepwell import (
    RetryPolicy,
    current,
    emit,
    get_checkpoint,
    get_current_signal,
    hook,
    now,
    patched,
    saga,
    save_checkpoint,
    set_attributes,
    set_result,
    shield,
    sleep,
    start_child,
    step,
    step_hook,
    stream_step,
    stream_workflow,
    terminate,
    uuid4,
    workflow,
)
from stepwell.streams import acknowledge_inbox_signal, poll_inbox
from stepwell.testing import Environment
from tests.integration.streams.given import begin, events, post, send, standing, subscription

Seen = list[Any]
QUICK = RetryPolicy(max_attempts=3, initial="10s", jitter="none")


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream without a step so far."""

    @stream_workflow
    async def bench() -> None: ...

    return bench


@step(name="streams.saw")
async def saw(piece: int) -> int:
    return piece * 10


@step(name="streams.saw_away", dispatch="worker")
async def saw_away(piece: int) -> int:
    return piece * 10


@workflow(name="streams.errand")
async def errand(piece: int) -> int:
    await sleep("1h")
    return await saw(piece)


def on_each(stream: Any, do: Any, *, retry: RetryPolicy | None = None) -> Seen:
    """A step that does this for each signal; what it gave is in the list, by the signal."""
    given: Seen = []

    @stream_step(stream=stream, signals=["piece"], retry=retry, name="work")
    async def work() -> None:
        signal = await get_current_signal()
        if signal is not None:
            done = await do(signal.sequence)
            kept = (await get_checkpoint()) or []
            await save_checkpoint([*kept, done])
            given.append(done)

    return given


def handled(env: Environment) -> tuple[int, int]:
    found = subscription(env, "bench", "work")
    return found.handled, found.parked


def test_steps_are_recorded_for_their_signal(stepwell_env: Environment, stream: Any) -> None:
    given = on_each(stream, saw)
    begin(stepwell_env, stream)
    for _ in range(3):
        send(stepwell_env, "bench", "piece")
    assert given == [10, 20, 30]
    run_id = subscription(stepwell_env, "bench", "work").run_id
    ids = [each.step for each in events(stepwell_env, run_id, "StepCompleted")]
    assert ids == [f"s{n}/streams.saw:1" for n in (1, 2, 3)]


@pytest.mark.parametrize("how", ["dispatched", "map", "dispatched map", "gather"])
def test_steps_run_beside_each_other(stepwell_env: Environment, stream: Any, how: str) -> None:
    async def do(number: int) -> Any:
        if how == "dispatched":
            return await saw_away(number)
        if how == "map":
            return await saw.map([number, number])
        if how == "dispatched map":
            return await saw_away.map([number, number])
        return await asyncio.gather(saw(number), saw(number + 1))

    given = on_each(stream, do)
    begin(stepwell_env, stream)
    for _ in range(3):
        post(stepwell_env, "bench", "piece")
    stepwell_env.run_until_idle()
    stepwell_env.advance("1m")
    assert handled(stepwell_env) == (3, 0)
    assert len({str(each) for each in given}) == 3


def test_a_sleep_holds_later_signals(stepwell_env: Environment, stream: Any) -> None:
    async def do(number: int) -> float:
        before = now()
        await sleep("1h")
        return (now() - before).total_seconds()

    given = on_each(stream, do)
    begin(stepwell_env, stream)
    for _ in range(3):
        send(stepwell_env, "bench", "piece")
    assert given == []
    assert subscription(stepwell_env, "bench", "work").status == "running"
    stepwell_env.advance("1h")
    assert handled(stepwell_env) == (1, 0)
    stepwell_env.advance("2h")
    assert given == [3600.0] * 3


def test_hooks_and_step_hooks_are_each_signals_own(stepwell_env: Environment, stream: Any) -> None:
    @step(name="streams.asks_saw")
    async def asks() -> Any:
        return await step_hook("inside")

    async def do(number: int) -> Any:
        return [await hook("outside"), await asks()]

    given = on_each(stream, do)
    begin(stepwell_env, stream)
    for _ in range(2):
        send(stepwell_env, "bench", "piece")
    answers = iter(range(1, 5))
    while questions := stepwell_env.hooks():
        [question] = questions
        stepwell_env.resume_hook(question.token, next(answers))
    assert given == [[1, 2], [3, 4]]


def test_children_are_each_signals_own(stepwell_env: Environment, stream: Any) -> None:
    async def do(number: int) -> int:
        return await start_child(errand, number)

    given = on_each(stream, do)
    begin(stepwell_env, stream)
    for _ in range(2):
        send(stepwell_env, "bench", "piece")
    stepwell_env.advance("1h")
    assert given == [10]
    stepwell_env.advance("1h")
    assert given == [10, 20]


def test_a_child_that_is_left_open_ends_with_its_signal(
    stepwell_env: Environment, stream: Any
) -> None:
    runs: Seen = []

    async def do(number: int) -> None:
        handle = await start_child.with_options(wait=False)(errand, number)
        runs.append(handle.run_id)

    on_each(stream, do)
    begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    header = stepwell_env.wait_for(stepwell_env.client.get(runs[-1]))
    assert header.status == "CANCELLED"
    assert handled(stepwell_env) == (1, 0)


def test_what_succeeded_is_kept_over_retries(stepwell_env: Environment, stream: Any) -> None:
    made: Seen = []
    ids: Seen = []

    @step(name="streams.counts_saw")
    async def counts() -> int:
        made.append(1)
        return len(made)

    async def do(number: int) -> int:
        found = await counts()
        ids.append(str(uuid4()))
        await sleep("1m")
        if set(ids) and len(tries) < 2:
            tries.append(1)
            raise ValueError("blunt")
        return found

    tries: Seen = []
    given = on_each(stream, do, retry=QUICK)
    begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    stepwell_env.advance("1h")
    assert (given, made, len(tries)) == ([1], [1], 2)
    assert len(set(ids)) == 1


def test_a_sleep_after_a_retry_is_as_long_as_it_says(
    stepwell_env: Environment, stream: Any
) -> None:
    tries: Seen = []

    async def do(number: int) -> None:
        await saw(number)
        if not tries:
            tries.append(1)
            raise ValueError("blunt")
        await sleep("15s")

    on_each(stream, do, retry=QUICK)
    begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    stepwell_env.advance("24s")
    assert handled(stepwell_env) == (0, 0)
    stepwell_env.advance("1s")
    assert handled(stepwell_env) == (1, 0)


def test_a_saga_of_a_failed_call_is_undone(stepwell_env: Environment, stream: Any) -> None:
    log: Seen = []

    @step(name="streams.unglue")
    async def unglue(result: int, piece: int) -> None:
        log.append(("unglued", piece))

    @step(name="streams.glue", compensate=unglue)
    async def glue(piece: int) -> int:
        log.append(("glued", piece))
        return piece

    async def do(number: int) -> None:
        async with saga():
            await glue(number)
            raise ValueError("it broke")

    on_each(stream, do, retry=RetryPolicy(max_attempts=1))
    begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    assert log == [("glued", 1), ("unglued", 1)]
    assert handled(stepwell_env) == (0, 1)


def test_patches_attributes_shields_and_the_logger(
    stepwell_env: Environment, stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def do(number: int) -> bool:
        set_attributes({"pieces": number})
        current.logger.info("piece %d", number)
        async with shield():
            await saw(number)
        return patched("new-saw")

    given = on_each(stream, do)
    begin(stepwell_env, stream)
    for _ in range(2):
        send(stepwell_env, "bench", "piece")
    assert given == [True, True]
    said = [record.getMessage() for record in caplog.records if "piece" in record.getMessage()]
    assert said == ["piece 1", "piece 2"]
    header = stepwell_env.wait_for(
        stepwell_env.client.get(subscription(stepwell_env, "bench", "work").run_id)
    )
    assert header.attributes == '{"pieces":2}'


def test_what_waits_can_be_looked_at_and_taken_out_of_its_turn(
    stepwell_env: Environment, stream: Any
) -> None:
    calls: Seen = []
    looks: Seen = []

    @stream_step(stream=stream, signals=["piece", "stop"])
    async def work() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        calls.append(signal.sequence)
        if signal.sequence == 1:
            await hook("go")
            found = await poll_inbox()
            stops = await poll_inbox(["stop"])
            looks.append(([each.sequence for each in found], [each.sequence for each in stops]))
            await acknowledge_inbox_signal(stops[0].signal_id)
            await sleep("1m")

    begin(stepwell_env, stream)
    for kind in ("piece", "piece", "stop", "piece"):
        send(stepwell_env, "bench", kind)
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, {})
    send(stepwell_env, "bench", "piece")
    stepwell_env.advance("1m")
    assert set(map(str, looks)) == {"([2, 3, 4], [3])"}, "the same on every replay"
    assert [each for each in calls if each != 1] == [2, 4, 5]
    found = subscription(stepwell_env, "bench", "work")
    assert (found.handled, found.cursor, found.lag) == (5, 5, 0)


def test_what_was_acknowledged_comes_again_when_the_call_fails(
    stepwell_env: Environment, stream: Any
) -> None:
    calls: Seen = []

    @stream_step(stream=stream, signals=["piece"], retry=RetryPolicy(max_attempts=1))
    async def work() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        calls.append(signal.sequence)
        if signal.sequence == 1:
            for each in await poll_inbox():
                await acknowledge_inbox_signal(each.signal_id)
            raise ValueError("blunt")

    begin(stepwell_env, stream)
    for _ in range(3):
        post(stepwell_env, "bench", "piece")
    stepwell_env.run_until_idle()
    assert [each for each in calls if each != 1] == [2, 3]
    assert handled(stepwell_env) == (2, 1)


def test_only_what_was_shown_can_be_acknowledged(stepwell_env: Environment, stream: Any) -> None:
    async def do(number: int) -> None:
        await acknowledge_inbox_signal("sig_unseen")

    on_each(stream, do, retry=RetryPolicy(max_attempts=1))
    begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    [left] = stepwell_env.wait_for(stepwell_env.client.parked_signals("bench", "work"))
    assert "has not shown" in left.error.message


def test_code_that_changed_for_a_signal_under_way_blocks_until_it_fits(
    stepwell_env: Environment, stream: Any
) -> None:
    code: Seen = ["old"]

    async def do(number: int) -> str:
        if code[-1] == "new":
            await hook("other")
        await saw(number)
        await hook("go")
        return str(code[-1])

    given = on_each(stream, do)
    begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    code.append("new")
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, {})
    assert subscription(stepwell_env, "bench", "work").attention == "BLOCKED"
    assert given == []
    code.append("old")
    run_id = subscription(stepwell_env, "bench", "work").run_id
    stepwell_env.wait_for(stepwell_env.client.wake(run_id))
    stepwell_env.run_until_idle()
    assert given == ["old"]


def test_a_step_that_waits_for_nothing_that_can_come_fails(
    stepwell_env: Environment, stream: Any
) -> None:
    async def do(number: int) -> None:
        await asyncio.Event().wait()

    on_each(stream, do, retry=RetryPolicy(max_attempts=1))
    begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    assert handled(stepwell_env) == (0, 1)


def test_a_call_can_end_its_stream_with_something_left_open(
    stepwell_env: Environment, stream: Any
) -> None:
    @stream_step(stream=stream, signals=["piece"])
    async def work() -> None:
        if await get_current_signal() is None:
            return
        ringing = asyncio.create_task(hook("never"))
        await saw(1)
        ringing.cancel()
        await emit("other", "ended")
        await set_result("ended")
        await terminate()

    run = begin(stepwell_env, stream)
    send(stepwell_env, "bench", "piece")
    assert stepwell_env.result(run).get_result("work") == "ended"
    assert stepwell_env.hooks() == ()
    assert standing(stepwell_env, "other").last == 1
