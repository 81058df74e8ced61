"""What a stream step says of itself: checkpoint, result, end; and `on_signal` before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    StreamStepContext,
    get_checkpoint,
    get_current_signal,
    save_checkpoint,
    set_result,
    step,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
    workflow,
)
from stepwell.core.records import RunStatus
from stepwell.errors import DefinitionError, StepFailed, UsageError
from stepwell.streams import acknowledge_inbox_signal, poll_inbox
from stepwell.testing import Environment
from tests.integration.streams.given import begin, events, send, standing, subscription

Seen = list[Any]


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream without a step so far."""

    @stream_workflow
    async def kiln() -> None: ...

    return kiln


def test_a_step_works_on_one_task_and_ends_with_its_result(
    stepwell_env: Environment, stream: Any
) -> None:
    fired: Seen = []

    @step(name="streams.fire")
    async def fire(pot: str) -> str:
        fired.append(pot)
        return f"{pot}, fired"

    @stream_step(stream=stream, signals=["pot.shaped"])
    async def firing() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        done = await fire(signal.payload["pot"])
        await set_result({"pot": done})
        await terminate()

    run = begin(stepwell_env, stream)
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    send(stepwell_env, "kiln", "pot.shaped", {"pot": "jug"})
    result = stepwell_env.result(run)
    assert result.status == "completed"
    assert result.step_states == {"firing": "terminated"}
    assert result.get_result("firing") == {"pot": "jug, fired"}
    assert fired == ["jug"]
    with pytest.raises(KeyError, match="fir"):
        result.get_result("fir")


