"""Stream steps that wait for a person: what wakes them, what is held, what their parents see."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    StreamStepContext,
    StreamWorkflowResult,
    emit,
    get_checkpoint,
    get_current_signal,
    run_stream_workflow,
    save_checkpoint,
    set_result,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
    workflow,
)
from stepwell.core.records import RunStatus
from stepwell.errors import ChildCancelled, ChildFailed, StreamRunTaken, UsageError
from stepwell.testing import Environment
from tests.integration.streams.given import begin, post, send, standing, subscription

Seen = list[Any]


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream with one step, which asks for a person after three drafts."""

    @stream_workflow
    async def essays() -> None: ...

    @stream_step(stream=essays, signals=["draft.sent", "teacher.approved"])
    async def marking() -> None:
        signal = await get_current_signal()
        state = (await get_checkpoint()) or {"drafts": 0}
        if signal is None:
            return
        if signal.signal_type == "draft.sent":
            state["drafts"] += 1
            await save_checkpoint(state)
            if state["drafts"] >= 3:
                await suspend(reason="ask the teacher", resume_signals=["teacher.approved"])
                return
        if signal.signal_type == "teacher.approved":
            await set_result({"approved": True, "drafts": state["drafts"]})
            await terminate()

    return essays


def asker(env: Environment, stream: Any, seen: Seen) -> Any:
    """A workflow that waits for a stream run."""

    @workflow(name="streams.asker")
    async def ask(name: str) -> StreamWorkflowResult:
        async def init() -> None:
            seen.append("init")
            await emit(stream, "draft.sent", {})

        return await run_stream_workflow(stream, stream_run_id=name, init=init)

    return ask


def test_three_drafts_then_a_person(stepwell_env: Environment, stream: Any) -> None:
    run = begin(stepwell_env, stream)
    for _ in range(3):
        send(stepwell_env, "essays", "draft.sent")
    found = standing(stepwell_env, "essays")
    assert (found.status, found.reason) == ("suspended", "ask the teacher")
    [wait] = stepwell_env.get(run).waiting
    assert (wait.kind, wait.reason) == ("child", "ask the teacher")
    send(stepwell_env, "essays", "teacher.approved")
    assert stepwell_env.result(run).get_result("marking") == {"approved": True, "drafts": 3}


def test_other_signals_are_held_and_come_later_in_order(stepwell_env: Environment) -> None:
    seen: Seen = []

    @stream_workflow
    async def gate() -> None: ...

    @stream_step(stream=gate, signals=["car", "open"])
    async def guard() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        seen.append(signal.sequence)
        if signal.sequence == 1:
            await suspend("the gate is shut", ["open"])

    begin(stepwell_env, gate)
    for kind in ("car", "car", "car"):
        send(stepwell_env, "gate", kind)
    assert seen == [1]
    found = subscription(stepwell_env, "gate", "guard")
    assert (found.status, found.cursor, found.lag) == ("suspended", 1, 2)
    send(stepwell_env, "gate", "open")
    assert seen == [1, 4, 2, 3]
    found = subscription(stepwell_env, "gate", "guard")
    assert (found.status, found.cursor, found.lag) == ("waiting", 4, 0)
    send(stepwell_env, "gate", "car")
    assert seen == [1, 4, 2, 3, 5]


def test_many_held_signals_come_once_each_whatever_resumes_in_between(
    stepwell_env: Environment,
) -> None:
    seen: Seen = []

    @stream_workflow
    async def dam() -> None: ...

    @stream_step(stream=dam, signals=["drop", "open"])
    async def sluice() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        seen.append(signal.sequence)
        if signal.signal_type == "open" and signal.payload.get("again"):
            await suspend("shut again", ["open"])
        if signal.sequence == 1:
            await suspend("shut", ["open"])

    begin(stepwell_env, dam)
    for _ in range(150):
        post(stepwell_env, "dam", "drop")
    stepwell_env.run_until_idle()
    send(stepwell_env, "dam", "open", {"again": True})
    send(stepwell_env, "dam", "drop")
    send(stepwell_env, "dam", "open")
    assert seen == [1, 151, 153, *range(2, 151), 152]
    assert subscription(stepwell_env, "dam", "sluice").cursor == 153


def test_without_resume_signals_any_of_its_types_wakes_it(stepwell_env: Environment) -> None:
    seen: Seen = []

    @stream_workflow
    async def bell() -> None: ...

    @stream_step(stream=bell, signals=["ring", "knock"])
    async def porter() -> None:
        signal = await get_current_signal()
        seen.append(signal and signal.signal_type)
        if signal is None:
            await suspend("asleep")

    begin(stepwell_env, bell)
    send(stepwell_env, "bell", "whisper")
    assert standing(stepwell_env, "bell").status == "suspended"
    send(stepwell_env, "bell", "knock")
    assert seen == [None, "knock"]
    assert standing(stepwell_env, "bell").status == "running"


