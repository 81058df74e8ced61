"""Deleting runs that have ended: what goes, what stays, and who comes too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from stepwell import Result, current, hook, save_step_checkpoint, step, workflow
from stepwell.client import Client, RunHandle
from stepwell.core.messages import CancelRun, DeleteRun, Message, TimerDue, Wake
from stepwell.core.payload import Sizes
from stepwell.core.records import REMEMBERED, RunStatus, is_reference
from stepwell.core.retention import Retention
from stepwell.engine.endings import TurnEnd
from stepwell.engine.sweep import Sweep
from stepwell.errors import (
    DefinitionError,
    HookNotFound,
    InvalidToken,
    RunDeleted,
    RunNotEnded,
    RunNotFound,
)
from stepwell.testing import Environment

LARGE = "x" * 500
DAY = 86_400_000


@step(name="deletion.speak", stream=True)
async def speak(text: str) -> Any:
    yield text
    yield Result(text)


@step(name="deletion.away", dispatch="worker", timeout="5m")
async def away(text: str) -> str:
    await save_step_checkpoint({"text": text})
    return text * 2


@workflow(name="deletion.full")
async def full(text: str) -> Any:
    """A run with a row of every kind."""
    await speak(text)
    await away(text)
    return await hook("go")


@workflow(name="deletion.fails")
async def fails() -> None:
    raise ValueError(current.run_id)


def sizes() -> Sizes:
    return Sizes(inline_limit=100)


def ended(env: Environment, client: Client | None = None) -> RunHandle[Any]:
    run = env.wait_for((client or env.client).start(full, LARGE))
    env.run_until_idle()
    env.advance("10m")
    [question] = env.hooks(run)
    env.resume_hook(question.token, LARGE)
    assert env.get(run).status is RunStatus.COMPLETED
    return run


def delete(env: Environment, run: RunHandle[Any]) -> None:
    env.wait_for(env.client.delete(run.id, actor="eve"))
    env.run_until_idle()


def left(env: Environment, run: RunHandle[Any]) -> int:
    """How many values are left of a run."""
    count: int = env._local.database.query("SELECT count(*) FROM blobs")[0][0]
    return count


def test_nothing_of_it_is_found_any_more() -> None:
    with Environment(sizes=sizes()) as env:
        run = ended(env)
        [question] = env.facts(run.id).rows.hooks
        token = env._settings.keyring.token(question.key_id, run.id, question.hook_id)
        assert left(env, run) > 2
        delete(env, run)
        assert env.turns[-1] is TurnEnd.DELETED
        assert left(env, run) == 0
        client = env.client
        calls: list[Callable[[], Any]] = [
            run.get,
            run.history,
            run.result,
            lambda: client.cancel(run.id),
            lambda: client.wake(run.id),
        ]
        for call in calls:
            with pytest.raises(RunDeleted):
                env.wait_for(call())
        with pytest.raises((HookNotFound, InvalidToken)):
            env.wait_for(client.resume_hook(token, 1))
        assert env.wait_for(client.list_runs()).items == ()


def test_a_run_that_goes_on_is_not_deleted(stepwell_env: Environment) -> None:
    run = stepwell_env.start(full, "text")
    with pytest.raises(RunNotEnded):
        stepwell_env.wait_for(stepwell_env.client.delete(run.id))
    with pytest.raises(RunNotFound):
        stepwell_env.wait_for(stepwell_env.client.delete("nobody"))
    stepwell_env.run_until_idle()
    stepwell_env.wait_for(send(stepwell_env, DeleteRun(run_id=run.id, request_id="r", after=3)))
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED


async def send(env: Environment, message: Message) -> None:
    await env._local.queue.send(message)


def test_a_deletion_that_is_about_another_end_is_no_more(stepwell_env: Environment) -> None:
    run = ended(stepwell_env)
    last = stepwell_env.get(run).last_event
    stepwell_env.wait_for(
        send(stepwell_env, DeleteRun(run_id=run.id, request_id="r", after=last - 1))
    )
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.COMPLETED


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_leaves_it_to_be_deleted(when: Literal["before", "after"]) -> None:
    for crash_at in range(1, 40):
        with Environment(sizes=sizes()) as env:
            run = ended(env)
            env.wait_for(env.client.delete(run.id))
            env.crash_at(crash_at, when)
            env.run_until_idle()
            assert left(env, run) == 0
            with pytest.raises(RunDeleted):
                env.get(run)
            env.check()
            if not env.crashes:
                assert crash_at > 4
                return
    pytest.fail("it never came through without a crash")


def test_messages_that_come_late_change_nothing(stepwell_env: Environment) -> None:
    run = ended(stepwell_env)
    delete(stepwell_env, run)
    before = stepwell_env.facts(run.id)
    late: list[Message] = [
        Wake(run_id=run.id, cause="late"),
        CancelRun(run_id=run.id, request_id="late"),
        TimerDue(run_id=run.id, wait_id="sleep:1", arm=0, due=1),
        DeleteRun(run_id=run.id, request_id="late", after=1),
    ]
    for message in late:
        stepwell_env.wait_for(send(stepwell_env, message))
        stepwell_env.run_until_idle()
        assert stepwell_env.turns[-1] is TurnEnd.NOTHING
    assert stepwell_env.facts(run.id).rows == before.rows


def test_a_second_deletion_is_no_error(stepwell_env: Environment) -> None:
    run = ended(stepwell_env)
    delete(stepwell_env, run)
    delete(stepwell_env, run)
    with pytest.raises(RunDeleted):
        stepwell_env.get(run)


def test_its_idempotency_key_stays_taken_and_is_free_again_later() -> None:
    with Environment(unchecked="answers were promised to the run that had this id before") as env:
        client = env.client.with_options(idempotency_key="one")
        run = ended(env, client)
        delete(env, run)
        with pytest.raises(RunDeleted):
            env.wait_for(client.start(full, LARGE))
        env.run_until_idle()
        env.clock.move_to(env.clock.now() + REMEMBERED + 1)
        delete(env, ended(env))  # what is due to be forgotten is forgotten when others go
        again = env.wait_for(client.start(full, LARGE))
        assert again.id == run.id
        env.run_until_idle()
        assert env.get(again).status is RunStatus.SUSPENDED


def test_a_start_whose_caller_comes_late_loses() -> None:
    with Environment() as env:
        sent: list[Message] = []
        queue = env._local.queue
        keep = queue.send

        async def note(message: Message) -> None:
            sent.append(message)
            await keep(message)

        queue.send = note  # type: ignore[method-assign]
        run = ended(env)
        delete(env, run)
        env.clock.move_to(env.clock.now() + 600_000)
        env.wait_for(keep(sent[0]))
        env.run_until_idle()
        assert env.turns[-1] is TurnEnd.NOTHING
        with pytest.raises(RunDeleted):
            env.get(run)


def test_what_a_late_writer_left_goes_with_the_next_message(stepwell_env: Environment) -> None:
    run = ended(stepwell_env)
    [row] = stepwell_env.facts(run.id).rows.hooks
    delete(stepwell_env, run)
    stepwell_env.wait_for(stepwell_env._local.store.put_hook(row))
    stepwell_env.wait_for(send(stepwell_env, Wake(run_id=run.id, cause="late")))
    stepwell_env.run_until_idle()
    assert stepwell_env.facts(run.id).rows.hooks == ()


def test_values_of_other_runs_stay() -> None:
    with Environment(sizes=sizes()) as env:
        one, other = ended(env), ended(env)
        delete(env, one)
        assert env.result(other) == LARGE
        reference = env.facts(other.id).rows.header
        assert reference is not None
        assert is_reference(reference.input)


# Retention


def kept(**retention: int) -> Environment:
    env = Environment()
    object.__setattr__(env._settings, "retention", Retention(**retention))
    return env


def sweep(env: Environment) -> int:
    count = env.wait_for(Sweep(env._local.ports).delete_expired(lambda: 60_000))
    env.run_until_idle()
    return count


def test_a_run_goes_when_its_time_is_over() -> None:
    with kept(completed=2 * DAY) as env:
        run = ended(env)
        header = env.get(run)
        assert header.kept_until == env.history(run)[-1].event.at + 2 * DAY
        env.advance("1d")
        assert sweep(env) == 0
        env.advance("2d")
        assert sweep(env) == 1
        with pytest.raises(RunDeleted):
            env.get(run)
        assert sweep(env) == 0


def test_each_way_to_end_has_its_own_time() -> None:
    with kept(failed=DAY) as env:
        run, bad = ended(env), env.start(fails)
        env.run_until_idle()
        assert env.get(run).kept_until is None
        env.advance("2d")
        assert sweep(env) == 1
        assert env.get(run).status is RunStatus.COMPLETED
        with pytest.raises(RunDeleted):
            env.get(bad)


def test_what_was_decided_at_the_end_stays_so() -> None:
    with kept(completed=DAY) as env:
        run = ended(env)
        before = env.get(run)
        object.__setattr__(env._settings, "retention", Retention(completed=9 * DAY))
        env.wait_for(env.client.wake(run.id))
        env.run_until_idle()
        assert env.get(run) == before


@pytest.mark.parametrize("bad", [0, -1])
def test_a_time_that_is_none_is_refused(bad: int) -> None:
    with pytest.raises(DefinitionError, match="retention of failed runs"):
        Retention(failed=bad)


def test_a_run_that_is_retried_loses_its_end_and_is_kept() -> None:
    with kept(failed=DAY) as env:
        bad = env.start(fails)
        env.run_until_idle()
        first = env.get(bad).kept_until
        env.advance("2d")
        env.wait_for(env.client.retry(bad.id))
        env.wait_for(Sweep(env._local.ports).delete_expired(lambda: 60_000))
        env.run_until_idle()
        header = env.get(bad)
        assert header.status is RunStatus.FAILED
        assert header.kept_until != first
