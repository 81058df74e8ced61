"""Rules of children, chains and cancels that users of other engines trip over, a few lines each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import continue_as_new, hook, start_child, step, workflow
from stepwell.core.ids import child_run_id
from stepwell.core.records import RunStatus
from stepwell.engine.settings import Limits
from stepwell.errors import ChildTooDeep
from stepwell.testing import Environment
from tests.integration.histories import found


@workflow(name="rules.asks")
async def asks(what: Any = None) -> Any:
    return [await hook("question")]


@workflow(name="rules.ends")
async def ends(how: str, rounds: int = 0) -> str:
    """Leaves two children open, and ends in one of the ways there are."""
    if rounds:
        return how
    start = start_child.with_options(wait=False)
    await start(asks)
    await start_child.with_options(wait=False, on_parent_close="abandon")(asks)
    if how == "failed":
        raise ValueError(how)
    if how == "continued":
        continue_as_new(how, 1)
    if how == "cancelled":
        await hook("never")
    return how


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "continued"])
def test_however_a_parent_ends_its_children_do_but_those_that_it_abandons(
    env: Environment, how: str
) -> None:
    run = env.start(ends, how)
    env.run_until_idle()
    if how == "cancelled":
        env.cancel(run)
    assert env.get(run).status.value == how.upper()
    children = [env.client.get(child_run_id(run.id, f"rules.asks:{n}")) for n in (1, 2)]
    statuses = [env.wait_for(child).status for child in children]
    assert statuses == [RunStatus.CANCELLED, RunStatus.SUSPENDED]


def test_two_children_with_the_same_input_are_two(env: Environment) -> None:
    @workflow
    async def twice() -> Any:
        return list(await asyncio.gather(start_child(asks, 1), start_child(asks, 1)))

    run = env.start(twice)
    env.run_until_idle()
    for n, held in enumerate(env.hooks(), 1):
        env.resume_hook(held.token, n)
    # A list of one comes back as a list of one, also from a child that had waited.
    assert sorted(env.result(run)) == [[1], [2]]


def test_a_chain_stands_where_its_first_run_does(env: Environment) -> None:
    @workflow
    async def deep(rounds: int) -> Any:
        if rounds:
            continue_as_new(rounds - 1)
        try:
            return await start_child(asks)
        except ChildTooDeep:
            return "too deep"

    @workflow
    async def top() -> Any:
        return await start_child(deep, 3)

    with Environment(limits=Limits(depth=1)) as shallow:
        assert shallow.run(top) == "too deep"


@workflow(name="rules.named")
async def named(
    run_id: str, wait: bool, key: str, timeout: int, tags: str, context: str, rounds: int = 0
) -> list[Any]:
    given: dict[str, Any] = {
        "run_id": run_id,
        "wait": wait,
        "key": key,
        "timeout": timeout,
        "tags": tags,
    }
    if rounds == 0:
        continue_as_new(**given, context=context, rounds=1)
    if rounds == 1:
        return await start_child(named, **given, context=context, rounds=2)
    return [*given.values(), context]


def test_parameters_may_have_any_name(env: Environment) -> None:
    given: dict[str, Any] = {
        "run_id": "r",
        "wait": False,
        "key": "k",
        "timeout": 5,
        "tags": "t",
        "context": "c",
    }
    run = env.start(named, **given)
    env.run_until_idle()
    assert env.result(run) == list(given.values())


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_a_key_stands_for_its_run_however_that_has_ended(env: Environment, how: str) -> None:
    client = env.client.with_options(idempotency_key="one")
    run = env.wait_for(client.start(ends, how))
    env.run_until_idle()
    if how == "cancelled":
        env.cancel(run)
    before = env.get(run)
    again = env.wait_for(client.start(ends, how))
    env.run_until_idle()
    assert (again.id, again.repeated) == (run.id, True)
    assert env.get(run) == before


def test_a_run_goes_on_without_arguments_too(env: Environment) -> None:
    rounds: list[int] = []

    @step
    async def counted() -> int:
        rounds.append(1)
        return len(rounds)

    @workflow
    async def counts() -> int:
        done = await counted()
        if done < 3:
            continue_as_new()
        return done

    run = env.start(counts)
    env.run_until_idle()
    assert env.result(run) == 3


def test_a_cancel_is_recorded_once_with_its_reason(env: Environment) -> None:
    run = env.start(asks)
    env.run_until_idle()
    env.wait_for(env.client.cancel(run.id, "first", actor="Ada"))
    env.wait_for(env.client.cancel(run.id, "second"))
    env.run_until_idle()
    assert [(each.reason, each.actor) for each in found(env, run, "CancelRequested")] == [
        ("first", "Ada")
    ]
    assert [each.reason for each in found(env, run, "RunCancelled")] == ["first"]


@pytest.mark.parametrize("status", ["COMPLETED", "CANCELLED"])
def test_an_ended_run_is_not_run_again_by_anybody(env: Environment, status: str) -> None:
    run = env.start(asks)
    env.run_until_idle()
    if status == "CANCELLED":
        env.cancel(run)
    else:
        env.resume_hook(env.hooks(run)[0].token, 1)
    before = env.history(run)
    env.wait_for(env.client.wake(run.id))
    env.wait_for(env.client.cancel(run.id))
    env.run_until_idle()
    assert env.history(run) == before
    assert env.get(run).status.value == status