@pytest.mark.parametrize("resume", [["unknown"], []])
def test_what_could_never_wake_it_is_refused(stepwell_env: Environment, resume: list[str]) -> None:
    errors: Seen = []

    @stream_workflow
    async def tomb() -> None: ...

    @stream_step(stream=tomb, signals=["ring"])
    async def sleeper() -> None:
        try:
            await suspend("for ever", resume)
        except UsageError as error:
            errors.append(str(error))

    begin(stepwell_env, tomb)
    assert "only these can wake it" in errors[0]
    assert subscription(stepwell_env, "tomb", "sleeper").status == "waiting"


def test_a_passed_signal_leaves_it_suspended(stepwell_env: Environment) -> None:
    async def only_loud(signal: Any, ctx: StreamStepContext) -> None:
        statuses.append(ctx.status)
        if signal.payload.get("loud"):
            await ctx.resume()

    statuses: Seen = []

    @stream_workflow
    async def siren() -> None: ...

    @stream_step(stream=siren, signals=["ring"], on_signal=only_loud)
    async def sleeper() -> None:
        if await get_current_signal() is None:
            await suspend("asleep", ["ring"])

    begin(stepwell_env, siren)
    send(stepwell_env, "siren", "ring", {})
    found = subscription(stepwell_env, "siren", "sleeper")
    assert (found.status, found.reason) == ("suspended", "asleep")
    send(stepwell_env, "siren", "ring", {"loud": True})
    assert subscription(stepwell_env, "siren", "sleeper").status == "waiting"
    assert statuses == ["suspended", "suspended"]


def test_a_stream_is_suspended_when_none_of_its_steps_waits(stepwell_env: Environment) -> None:
    @stream_workflow
    async def duo() -> None: ...

    def declare(name: str) -> None:
        @stream_step(stream=duo, signals=[f"{name}.stop", f"{name}.end"], name=name)
        async def one() -> None:
            signal = await get_current_signal()
            if signal is not None and signal.signal_type.endswith("stop"):
                await suspend(f"{name} stopped")
            elif signal is not None:
                await terminate()

    declare("left")
    declare("right")
    run = begin(stepwell_env, duo)

    def shown() -> Any:
        reasons = {wait.reason for wait in stepwell_env.get(run).waiting}
        return standing(stepwell_env, "duo").status, reasons

    send(stepwell_env, "duo", "left.stop")
    assert shown() == ("running", {"left stopped", None})
    send(stepwell_env, "duo", "right.end")
    assert shown() == ("suspended", {"left stopped"})
    send(stepwell_env, "duo", "left.end")
    assert stepwell_env.result(run).step_states == {"left": "terminated", "right": "terminated"}


def test_a_parent_shows_the_reason_and_goes_on_by_itself(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    run = stepwell_env.start(asker(stepwell_env, stream, seen), "e1")
    stepwell_env.run_until_idle()
    [wait] = stepwell_env.get(run).waiting
    assert (wait.kind, wait.reason) == ("child", None)
    for _ in range(2):
        send(stepwell_env, "essays", "draft.sent", stream_run_id="e1")
    [wait] = stepwell_env.get(run).waiting
    assert (wait.kind, wait.reason) == ("child", "ask the teacher")
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    send(stepwell_env, "essays", "teacher.approved", stream_run_id="e1")
    assert stepwell_env.result(run).get_result("marking") == {"approved": True, "drafts": 3}
    assert standing(stepwell_env, "essays", "e1").last == 4


def test_signals_before_the_parent_do_not_keep_it_from_init_and_body(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    send(stepwell_env, "essays", "draft.sent", stream_run_id="e1")
    run = stepwell_env.start(asker(stepwell_env, stream, seen), "e1")
    stepwell_env.run_until_idle()
    assert seen[0] == "init"
    assert standing(stepwell_env, "essays", "e1").last == 2
    assert subscription(stepwell_env, "essays", "marking", "e1").handled == 2
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED


def test_a_stream_run_of_another_is_refused_by_name(stepwell_env: Environment, stream: Any) -> None:
    begin(stepwell_env, stream, run="e1")
    run = stepwell_env.start(asker(stepwell_env, stream, []), "e1")
    stepwell_env.run_until_idle()
    with pytest.raises(Exception, match="e1") as raised:
        stepwell_env.result(run)
    assert StreamRunTaken.__name__ in str(raised.value) + raised.type.__name__ + repr(
        stepwell_env.get(run).error
    )


def test_cancelling_the_parent_ends_the_stream_run_and_its_steps(
    stepwell_env: Environment, stream: Any
) -> None:
    run = stepwell_env.start(asker(stepwell_env, stream, []), "e1")
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run, "no more")
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    found = standing(stepwell_env, "essays", "e1")
    assert (found.status, found.subscriptions[0].status) == ("cancelled", "cancelled")


def test_cancelling_a_stream_run_is_told_to_its_parent(
    stepwell_env: Environment, stream: Any
) -> None:
    @workflow(name="streams.catches")
    async def catches() -> str | None:
        try:
            await run_stream_workflow(stream, stream_run_id="e1")
        except ChildCancelled as error:
            return error.reason
        return "went on"

    run = stepwell_env.start(catches)
    stepwell_env.run_until_idle()
    owner = standing(stepwell_env, "essays", "e1").run_id
    stepwell_env.wait_for(stepwell_env.client.cancel(owner, "enough"))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == "enough"


def test_cancelling_one_subscription_ends_that_step_alone(
    stepwell_env: Environment, stream: Any
) -> None:
    run = begin(stepwell_env, stream)
    step = subscription(stepwell_env, "essays", "marking").run_id
    stepwell_env.wait_for(stepwell_env.client.cancel(step, "enough"))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run).step_states == {"marking": "cancelled"}


