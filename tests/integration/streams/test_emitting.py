"""Where signals can be emitted, to which stream run they go, and that each is sent once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest

from stepwell import (
    RetryPolicy,
    emit,
    get_checkpoint,
    get_current_signal,
    poll_inbox,
    run_stream_workflow,
    save_checkpoint,
    schedule_signal,
    set_result,
    sleep,
    step,
    step_hook,
    stream_step,
    stream_workflow,
    terminate,
    workflow,
)
from stepwell.errors import PayloadError, RunFailed, SignalRejected, StepFailed, UsageError
from stepwell.testing import Environment
from tests.integration.streams.given import begin, post, send, standing

Seen = list[Any]


def sent(env: Environment, stream: str, run: str | None = None) -> list[Any]:
    """The signals of a stream run: their types and payloads."""
    found = env.wait_for(env.client.signals(stream, stream_run_id=run))
    return [(signal.signal_type, signal.payload) for signal in found]


@step(name="streams.tells")
async def tells(number: int) -> int:
    await emit("board", "told", {"by": number})
    return number


@step(name="streams.tells_away", dispatch="worker")
async def tells_away(number: int) -> int:
    await emit("board", "told", {"by": number})
    return number


@step(name="streams.tells_plainly")
def tells_plainly(number: int) -> int:
    emit("board", "told", {"by": number})
    return number


def test_a_workflow_emits_to_the_shared_run_or_the_one_that_it_names(
    stepwell_env: Environment,
) -> None:
    @workflow(name="streams.emits")
    async def emits() -> str:
        first = await emit("board", "told", {"n": 1}, metadata={"who": "me"})
        await emit("board", "told", {"n": 2}, stream_run_id="mine")
        return str(first.signal_id)

    run = stepwell_env.start(emits)
    stepwell_env.run_until_idle()
    [shared] = stepwell_env.wait_for(stepwell_env.client.signals("board"))
    assert (shared.payload, shared.sequence, shared.metadata) == ({"n": 1}, 1, {"who": "me"})
    assert shared.source_run_id == run.id
    assert shared.signal_id == stepwell_env.result(run)
    assert sent(stepwell_env, "board", "mine") == [("told", {"n": 2})]


def test_the_body_and_the_lifecycle_and_their_steps_emit_to_their_own_run(
    stepwell_env: Environment,
) -> None:
    @stream_workflow
    async def board() -> None:
        await emit("board", "from.body")
        await tells(1)

    @stream_step(stream=board, signals=["from.body", "told"])
    async def echo() -> None:
        signal = await get_current_signal()
        if signal is not None and signal.signal_type == "from.body":
            await emit("other", "echo")
            await emit("other", "echo", {"to": "x"}, stream_run_id="x")
            await tells(2)

    begin(stepwell_env, board, run="r")
    assert sorted(sent(stepwell_env, "board", "r"), key=str) == [
        ("from.body", {}),
        ("told", {"by": 1}),
        ("told", {"by": 2}),
    ]
    assert sent(stepwell_env, "other", "r") == [("echo", {})]
    assert sent(stepwell_env, "other", "x") == [("echo", {"to": "x"})]
    assert sent(stepwell_env, "board") == []
    [echoed] = stepwell_env.wait_for(stepwell_env.client.signals("other", stream_run_id="r"))
    subscriptions = standing(stepwell_env, "board", "r").subscriptions
    assert echoed.source_run_id == subscriptions[0].run_id


@pytest.mark.parametrize("how", ["map", "away", "dispatched map", "plain"])
def test_steps_of_every_kind_emit(stepwell_env: Environment, how: str) -> None:
    @workflow(name="streams.asks_steps")
    async def asks_steps() -> None:
        if how == "map":
            await tells.map([1, 2, 3])
        elif how == "away":
            await asyncio.gather(*(tells_away(n) for n in (1, 2, 3)))
        elif how == "dispatched map":
            await tells_away.map([1, 2, 3])
        else:
            for number in (1, 2, 3):
                await tells_plainly.aio(number)

    run = stepwell_env.start(asks_steps)
    stepwell_env.run_to_end(run)
    assert sorted(payload["by"] for _, payload in sent(stepwell_env, "board")) == [1, 2, 3]
    [*found] = stepwell_env.wait_for(stepwell_env.client.signals("board"))
    assert {signal.source_run_id for signal in found} == {run.id}


def test_a_step_that_is_tried_again_emits_each_signal_once(stepwell_env: Environment) -> None:
    tries: Seen = []

    @step(name="streams.tries", retry=RetryPolicy(max_attempts=3))
    async def tries_step() -> None:
        tries.append(1)
        await emit("board", "first")
        if len(tries) < 3:
            raise ValueError("again")
        await emit("board", "second")

    @workflow(name="streams.tries_workflow")
    async def tries_workflow() -> None:
        await tries_step()

    stepwell_env.run_to_end(stepwell_env.start(tries_workflow))
    assert [kind for kind, _ in sent(stepwell_env, "board")] == ["first", "second"]


def test_a_step_that_waits_in_its_middle_emits_each_signal_once(stepwell_env: Environment) -> None:
    @step(name="streams.asks_inside")
    async def asks_inside() -> None:
        await emit("board", "before")
        await step_hook("go")
        await emit("board", "after")

    @workflow(name="streams.asks_inside_workflow")
    async def asks_inside_workflow() -> None:
        await asks_inside()

    run = stepwell_env.start(asks_inside_workflow)
    stepwell_env.run_until_idle()
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, {})
    stepwell_env.result(run)
    assert [kind for kind, _ in sent(stepwell_env, "board")] == ["before", "after"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_dies_in_between_sends_it_once(when: Literal["before", "after"]) -> None:
    for call in range(1, 60):
        with Environment() as env:

            @workflow(name=f"streams.dies_{when}_{call}")
            async def dies() -> None:
                await emit("board", "one")
                await sleep("1s")
                await emit("board", "two")

            env.crash_at(call, when)
            env.run_to_end(env.start(dies))
            assert [kind for kind, _ in sent(env, "board")] == ["one", "two"], call
            if not env.crashes:
                assert call > 8
                return
    raise AssertionError("there is no end of calls")


def test_a_retried_run_does_not_emit_again(stepwell_env: Environment) -> None:
    tries: Seen = []

    @workflow(name="streams.retried")
    async def retried() -> None:
        await emit("board", "one")
        await tells(1)
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("again")

    run = stepwell_env.start(retried)
    stepwell_env.run_until_idle()
    stepwell_env.retry(run)
    stepwell_env.result(run)
    assert [kind for kind, _ in sent(stepwell_env, "board")] == ["one", "told"]


def test_a_key_makes_one_signal_of_two_calls(stepwell_env: Environment) -> None:
    @workflow(name="streams.keyed")
    async def keyed() -> tuple[str, str]:
        first = await emit("board", "one", idempotency_key="k")
        second = await emit("board", "one", idempotency_key="k")
        return first.signal_id, second.signal_id

    first, second = stepwell_env.run(keyed)
    assert first == second
    assert len(sent(stepwell_env, "board")) == 1


def test_branches_emit_in_the_order_of_their_calls(stepwell_env: Environment) -> None:
    @workflow(name="streams.branches")
    async def branches() -> None:
        async def one(number: int) -> None:
            await emit("board", "n", {"n": number})
            await tells(number)
            await emit("board", "m", {"m": number})

        await asyncio.gather(*(one(number) for number in range(3)))

    stepwell_env.run(branches)
    found = [payload["n"] for kind, payload in sent(stepwell_env, "board") if kind == "n"]
    assert found == [0, 1, 2]
    assert len(sent(stepwell_env, "board")) == 9


def test_one_stream_hands_on_to_another(stepwell_env: Environment) -> None:
    done: Seen = []

    @stream_workflow
    async def kitchen() -> None: ...

    @stream_workflow
    async def waiters() -> None: ...

    @stream_step(stream=kitchen, signals=["dish.ordered"])
    async def cook() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        await emit("waiters", "dish.ready", {"dish": signal.payload["dish"]})
        await terminate()

    @stream_step(stream=waiters, signals=["dish.ready"])
    async def serve() -> None:
        signal = await get_current_signal()
        if signal is not None:
            done.append((signal.payload["dish"], signal.stream_run_id))
            await terminate()

    runs = [begin(stepwell_env, each, run="table 4") for each in (kitchen, waiters)]
    send(stepwell_env, "kitchen", "dish.ordered", {"dish": "soup"}, stream_run_id="table 4")
    assert done == [("soup", "table 4")]
    assert [stepwell_env.result(run).status for run in runs] == ["completed", "completed"]


def test_a_step_that_emits_to_itself_goes_on_until_it_ends(stepwell_env: Environment) -> None:
    @stream_workflow
    async def countdown() -> None:
        await emit("countdown", "tick")

    @stream_step(stream=countdown, signals=["tick"])
    async def count() -> None:
        if await get_current_signal() is None:
            return
        left = (await get_checkpoint() or {"left": 30})["left"] - 1
        await save_checkpoint({"left": left})
        if left:
            await emit("countdown", "tick")
            return
        await set_result("lift-off")
        await terminate()

    run = begin(stepwell_env, countdown)
    assert stepwell_env.result(run).get_result("count") == "lift-off"
    assert standing(stepwell_env, "countdown").last == 30


def test_large_payloads_are_carried_beside_the_rows(stepwell_env: Environment) -> None:
    large = "x" * 200_000
    seen: Seen = []

    @stream_workflow
    async def freight() -> None:
        await emit("freight", "box", {"in": large}, metadata={"label": large})

    @stream_step(stream=freight, signals=["box"])
    async def unload() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        seen.append(signal.payload["in"] == large)
        known = await get_checkpoint()
        seen.append(known is None or known == {"kept": large})
        await save_checkpoint({"kept": large})
        await set_result({"kept": large})
        if signal.sequence == 2:
            await terminate()

    run = begin(stepwell_env, freight)
    send(stepwell_env, "freight", "box", {"in": large})
    assert all(seen)
    assert stepwell_env.result(run).get_result("unload") == {"kept": large}
    [first, _] = stepwell_env.wait_for(stepwell_env.client.signals("freight"))
    assert first.metadata == {"label": large}


def test_what_cannot_be_carried_or_named_is_refused(stepwell_env: Environment) -> None:
    errors: Seen = []

    @workflow(name="streams.refuses")
    async def refuses() -> None:
        for args in (("board", "x", object()), ("", "x"), ("board", "")):
            try:
                await emit(*args)
            except Exception as error:
                errors.append(type(error).__name__)
        try:
            await schedule_signal("board", "x")
        except UsageError:
            errors.append("UsageError")

    stepwell_env.run(refuses)
    assert errors == [PayloadError.__name__, "DefinitionError", "DefinitionError", "UsageError"]
    with pytest.raises(PayloadError):
        post(stepwell_env, "board", "x", object())
    assert sent(stepwell_env, "board") == []


@pytest.mark.parametrize("inside", ["workflow", "step"])
def test_scheduled_signals_come_at_their_time(stepwell_env: Environment, inside: str) -> None:
    @step(name="streams.schedules")
    async def schedules() -> None:
        await schedule_signal("board", "later", {"n": 1}, delay="2h")

    @workflow(name="streams.schedules_workflow")
    async def schedules_workflow() -> None:
        if inside == "step":
            await schedules()
        else:
            await schedule_signal("board", "later", {"n": 1}, delay_seconds=7200)

    stepwell_env.run(schedules_workflow)
    stepwell_env.advance("119m")
    assert sent(stepwell_env, "board") == []
    stepwell_env.advance("1m")
    assert sent(stepwell_env, "board") == [("later", {"n": 1})]


def test_a_scheduled_signal_can_be_taken_back(stepwell_env: Environment) -> None:
    client = stepwell_env.client
    kept = stepwell_env.wait_for(client.schedule_signal("board", "kept", when="1h"))
    gone = stepwell_env.wait_for(client.schedule_signal("board", "gone", when="1h"))
    stepwell_env.wait_for(client.cancel_signal("board", gone.signal_id))
    stepwell_env.advance("2h")
    assert sent(stepwell_env, "board") == [("kept", {})]
    [found] = stepwell_env.wait_for(client.signals("board"))
    assert found.signal_id == kept.signal_id


def test_a_payload_that_does_not_fit_is_refused_before_anything_is_sent(
    stepwell_env: Environment,
) -> None:
    errors: Seen = []

    @stream_workflow
    async def scales() -> None:
        try:
            await emit("scales", "weighed", {"grams": "many"})
        except SignalRejected as error:
            errors.append((error.step, error.signal_type))

    @stream_step(stream=scales, signals={"weighed": dict[str, int]})
    async def read_scales() -> None: ...

    begin(stepwell_env, scales)
    with pytest.raises(SignalRejected):
        stepwell_env.wait_for(stepwell_env.client.emit("scales", "weighed", {"grams": "many"}))
    assert errors == [("read_scales", "weighed")] or set(errors) == {("read_scales", "weighed")}
    assert sent(stepwell_env, "scales") == []


def test_a_retried_run_sends_what_it_emits_otherwise_and_nothing_twice(
    stepwell_env: Environment,
) -> None:
    told = {"n": 1}

    @step(name="streams.breaks", retry=RetryPolicy(max_attempts=1))
    async def breaks() -> None:
        if told["n"] == 1:
            raise RuntimeError("not yet")

    @workflow(name="streams.emits_again")
    async def emits_again() -> None:
        await emit("board", "same", {"n": 0})
        await emit("board", "mended", dict(told))
        await breaks()

    run = stepwell_env.start(emits_again)
    stepwell_env.run_until_idle()
    told["n"] = 2
    stepwell_env.retry(run)
    assert stepwell_env.result(run) is None
    stepwell_env.advance("1h")
    assert sent(stepwell_env, "board") == [
        ("same", {"n": 0}),
        ("mended", {"n": 1}),
        ("mended", {"n": 2}),
    ]


@pytest.mark.parametrize(
    "word", ["emit", "schedule_signal", "get_checkpoint", "get_current_signal", "poll_inbox"]
)
def test_what_is_never_awaited_is_told_with_its_place(stepwell_env: Environment, word: str) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "emit": lambda: emit("streams.forgot", "told"),
        "schedule_signal": lambda: schedule_signal("streams.forgot", "told", delay="1h"),
        "get_checkpoint": get_checkpoint,
        "get_current_signal": get_current_signal,
        "poll_inbox": poll_inbox,
    }

    @stream_workflow(name="streams.forgot")
    async def forgot() -> None: ...

    @stream_step(stream=forgot, signals=["told"], retry=RetryPolicy(max_attempts=1))
    async def forgetful() -> None:
        calls[word]()

    begin(stepwell_env, forgot)
    [parked] = stepwell_env.wait_for(
        stepwell_env.client.parked_signals("streams.forgot", "forgetful")
    )
    assert f"{word!r} was called in" in parked.error.message
    assert f"({__file__}:" in parked.error.message
    assert f"write await {word}(...)" in parked.error.message


def test_a_step_that_never_awaits_is_told_what_it_called(stepwell_env: Environment) -> None:
    @step(name="streams.forgets", retry=RetryPolicy(max_attempts=1))
    async def forgets(later: bool) -> None:
        if later:
            schedule_signal("streams.never", "told", delay="1h")
        else:
            emit("streams.never", "told")

    @workflow(name="streams.forgets_twice")
    async def flow() -> list[str]:
        told = []
        for later in (False, True):
            try:
                await forgets(later)
            except StepFailed as failed:
                told.append(failed.message)
        return told

    now, later = stepwell_env.run(flow)
    assert " emit(...) was called and never awaited" in now
    assert " schedule_signal(...) was called and never awaited" in later


def test_a_stream_run_that_nobody_awaits_fails_its_workflow_by_name(
    stepwell_env: Environment,
) -> None:
    @stream_workflow(name="unawaited")
    async def unawaited() -> None: ...

    @workflow(name="streams.forgets")
    async def forgets() -> None:
        run_stream_workflow(unawaited, stream_run_id="one")

    run = stepwell_env.start(forgets)
    stepwell_env.run_until_idle()
    with pytest.raises(RunFailed, match=r"run_stream_workflow.*never awaited"):
        stepwell_env.result(run)
    assert standing(stepwell_env, "unawaited", "one").status is None


def test_metadata_that_is_no_object_is_refused(stepwell_env: Environment) -> None:
    for metadata in ([1], "x"):
        with pytest.raises(UsageError, match="metadata"):
            post(stepwell_env, "board", "told", metadata=metadata)
