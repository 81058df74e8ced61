"""Dispatched maps of runs that are retried, forked, deleted, exported and imported."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import (
    FatalError,
    RetryPolicy,
    Suspend,
    current,
    hook,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.core.payload import Sizes
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from tests.integration.attempts import turns_only

MADE: list[str] = []
BROKEN: set[str] = set()


@step(name="moved.repeat", dispatch="worker", retry=RetryPolicy(max_attempts=1))
async def repeat(text: str) -> str:
    MADE.append(f"{current.run_id} {text[:1]}")
    if text[:1] in BROKEN:
        raise FatalError(text[:1])
    return text * 2


@workflow(name="moved.flow")
async def flow() -> list[Any]:
    lengths = [len(each) for each in await repeat.map(["a" * 500, "b", "c" * 700])]
    return [lengths, await hook("after")]


@step(name="moved.last", retry=RetryPolicy(max_attempts=1))
async def last() -> str:
    if "last" in BROKEN:
        raise FatalError("last")
    return "last"


@workflow(name="moved.mapped_first")
async def mapped_first() -> list[Any]:
    lengths = [len(each) for each in await repeat.map(["a" * 500, "b"])]
    return [lengths, await last()]


@step(name="moved.asks", dispatch="worker")
async def asks(n: int) -> str:
    answer: str = await step_hook("answer", key=str(n))
    return f"{n} {answer}"


@workflow(name="moved.suspends")
async def suspends() -> list[Any]:
    found = await repeat.map(["a", "b"])
    asked = asyncio.create_task(asks.map([1, 2]))  # type: ignore[arg-type]
    await sleep("1m")
    if current.run.inbox.get("go") is None:
        raise Suspend("go")
    return [found, await asked]


@pytest.fixture
def env() -> Iterator[Environment]:
    MADE.clear()
    BROKEN.clear()
    with Environment(sizes=Sizes(inline_limit=200)) as environment:
        yield environment


def answered(env: Environment, run: RunHandle[Any]) -> Any:
    env.run_until_idle()
    [pending] = env.hooks(run)
    env.resume_hook(pending.token, "yes")
    return env.result(run)


def rows(env: Environment, table: str, run: RunHandle[Any]) -> int:
    sql = f"SELECT count(*) FROM {table} WHERE run_id = ?"
    count: int = env._local.database.query(sql, run.id)[0][0]
    return count


def test_the_history_has_all_values_in_place(env: Environment) -> None:
    run = env.start(flow)
    answered(env, run)
    text = repr(env.history(run))
    assert "a" * 1_000 in text
    assert "c" * 700 in text


def test_a_fork_keeps_what_a_map_came_to_when_the_other_run_is_deleted(env: Environment) -> None:
    run = env.start(flow)
    assert answered(env, run) == [[1_000, 2, 1_400], "yes"]
    made = len(MADE)
    forked = env.wait_for(env.client.fork(run.id))
    env.run_until_idle()
    env.wait_for(env.client.delete(run.id))
    env.run_until_idle()
    assert env.result(forked) == [[1_000, 2, 1_400], "yes"]
    assert "a" * 1_000 in repr(env.history(forked))
    assert len(MADE) == made


def test_a_fork_while_a_map_goes_on_makes_its_items_itself(env: Environment) -> None:
    run = env.start(flow)
    turns_only(env)
    forked = env.wait_for(env.client.fork(run.id))
    env.run_until_idle()
    assert answered(env, run) == [[1_000, 2, 1_400], "yes"]
    assert answered(env, forked) == [[1_000, 2, 1_400], "yes"]
    assert sorted(MADE) == sorted(f"{each.id} {name}" for each in (run, forked) for name in "abc")


def test_a_deleted_run_leaves_no_rows_of_its_maps(env: Environment) -> None:
    run = env.start(flow)
    answered(env, run)
    assert rows(env, "map_items", run) == 3
    env.wait_for(env.client.delete(run.id))
    env.run_until_idle()
    assert rows(env, "map_items", run) == rows(env, "map_shards", run) == 0


def test_an_exported_run_is_whole_elsewhere(env: Environment) -> None:
    run = env.start(flow)
    answered(env, run)
    text = env.wait_for(env.client.export(run.id))
    with Environment(sizes=Sizes(inline_limit=200)) as other:
        other.wait_for(other.client.import_run(text))
        assert other.wait_for(other.client.history(run.id)) == env.history(run)
        assert other.wait_for(other.client.get(run.id)).status is RunStatus.COMPLETED


def test_a_retried_run_maps_anew(env: Environment) -> None:
    BROKEN.add("b")
    run = env.start(flow)
    env.run_until_idle()
    assert env.get(run).status is RunStatus.FAILED
    BROKEN.clear()
    env.wait_for(env.client.retry(run.id))
    assert answered(env, run) == [[1_000, 2, 1_400], "yes"]


def test_a_retried_run_keeps_a_map_that_had_succeeded(env: Environment) -> None:
    BROKEN.add("last")
    run = env.start(mapped_first)
    env.run_until_idle()
    assert env.get(run).status is RunStatus.FAILED
    BROKEN.clear()
    env.wait_for(env.client.retry(run.id))
    env.run_until_idle()
    assert env.result(run) == [[1_000, 2], "last"]
    assert len(MADE) == 2


def test_a_workflow_that_begins_again_finds_what_its_maps_came_to(env: Environment) -> None:
    run = env.start(suspends)
    env.advance("2m")
    made = len(MADE)
    assert made == 2
    hooks = env.hooks(run)
    assert len(hooks) == 2
    env.wait_for(env.client.put_inbox(run.id, "go", "on"))
    env.run_until_idle()
    for pending in env.hooks(run):
        env.resume_hook(pending.token, "yes")
    assert env.result(run) == [["aa", "bb"], ["1 yes", "2 yes"]]
    assert len(MADE) == made