def test_a_body_that_fails_fails_the_parent(stepwell_env: Environment) -> None:
    @stream_workflow
    async def fragile() -> None:
        raise ValueError("broken")

    @workflow(name="streams.sees_failure")
    async def sees_failure() -> str:
        try:
            await run_stream_workflow(fragile, stream_run_id="f")
        except ChildFailed as error:
            return f"{error.type}: {error.message}"
        return "went on"

    assert stepwell_env.run(sees_failure) == "ValueError: broken"


def test_a_paused_subscription_takes_no_signal_until_it_is_resumed(
    stepwell_env: Environment, stream: Any
) -> None:
    begin(stepwell_env, stream)
    step = subscription(stepwell_env, "essays", "marking").run_id
    client = stepwell_env.client
    stepwell_env.wait_for(client.pause(step, "holiday"))
    stepwell_env.run_until_idle()
    send(stepwell_env, "essays", "draft.sent")
    found = subscription(stepwell_env, "essays", "marking")
    assert (found.handled, found.lag, found.attention) == (0, 1, "PAUSED")
    stepwell_env.wait_for(client.resume(step))
    stepwell_env.run_until_idle()
    assert subscription(stepwell_env, "essays", "marking").handled == 1


def test_a_paused_stream_run_and_parent_go_on_when_they_are_resumed(
    stepwell_env: Environment, stream: Any
) -> None:
    run = stepwell_env.start(asker(stepwell_env, stream, []), "e1")
    stepwell_env.run_until_idle()
    owner = standing(stepwell_env, "essays", "e1").run_id
    stepwell_env.pause(run)
    stepwell_env.wait_for(stepwell_env.client.pause(owner))
    stepwell_env.run_until_idle()
    for kind in ("draft.sent", "draft.sent", "teacher.approved"):
        send(stepwell_env, "essays", kind, stream_run_id="e1")
    assert subscription(stepwell_env, "essays", "marking", "e1").status == "terminated"
    assert not stepwell_env.get(run).status.terminal
    stepwell_env.wait_for(stepwell_env.client.resume(owner))
    stepwell_env.resume(run)
    assert stepwell_env.result(run).get_result("marking")["approved"]


def test_run_stream_workflow_needs_an_async_workflow_and_a_stream(
    stepwell_env: Environment, stream: Any
) -> None:
    errors: Seen = []

    @workflow(name="streams.no_stream")
    async def no_stream() -> None:
        for wrong in (no_stream, stream):
            try:
                await run_stream_workflow(wrong, stream_run_id="" if wrong is stream else "x")
            except Exception as error:
                errors.append(type(error).__name__)

    stepwell_env.run(no_stream)
    assert errors == ["UsageError", "DefinitionError"]


def test_a_parent_shows_a_reason_only_when_none_of_the_steps_waits(
    stepwell_env: Environment,
) -> None:
    @stream_workflow
    async def pair() -> None: ...

    def declare(name: str) -> None:
        @stream_step(stream=pair, signals=[f"{name}.stop"], name=name)
        async def one() -> None:
            if await get_current_signal() is not None:
                await suspend(f"{name} stopped")

    declare("left")
    declare("right")

    @workflow(name="streams.waits_for_pair")
    async def waits_for_pair() -> None:
        await run_stream_workflow(pair, stream_run_id="p")

    run = stepwell_env.start(waits_for_pair)
    stepwell_env.run_until_idle()
    send(stepwell_env, "pair", "left.stop", stream_run_id="p")
    assert [wait.reason for wait in stepwell_env.get(run).waiting] == [None]
    send(stepwell_env, "pair", "right.stop", stream_run_id="p")
    assert [wait.reason for wait in stepwell_env.get(run).waiting] == ["left stopped"]
