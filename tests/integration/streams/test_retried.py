"""Stream runs that failed or were cancelled, and are retried: their steps go on where they were."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    RetryPolicy,
    StreamWorkflow,
    StreamWorkflowResult,
    get_checkpoint,
    get_current_signal,
    hook,
    run_stream_workflow,
    save_checkpoint,
    set_result,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
    workflow,
)
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core.messages import Wake
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from tests.integration.streams.given import begin, post, send, standing, subscription

Seen = list[Any]
#: Not empty once the code of the body is mended.
TUNED: Seen = []


@pytest.fixture(autouse=True)
def _not_tuned() -> None:
    TUNED.clear()


def choir(env: Environment, seen: Seen) -> RunHandle[Any]:
    """A stream run that has handled two signals, whose body waits for what it fails by."""

    @stream_workflow(name="choir")
    async def body() -> None:
        await hook("sing")
        if not TUNED:
            raise ValueError("out of tune")

    @stream_step(
        stream="choir", signals=["note", "pause", "over"], retry=RetryPolicy(max_attempts=1)
    )
    async def listen() -> None:
        signal = await get_current_signal()
        state = (await get_checkpoint()) or []
        if signal is None:
            seen.append("start")
            return
        if signal.payload.get("ask"):
            await hook("which")
        if signal.payload.get("bad") and "mended" not in seen:
            raise ValueError("bad note")
        seen.append(signal.sequence)
        await save_checkpoint([*state, signal.sequence])
        await set_result([*state, signal.sequence])
        if signal.signal_type == "pause":
            await suspend("a breath", ["over"])
        if signal.signal_type == "over":
            await terminate()

    run = begin(env, body)
    for _ in range(2):
        send(env, "choir", "note")
    return run


def fail(env: Environment, run: RunHandle[Any]) -> None:
    [question] = env.hooks(run)
    env.resume_hook(question.token, {})
    TUNED.append("mended")
    assert env.get(run).status is RunStatus.FAILED
    assert subscription(env, "choir", "listen").status == "cancelled"


def test_what_was_handled_is_not_handled_again(stepwell_env: Environment) -> None:
    seen: Seen = []
    run = choir(stepwell_env, seen)
    before = subscription(stepwell_env, "choir", "listen")
    fail(stepwell_env, run)
    stepwell_env.retry(run)
    stepwell_env.advance("1m")
    found = subscription(stepwell_env, "choir", "listen")
    assert found.run_id != before.run_id
    assert (found.status, found.handled, found.cursor) == ("waiting", 2, 2)
    send(stepwell_env, "choir", "over")
    assert seen == ["start", 1, 2, 3]
    assert stepwell_env.result(run).get_result("listen") == [1, 2, 3]


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_signals_that_come_in_between_are_handled_after_it(
    stepwell_env: Environment, how: str
) -> None:
    seen: Seen = []
    run = choir(stepwell_env, seen)
    if how == "failed":
        post(stepwell_env, "choir", "note")
        fail(stepwell_env, run)
    else:
        stepwell_env.cancel(run)
    stepwell_env.retry(run)
    send(stepwell_env, "choir", "over")
    assert seen == ["start", *range(1, standing(stepwell_env, "choir").last + 1)]


def test_what_was_suspended_parked_and_held_stays_so(stepwell_env: Environment) -> None:
    seen: Seen = []
    run = choir(stepwell_env, seen)
    send(stepwell_env, "choir", "note", {"bad": True})
    send(stepwell_env, "choir", "pause")
    send(stepwell_env, "choir", "note")
    fail(stepwell_env, run)
    stepwell_env.retry(run)
    found = subscription(stepwell_env, "choir", "listen")
    assert (found.status, found.reason, found.parked, found.lag) == ("suspended", "a breath", 1, 1)
    assert standing(stepwell_env, "choir").status == "suspended"
    seen.append("mended")
    stepwell_env.wait_for(stepwell_env.client.redrive_signal("choir", "listen", 3))
    send(stepwell_env, "choir", "over")
    assert seen == ["start", 1, 2, 4, "mended", 3, 5, 6]


def test_a_signal_that_was_under_way_is_taken_anew(stepwell_env: Environment) -> None:
    seen: Seen = []
    run = choir(stepwell_env, seen)
    send(stepwell_env, "choir", "note", {"ask": True})
    [owner_asks] = [each for each in stepwell_env.hooks() if each.name == "sing"]
    stepwell_env.resume_hook(owner_asks.token, {})
    TUNED.append("mended")
    stepwell_env.retry(run)
    [asked] = [each for each in stepwell_env.hooks() if each.name == "which"]
    stepwell_env.resume_hook(asked.token, {})
    assert seen == ["start", 1, 2, 3]


def test_a_late_word_of_the_one_before_changes_nothing(stepwell_env: Environment) -> None:
    seen: Seen = []
    run = choir(stepwell_env, seen)
    before = subscription(stepwell_env, "choir", "listen").run_id
    fail(stepwell_env, run)
    stepwell_env.retry(run)
    stepwell_env.wait_for(stepwell_env._local.queue.send(Wake(run_id=before, cause="late")))
    stepwell_env.run_until_idle()
    send(stepwell_env, "choir", "note")
    assert seen == ["start", 1, 2, 3]


def test_a_retry_that_dies_anywhere_is_gone_on_with() -> None:
    for call in range(1, 80):
        with Environment() as env:
            TUNED.clear()
            seen: Seen = []
            run = choir(env, seen)
            fail(env, run)
            env.wait_for(env.client.retry(run.id))
            env.crash_at(call, "after")
            env.advance("1m")
            crashed = env.crashes
            send(env, "choir", "note")
            send(env, "choir", "over")
            env.advance("1m")
            assert seen == ["start", 1, 2, 3, 4], f"crashed at call {call}"
            if not crashed:
                assert call > 10
                return
    raise AssertionError("there is no end of calls")


def test_a_retried_parent_has_its_stream_run_retried() -> None:
    for call in range(80):
        with Environment() as env:
            TUNED.clear()
            seen: Seen = []
            run = festival(env, seen)
            [question] = env.hooks()
            env.resume_hook(question.token, {})
            assert env.get(run).status is RunStatus.FAILED
            TUNED.append("mended")
            env.wait_for(env.client.retry(run.id))
            env.crash_at(call or 10**9, "after")
            env.advance("1m")
            crashed = env.crashes
            assert not env.get(run).status.terminal, f"crashed at call {call}"
            send(env, "choir", "over", stream_run_id="f")
            env.advance("1m")
            assert env.result(run).get_result("listen") == [1, 2]
            assert seen == ["start", 1, 2], f"crashed at call {call}"
            if call and not crashed:
                assert call > 20
                return
    raise AssertionError("there is no end of calls")


def festival(env: Environment, seen: Seen) -> RunHandle[Any]:
    """A workflow that waits for a stream run whose body fails."""
    choir(env, seen)
    seen.clear()
    found = registry.workflow("choir")
    assert found is not None

    @workflow(name="streams.festival")
    async def whole() -> StreamWorkflowResult:
        return await run_stream_workflow(StreamWorkflow(found, found.function), stream_run_id="f")

    for each in env.hooks():
        env.resume_hook(each.token, {})
    run = env.start(whole)
    env.run_until_idle()
    send(env, "choir", "note", stream_run_id="f")
    return run
