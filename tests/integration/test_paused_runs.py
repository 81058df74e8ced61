"""A paused run begins nothing, loses nothing, and goes on when it is resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stepwell import RetryPolicy, RunEnded, RunNotFound, hook, sleep, step, workflow
from stepwell.core.messages import CancelRun, ResumeRun, dump_message
from stepwell.core.records import Attention, RunStatus
from stepwell.engine.endings import TurnEnd
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

DONE: list[str] = []


@pytest.fixture
def env() -> Iterator[Environment]:
    DONE.clear()
    with Environment(chance=0.5) as environment:
        yield environment


@step(name="paused_did")
async def did(what: str) -> str:
    DONE.append(what)
    return what


@workflow(name="paused_flow")
async def flow() -> Any:
    answer = await hook("go")
    await did("after")
    return answer


def types(env: Environment, run: Any) -> list[str]:
    return [each.event.type for each in env.history(run)]


def test_an_answer_to_a_paused_run_is_recorded_and_nothing_begins(env: Environment) -> None:
    run = env.start(flow)
    env.run_until_idle()
    env.pause(run, "a look first")
    note = env.get(run).attention
    assert note is not None
    assert (note.kind, note.reason) == ("PAUSED", "a look first")
    env.resume_hook(env.hooks(run)[0].token, 7)
    assert env.turns[-1] is TurnEnd.PAUSED
    assert types(env, run)[-1] == "HookReceived"
    assert DONE == []
    assert env.get(run).paused
    check_run(env, run)
    env.resume(run)
    assert env.result(run) == 7
    assert DONE == ["after"]
    check_run(env, run)


def test_a_deadline_that_passes_meanwhile_wakes_once(env: Environment) -> None:
    @workflow
    async def sleeps() -> str:
        await asyncio.gather(sleep("1h"), sleep("2h"), sleep("3h"))
        return await did("woken")

    run = env.start(sleeps)
    env.run_until_idle()
    env.pause(run)
    turns = len(env.turns)
    env.advance("1d")
    assert len(env.turns) == turns + 3
    assert DONE == []
    check_run(env, run)
    env.resume(run)
    assert env.result(run) == "woken"


def test_a_run_that_has_not_begun_is_paused_as_well(env: Environment) -> None:
    run = env.start(flow)
    env.pause(run)
    assert env.hooks(run) == ()
    env.resume(run)
    [go] = env.hooks(run)
    env.resume_hook(go.token, 1)
    assert env.result(run) == 1


def test_a_turn_under_way_is_fenced_and_its_work_is_kept(env: Environment) -> None:
    @step
    async def pauses() -> str:
        DONE.append("first")
        await env.client.pause(run.id)
        return "first"

    @workflow
    async def chain() -> str:
        await pauses()
        await did("second")
        await hook("go")
        return "end"

    run = env.start(chain)
    env.run_until_idle()
    assert env.turns == []  # its message was given back
    env.advance("5m")
    assert env.turns == [TurnEnd.PAUSED]
    assert DONE == ["first", "second"]
    assert env.get(run).paused
    assert types(env, run).count("StepCompleted") == 2
    check_run(env, run)
    env.resume(run)
    env.resume_hook(env.hooks(run)[0].token, 1)
    assert env.result(run) == "end"
    assert DONE == ["first", "second"]
    check_run(env, run)


def test_a_run_that_ends_as_it_is_paused_has_ended(env: Environment) -> None:
    @step
    async def pauses() -> None:
        await env.client.pause(run.id)

    @workflow
    async def short() -> str:
        await pauses()
        return "end"

    run = env.start(short)
    env.advance("5m")
    assert env.result(run) == "end"
    assert env.get(run).attention is None
    check_run(env, run)


def test_a_dispatched_step_ends_and_is_recorded(env: Environment) -> None:
    @step(dispatch="worker")
    async def far() -> str:
        await env.client.pause(run.id)
        return "far"

    @workflow
    async def calls() -> str:
        return await did(await far())

    run = env.start(calls)
    env.run_until_idle()
    assert types(env, run)[-1] == "StepCompleted"
    assert DONE == []
    check_run(env, run)
    env.resume(run)
    assert env.result(run) == "far"


def test_a_cancel_ends_the_pause_and_cleanup_runs(env: Environment) -> None:
    @workflow
    async def guarded() -> None:
        try:
            await hook("go")
        finally:
            await did("cleanup")

    run = env.start(guarded)
    env.run_until_idle()
    env.pause(run)
    env.cancel(run, "enough")
    assert env.get(run).status is RunStatus.CANCELLED
    assert DONE == ["cleanup"]
    check_run(env, run)


def test_pausing_twice_is_pausing_once_and_resuming_twice_is_harmless(env: Environment) -> None:
    run = env.start(flow)
    env.run_until_idle()
    env.pause(run, "one")
    env.pause(run, "two")
    note = env.get(run).attention
    assert note is not None
    assert note.reason == "one"
    env.resume(run)
    env.resume(run)
    assert env.get(run).attention is None
    env.resume_hook(env.hooks(run)[0].token, 1)
    assert env.result(run) == 1


def test_a_resume_whose_caller_dies_is_done_by_its_message(env: Environment) -> None:
    run = env.start(flow)
    env.run_until_idle()
    env.pause(run)
    note = env.get(run).attention
    assert note is not None
    assert note.request_id is not None
    old = ResumeRun(run_id=run.id, request_id="r0", pause="another")
    env.wait_for(env._ports.queue.send(old))
    env.run_until_idle()
    assert env.get(run).paused
    message = ResumeRun(run_id=run.id, request_id="r1", pause=note.request_id)
    env.wait_for(env._ports.queue.send(message))
    env.run_until_idle()
    assert not env.get(run).paused


def test_a_blocked_run_is_blocked_again_after_the_pause(env: Environment) -> None:
    fits = True

    @workflow
    async def changing() -> int:
        if not fits:
            await did("other")
        return await hook("go")

    run = env.start(changing)
    env.run_until_idle()
    fits = False
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    blocked = env.get(run).attention
    assert blocked is not None
    assert blocked.kind == "BLOCKED"
    env.pause(run)
    fits = True
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.get(run).note == blocked
    check_run(env, run)
    env.resume(run)
    assert env.get(run).attention is None
    env.resume_hook(env.hooks(run)[0].token, 5)
    assert env.result(run) == 5


def test_what_a_stuck_run_keeps_survives_a_pause(env: Environment) -> None:
    run = env.start(flow)
    env.run_until_idle()
    header = env.get(run)
    lost = CancelRun(run_id=run.id, request_id="lost", reason="kept")
    note = Attention(
        kind="STUCK", reason="died", since=header.updated_at, message=dump_message(lost)
    )
    env.wait_for(env._ports.store.update_header(replace(header, attention=note), over=header))
    env.pause(run)
    assert env.get(run).note == note
    env.resume(run)
    assert env.get(run).status is RunStatus.CANCELLED
    assert env.get(run).attention is None


def test_pauses_are_found_in_lists_and_need_a_run_that_goes_on(env: Environment) -> None:
    run = env.start(flow)
    other = env.start(flow)
    env.run_until_idle()
    env.pause(run)
    found = env.wait_for(env.client.list_runs(attention="PAUSED"))
    assert [header.run_id for header in found.items] == [run.id]
    env.resume_hook(next(h for h in env.hooks(other) if h.run_id == other.id).token, 1)
    with pytest.raises(RunEnded, match="fork it"):
        env.pause(other)
    with pytest.raises(RunEnded):
        env.resume(other)
    with pytest.raises(RunNotFound):
        env.wait_for(env.client.pause("nobody"))


def test_a_waiting_caller_goes_on_waiting(env: Environment) -> None:
    run = env.start(flow)
    env.run_until_idle()
    env.pause(run)
    with pytest.raises(Exception, match="has not ended"):
        env.result(run)
    env.resume(run)
    env.resume_hook(env.hooks(run)[0].token, 1)


def test_a_retry_that_comes_due_meanwhile_wakes_once(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=2, initial="1h", jitter="none"))
    async def flaky() -> str:
        DONE.append("tried")
        raise OSError("down")

    @workflow
    async def tries() -> None:
        await flaky()

    run = env.start(tries)
    env.run_until_idle()
    env.pause(run)
    turns = len(env.turns)
    env.advance("1d")
    assert len(env.turns) == turns + 1
    assert DONE == ["tried"]
    env.resume(run)
    assert DONE == ["tried", "tried"]
