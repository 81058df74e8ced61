"""Runs that go on as new ones: one chain, one end, whoever looks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import continue_as_new, current, hook, sleep, start_child, step, workflow
from stepwell.client import RunHandle
from stepwell.core.ids import child_run_id, next_run_id
from stepwell.core.messages import load_message
from stepwell.core.payload import codec
from stepwell.core.records import RunStatus
from stepwell.errors import ResultTimeout, RunCancelled, RunFailed, RunNotFound, UsageError
from stepwell.testing import Environment
from tests.integration.histories import found, kinds


@step(name="cont.add")
async def add(one: int, other: int) -> int:
    return one + other


@workflow(name="cont.count", version="3")
async def count(done: int, *, most: int = 3) -> int:
    done = await add(done, 1)
    if done < most:
        await continue_as_new(done, most=most)  # type: ignore[misc]
    return done


@workflow(name="cont.asks")
async def asks(round: int) -> Any:
    answer = await hook("question")
    if answer == "again":
        continue_as_new(round + 1)
    return [round, answer]


def at(env: Environment, run_id: str) -> RunHandle[Any]:
    return RunHandle(env.client, run_id, codec(Any, "result"))


def after(env: Environment, run: RunHandle[Any]) -> RunHandle[Any]:
    return at(env, next_run_id(run.id))


def answer(env: Environment, payload: Any) -> None:
    [question] = env.hooks()
    env.resume_hook(question.token, payload)


def test_a_run_goes_on_as_a_new_one_until_it_returns(env: Environment) -> None:
    run = env.start(count, 0)
    env.run_until_idle()
    assert env.result(run) == 3
    assert kinds(env, run) == ["RunStarted", "StepCompleted", "RunContinued"]
    chain = env.wait_for(env.client.chain(after(env, run).id))
    assert [each.status.value for each in chain] == ["CONTINUED", "CONTINUED", "COMPLETED"]
    assert [each.input for each in chain] == [
        '{"done":0,"most":3}',
        '{"done":1,"most":3}',
        '{"done":2,"most":3}',
    ]
    assert chain[0].run_id == run.id
    assert [each.continued_to for each in chain] == [chain[1].run_id, chain[2].run_id, None]
    assert [each.continued_from for each in chain] == [None, run.id, chain[1].run_id]
    assert env.wait_for(env.client.result(chain[1].run_id)) == 3


def test_a_long_chain_costs_no_stack(env: Environment) -> None:
    run = env.start(count, 0, most=300)
    env.run_until_idle()
    assert env.result(run) == 300


def test_tags_and_context_go_on_and_the_idempotency_key_does_not(env: Environment) -> None:
    client = env.client.with_options(idempotency_key="k", tags=("eu",))
    run = env.wait_for(client.start(count, 0))
    env.run_until_idle()
    second = env.get(after(env, run))
    assert (second.tags, second.idempotency_key, second.version) == (("eu",), None, "3")
    again = env.wait_for(client.start(count, 0))
    assert (again.id, again.repeated) == (run.id, True)
    assert env.result(again) == 3


def test_a_def_workflow_goes_on_too(env: Environment) -> None:
    @workflow(name="cont.blocking")
    def blocking(done: int) -> int:
        if done < 2:
            continue_as_new(done + 1)
        return done

    run = env.start(blocking, 0)
    env.run_until_idle()
    assert env.result(run) == 2


@pytest.mark.parametrize("colour", ["async", "def"])
def test_no_except_and_no_finally_keeps_a_run_from_going_on(env: Environment, colour: str) -> None:
    touched: list[str] = []

    def stubborn(done: int) -> str:
        if done:
            return "second"
        try:
            continue_as_new(1)
        except:  # noqa: E722 - what is to be tried
            touched.append("swallowed")
        return "first"

    @workflow(name="cont.stubborn")
    async def in_async(done: int) -> str:
        try:
            return stubborn(done)
        finally:
            if not done:
                await add(1, 1)
                touched.append("a step ran")

    made = in_async if colour == "async" else workflow(name="cont.stubborn_def")(stubborn)
    run = env.start(made, 0)
    env.run_until_idle()
    assert env.result(run) == "second"
    assert set(touched) == {"swallowed"}
    assert kinds(env, run) == ["RunStarted", "RunContinued"]


def test_what_is_open_ends_with_the_run(env: Environment) -> None:
    @workflow(name="cont.busy")
    async def busy(round: int) -> int:
        if round:
            return round
        asyncio.create_task(hook("left_open"))  # noqa: RUF006 - it ends with the run
        asyncio.create_task(sleep("1d"))  # noqa: RUF006
        await start_child.with_options(wait=False)(asks, 0)
        await sleep("1h")
        async with asyncio.TaskGroup() as group:
            group.create_task(hook("left_too"))
            await add(1, 2)
            continue_as_new(1)
        raise AssertionError("it does not come here")

    run = env.start(busy, 0)
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == 1
    assert env.hooks() == ()
    assert "left_open" in [each.name for each in found(env, run, "HookClosed")]
    page = env.wait_for(env.client.list_runs(workflow="cont.asks"))
    assert [each.status for each in page.items] == [RunStatus.CANCELLED]
    assert env.next_timer(run) is None


def test_who_waits_for_a_result_waits_for_the_last_link(env: Environment) -> None:
    run = env.start(asks, 0)
    env.run_until_idle()
    answer(env, "again")
    assert env.get(run).status is RunStatus.CONTINUED
    with pytest.raises(ResultTimeout):
        env.result(run)
    answer(env, 7)
    assert env.result(run) == [1, 7]


def test_a_parent_gets_the_result_of_the_last_link(env: Environment) -> None:
    @workflow(name="cont.parent")
    async def parent() -> Any:
        handle = await start_child.with_options(wait=False)(asks, 0)
        return [await handle.result(), handle.run_id]

    run = env.start(parent)
    env.run_until_idle()
    for _ in range(3):
        answer(env, "again")
    assert [each.kind for each in env.get(run).waiting] == ["child"]
    answer(env, "enough")
    result, first = env.result(run)
    assert result == [3, "enough"]
    chain = env.wait_for(env.client.chain(first))
    assert len(chain) == 4
    assert {each.parent for each in chain} == {chain[0].parent}
    assert found(env, run, "ChildEnded")[0].run_id == chain[-1].run_id


@pytest.mark.parametrize("deleted", [1, 3])
def test_a_parent_finds_the_last_link_though_others_were_deleted_long_ago(
    env: Environment, deleted: int
) -> None:
    @workflow(name="cont.patient")
    async def parent() -> Any:
        return await start_child(asks, 0)

    run, other = env.start(parent), env.start(count, 0, most=1)
    env.run_until_idle()
    for _ in range(3):
        answer(env, "again")
    link = child_run_id(run.id, "cont.asks:1")
    for _ in range(deleted):
        env.wait_for(env.client.delete(link))
        env.run_until_idle()
        link = next_run_id(link)
    env.advance("31d")
    env.wait_for(env.client.delete(other.id))  # which forgets runs that were deleted long ago
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert [each.kind for each in env.get(run).waiting] == ["child"]
    answer(env, "enough")
    assert env.result(run) == [3, "enough"]


@pytest.mark.breaks_laws("a run that its caller was told of is forgotten")
def test_a_link_that_nobody_follows_is_forgotten(env: Environment) -> None:
    run, other = env.start(count, 0), env.start(count, 0, most=1)
    env.run_until_idle()
    env.wait_for(env.client.delete(run.id))
    env.advance("31d")
    env.wait_for(env.client.delete(other.id))
    env.run_until_idle()
    assert env.wait_for(env._local.store.get_header(run.id)) is None


def test_a_parent_that_ends_cancels_the_last_link(env: Environment) -> None:
    @workflow(name="cont.leaves")
    async def leaves() -> None:
        await start_child.with_options(wait=False)(asks, 0)
        await hook("go")

    run = env.start(leaves)
    env.run_until_idle()
    [question] = [each for each in env.hooks() if each.name == "question"]
    env.resume_hook(question.token, "again")
    [go] = [each for each in env.hooks() if each.name == "go"]
    env.resume_hook(go.token)
    page = env.wait_for(env.client.list_runs(workflow="cont.asks"))
    assert {each.status.value for each in page.items} == {"CONTINUED", "CANCELLED"}
    assert env.result(run) is None


def test_a_cancel_of_a_continued_run_reaches_the_last_link(env: Environment) -> None:
    run = env.start(asks, 0)
    env.run_until_idle()
    for _ in range(2):
        answer(env, "again")
    env.cancel(run, "enough")
    with pytest.raises(RunCancelled, match="enough"):
        env.result(run)
    assert env.get(run).cancel_requested is False


def test_a_cancel_that_comes_while_a_run_goes_on_is_passed_on(env: Environment) -> None:
    """Accepted of a run that had not gone on yet, worked on when it had."""
    run = env.start(asks, 0)
    env.run_until_idle()
    [question] = env.hooks()
    env.wait_for(env.client.resume_hook(question.token, "again"))
    env.wait_for(env.client.cancel(run.id, "late"))
    # The flag is not seen: the message alone has to do.
    env._local.database.change("UPDATE runs SET cancel_requested = 0 WHERE run_id = ?", run.id)
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CONTINUED
    with pytest.raises(RunCancelled, match="late"):
        env.result(run)


def test_a_cancel_that_was_asked_for_goes_before(env: Environment) -> None:
    run = env.start(asks, 0)
    env.run_until_idle()
    [question] = env.hooks()
    env.wait_for(env.client.resume_hook(question.token, "again"))
    env.wait_for(env.client.cancel(run.id, "first"))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    assert len(env.wait_for(env.client.chain(run.id))) == 1


def test_a_cancel_recorded_with_the_answer_is_told_instead(env: Environment) -> None:
    """Both are recorded in one turn; the code comes to the answer first."""
    told: list[str] = []

    @workflow(name="cont.told")
    async def tells(round: int) -> None:
        await hook("question")
        try:
            continue_as_new(round + 1)
        except asyncio.CancelledError as error:
            told.append(str(error))
            await add(1, 1)
            raise

    run = env.start(tells, 0)
    env.run_until_idle()
    [question] = env.hooks()
    env.wait_for(env.client.cancel(run.id, "stop"))
    [body] = env._local.database.query("SELECT body FROM messages")
    env._local.database.change("DELETE FROM messages")
    env.wait_for(env.client.resume_hook(question.token, "on"))
    env._local.database.change("DELETE FROM messages")
    env.wait_for(env._local.queue.send(load_message(str(body[0]))))
    env._local.database.change("DELETE FROM sent_bodies")
    env.wait_for(env._local.queue.send(load_message(str(body[0]))))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    assert told[-1] == "stop"
    assert [each.name for each in found(env, run, "StepCompleted")] == ["cont.add"]


def test_a_failure_at_the_end_of_a_chain_is_its_failure(env: Environment) -> None:
    @workflow(name="cont.fails")
    async def fails(round: int) -> None:
        if round:
            raise ValueError("in the end")
        continue_as_new(1)

    run = env.start(fails, 0)
    env.run_until_idle()
    with pytest.raises(RunFailed, match="in the end"):
        env.result(run)


def test_bad_arguments_and_places_are_named_at_once(env: Environment) -> None:
    @step(name="cont.in_step")
    async def in_step() -> None:
        continue_as_new(1)

    @workflow(name="cont.wrong")
    async def wrong(what: str) -> None:
        if what == "step":
            await in_step.with_options(retry=None)()
        continue_as_new(*{"missing": (), "type": (object(),), "many": ("a", "b")}[what])

    for what, told in {
        "missing": "missing a required argument",
        "type": "value at $.what",
        "many": "too many positional",
        "step": "a step cannot do this",
    }.items():
        run = env.start(wrong, what)
        env.run_until_idle()
        assert env.get(run).status is RunStatus.FAILED
        assert told in str(env.get(run).error)
    with pytest.raises(UsageError, match="there is no run here"):
        continue_as_new(1)
    with pytest.raises(RunNotFound):
        env.wait_for(env.client.chain("nowhere"))


def test_an_input_that_is_too_large_fails_the_run(env: Environment) -> None:
    @workflow(name="cont.swells")
    async def swells(text: str) -> None:
        continue_as_new("x" * 50_000_000)

    run = env.start(swells, "x")
    env.run_until_idle()
    assert "PayloadTooLarge" in str(env.get(run).error)


def test_what_is_in_the_inbox_goes_on(env: Environment) -> None:
    @workflow(name="cont.inbox")
    async def keeps(round: int) -> Any:
        answer = await hook("question")
        if answer == "again":
            continue_as_new(round + 1)
        return [round, dict(current.run.inbox)]

    run = env.start(keeps, 0)
    env.run_until_idle()
    for key, value in (("a", 1), ("b", "x" * 50_000), ("a", 2)):
        env.wait_for(env.client.put_inbox(run.id, key, value))
        env.advance("1s")
    answer(env, "again")
    env.wait_for(env.client.put_inbox(run.id, "c", 3))
    env.run_until_idle()
    answer(env, "enough")
    assert env.result(run) == [1, {"b": "x" * 50_000, "a": 2, "c": 3}]