def test_a_checkpoint_is_there_for_the_next_signal(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []

    @stream_step(stream=stream, signals=["heat"])
    async def gauge() -> None:
        signal = await get_current_signal()
        known = await get_checkpoint()
        seen.append(None if known is None else known["sum"])
        if signal is None:
            await save_checkpoint({"sum": 0})
            return
        known["sum"] += signal.payload["by"]
        assert (await get_checkpoint())["sum"] != known["sum"], "each reader has his own"
        await save_checkpoint(known)
        assert await get_checkpoint() == known

    begin(stepwell_env, stream)
    for by in (1, 2, 3):
        send(stepwell_env, "kiln", "heat", {"by": by})
    assert seen == [None, 0, 1, 3]


def test_the_last_result_counts_and_outlives_later_signals(
    stepwell_env: Environment, stream: Any
) -> None:
    @stream_step(stream=stream, signals=["heat", "off"])
    async def gauge() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        if signal.signal_type == "off":
            await terminate()
            return
        await set_result("overwritten")
        await set_result(signal.payload)

    run = begin(stepwell_env, stream)
    send(stepwell_env, "kiln", "heat", {"by": 1})
    send(stepwell_env, "kiln", "heat", {"by": 2})
    send(stepwell_env, "kiln", "off")
    assert stepwell_env.result(run).get_result("gauge") == {"by": 2}


def test_without_a_result_there_is_none(stepwell_env: Environment, stream: Any) -> None:
    @stream_step(stream=stream, signals=["off"])
    async def gauge() -> None:
        if await get_current_signal() is not None:
            await terminate()

    run = begin(stepwell_env, stream)
    send(stepwell_env, "kiln", "off")
    assert stepwell_env.result(run).get_result("gauge") is None


def test_a_step_can_end_at_its_start(stepwell_env: Environment, stream: Any) -> None:
    @stream_step(stream=stream, signals=["off"])
    async def gauge() -> None:
        await set_result(7)
        await terminate()

    run = begin(stepwell_env, stream)
    assert stepwell_env.result(run).get_result("gauge") == 7


def test_a_stream_without_steps_runs_its_body_once_and_completes(
    stepwell_env: Environment,
) -> None:
    body: Seen = []

    @stream_workflow
    async def empty(word: str) -> None:
        body.append(word)

    run = begin(stepwell_env, empty, "hello")
    assert stepwell_env.result(run).step_states == {}
    assert body == ["hello"]


def test_what_a_body_raises_fails_the_stream_run_and_a_retry_goes_on(
    stepwell_env: Environment,
) -> None:
    tries: Seen = []

    @step(name="streams.light")
    async def light() -> None:
        tries.append("light")

    @stream_workflow
    async def oven() -> None:
        await light()
        tries.append("body")
        if tries.count("body") == 1:
            raise ValueError("no gas")

    @stream_step(stream="oven", signals=["off"])
    async def watch() -> None:
        if await get_current_signal() is not None:
            await terminate()

    run = begin(stepwell_env, oven)
    assert stepwell_env.get(run).status is RunStatus.FAILED
    assert standing(stepwell_env, "oven").status == "failed"
    stepwell_env.retry(run)
    send(stepwell_env, "oven", "off")
    assert stepwell_env.result(run).step_states == {"watch": "terminated"}
    assert tries.count("light") == 1, "recorded steps of the body are not run again"


def test_all_primitives_need_a_stream_step(stepwell_env: Environment) -> None:
    calls: list[Callable[[], Any]] = [
        get_current_signal,
        get_checkpoint,
        lambda: save_checkpoint({}),
        lambda: set_result(1),
        terminate,
        lambda: suspend("x"),
        poll_inbox,
        lambda: acknowledge_inbox_signal("x"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="there is no stream step here"):
            call()
    refused: Seen = []

    @workflow(name="streams.elsewhere")
    async def elsewhere() -> None:
        for call in calls:
            try:
                call()
            except UsageError as error:
                refused.append(str(error))

    stepwell_env.run(elsewhere)
    assert len(refused) == len(calls)


def test_a_step_of_a_stream_step_cannot_speak_for_it(
    stepwell_env: Environment, stream: Any
) -> None:
    errors: Seen = []

    @step(name="streams.meddle")
    async def meddle() -> None:
        terminate()

    @stream_step(stream=stream, signals=["off"])
    async def gauge() -> None:
        try:
            await meddle()
        except StepFailed as error:
            errors.append(str(error))

    begin(stepwell_env, stream)
    stepwell_env.advance("1h")
    assert "a step cannot do this" in errors[0]
    assert subscription(stepwell_env, "kiln", "gauge").status == "waiting"


def test_a_stream_step_is_not_called_by_hand(stepwell_env: Environment, stream: Any) -> None:
    @stream_step(stream=stream, signals=["off"])
    async def gauge() -> None: ...

    with pytest.raises(UsageError, match="emit one"):
        _ = gauge()


def test_definitions_that_cannot_be(stepwell_env: Environment, stream: Any) -> None:
    def declare(function: Any, **options: Any) -> None:
        stream_step(**{"stream": stream, "signals": ["x"], **options})(function)

    async def gauge() -> None: ...

    async def takes(signal: Any) -> None: ...

    async def yields() -> Any:
        yield 1

    def plain() -> None: ...

    async def decide(signal: Any, context: Any) -> None: ...

    cases: list[tuple[Any, dict[str, Any]]] = [
        (takes, {}),
        (yields, {}),
        (gauge, {"signals": []}),
        (gauge, {"signals": "x"}),
        (gauge, {"on_failure": "stop"}),
        (gauge, {"name": "a/b"}),
        (plain, {"on_signal": decide}),
    ]
    for function, options in cases:
        with pytest.raises(DefinitionError):
            declare(function, **options)
    declare(gauge, name="one")
    with pytest.raises(DefinitionError):
        declare(takes, name="one")

    def body() -> None: ...

    with pytest.raises(DefinitionError, match="async"):
        stream_workflow(body)  # type: ignore[arg-type]  # refused


def test_one_name_may_be_a_step_of_two_streams(stepwell_env: Environment, stream: Any) -> None:
    called: Seen = []

    @stream_workflow
    async def wheel() -> None: ...

    def declare(name: str) -> None:
        @stream_step(stream=name, signals=["go"], name="same")
        async def same() -> None:
            if await get_current_signal() is not None:
                called.append(name)

    declare("kiln")
    declare("wheel")
    begin(stepwell_env, stream)
    begin(stepwell_env, wheel)
    send(stepwell_env, "wheel", "go")
    assert called == ["wheel"]


def test_plain_functions_can_be_stream_steps(stepwell_env: Environment, stream: Any) -> None:
    @step(name="streams.plain_double")
    def double(number: int) -> int:
        return 2 * number

    @stream_step(stream=stream, signals=["heat"])
    def gauge() -> None:
        signal = get_current_signal()
        state = get_checkpoint() or {"sum": 0}
        if signal is None:
            save_checkpoint(state)
            return
        state["sum"] += double(signal.payload["by"])
        save_checkpoint(state)
        if state["sum"] > 5:
            set_result(state["sum"])
            terminate()

    run = begin(stepwell_env, stream)
    send(stepwell_env, "kiln", "heat", {"by": 2})
    assert subscription(stepwell_env, "kiln", "gauge").status == "waiting"
    send(stepwell_env, "kiln", "heat", {"by": 4})
    assert stepwell_env.result(run).get_result("gauge") == 12


def test_without_a_word_on_signal_leaves_everything_as_it_is(
    stepwell_env: Environment, stream: Any
) -> None:
    called: Seen = []

    async def only_high(signal: Any, ctx: StreamStepContext) -> None:
        if signal.payload.get("heat") == "high":
            await ctx.resume()

    @stream_step(stream=stream, signals=["heat"], on_signal=only_high)
    async def gauge() -> None:
        signal = await get_current_signal()
        called.append(None if signal is None else signal.sequence)

    begin(stepwell_env, stream)
    for heat in ("low", "high", "low"):
        send(stepwell_env, "kiln", "heat", {"heat": heat})
    assert called == [None, 2]
    found = subscription(stepwell_env, "kiln", "gauge")
    assert (found.status, found.cursor, found.handled) == ("waiting", 3, 3)
    ends = events(stepwell_env, found.run_id, "SignalHandled")
    assert [end.passed for end in ends] == [None, True, None, True]


def test_on_signal_is_not_asked_at_the_start(stepwell_env: Environment, stream: Any) -> None:
    asked: Seen = []

    def decide(signal: Any, ctx: StreamStepContext) -> None:
        asked.append((signal.sequence, ctx.status, ctx.stream_id, ctx.run_id))

    @stream_step(stream=stream, signals=["heat"], on_signal=decide)
    async def gauge() -> None: ...

    begin(stepwell_env, stream)
    send(stepwell_env, "kiln", "heat")
    run_id = subscription(stepwell_env, "kiln", "gauge").run_id
    assert asked == [(1, "waiting", "kiln", run_id)]


@pytest.mark.parametrize(
    ("said", "status", "called"),
    [
        (["resume"], "waiting", True),
        (["suspend"], "suspended", False),
        (["suspend", "resume"], "suspended", False),
        (["terminate", "resume", "suspend"], "terminated", False),
        (["resume", "terminate", "cancel", "suspend"], "cancelled", False),
        (["cancel"], "cancelled", False),
    ],
)
def test_of_what_on_signal_says_the_strongest_counts(
    stepwell_env: Environment, stream: Any, said: list[str], status: str, called: bool
) -> None:
    calls: Seen = []

    async def decide(signal: Any, ctx: StreamStepContext) -> None:
        for word in said:
            given = ("a look",) if word == "suspend" else ()
            await getattr(ctx, word)(*given)

    @stream_step(stream=stream, signals=["heat"], on_signal=decide)
    async def gauge() -> None:
        calls.append(1)

    begin(stepwell_env, stream)
    send(stepwell_env, "kiln", "heat")
    assert subscription(stepwell_env, "kiln", "gauge").status == status
    assert len(calls) == 1 + called


def test_a_cancel_of_on_signal_ends_the_step_for_good_and_the_stream_run_completes(
    stepwell_env: Environment, stream: Any
) -> None:
    called: Seen = []

    async def cancel_on_kill(signal: Any, ctx: StreamStepContext) -> None:
        if signal.signal_type == "kill":
            await ctx.cancel(reason="received kill")
            return
        await ctx.resume()

    @stream_step(stream=stream, signals=["heat", "kill"], on_signal=cancel_on_kill)
    async def gauge() -> None:
        signal = await get_current_signal()
        called.append(signal and signal.signal_type)

    run = begin(stepwell_env, stream)
    for kind in ("heat", "kill"):
        send(stepwell_env, "kiln", kind)
    found = subscription(stepwell_env, "kiln", "gauge")
    assert (found.status, found.reason) == ("cancelled", "received kill")
    assert called == [None, "heat"]
    result = stepwell_env.result(run)
    assert (result.status, result.step_states) == ("completed", {"gauge": "cancelled"})


def test_in_one_call_terminate_is_stronger_than_suspend(
    stepwell_env: Environment, stream: Any
) -> None:
    @stream_step(stream=stream, signals=["heat"])
    async def gauge() -> None:
        await terminate()
        await suspend("a look")

    run = begin(stepwell_env, stream)
    assert stepwell_env.result(run).step_states == {"gauge": "terminated"}


def test_states_show_in_every_phase(stepwell_env: Environment, stream: Any) -> None:
    @stream_step(stream=stream, signals=["heat", "cool", "off"])
    async def gauge() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        if signal.signal_type == "heat":
            await suspend("too hot", ["cool"])
        if signal.signal_type == "off":
            await terminate()

    def shown() -> tuple[Any, Any, Any]:
        found = subscription(stepwell_env, "kiln", "gauge")
        return standing(stepwell_env, "kiln").status, found.status, found.reason

    begin(stepwell_env, stream)
    assert shown() == ("running", "waiting", None)
    send(stepwell_env, "kiln", "heat")
    assert shown() == ("suspended", "suspended", "too hot")
    send(stepwell_env, "kiln", "cool")
    assert shown() == ("running", "waiting", None)
    send(stepwell_env, "kiln", "off")
    assert shown() == ("completed", "terminated", None)


def test_subscriptions_are_listed_where_somebody_asks_for_them(
    stepwell_env: Environment, stream: Any
) -> None:
    @stream_step(stream=stream, signals=["heat"])
    async def gauge() -> None: ...

    run = begin(stepwell_env, stream)
    client = stepwell_env.client
    listed = stepwell_env.wait_for(client.list_runs())
    assert [each.run_id for each in listed.items] == [run.id]
    [asked] = stepwell_env.wait_for(client.list_runs(workflow="kiln/gauge")).items
    assert asked.run_id == subscription(stepwell_env, "kiln", "gauge").run_id
    stepwell_env.wait_for(client.pause(asked.run_id))
    paused = stepwell_env.wait_for(client.list_runs(attention="PAUSED"))
    assert [each.run_id for each in paused.items] == [asked.run_id]
    stepwell_env.wait_for(client.resume(asked.run_id))
    stepwell_env.run_until_idle()
