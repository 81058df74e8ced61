"""Processes that die while the items of a dispatched map are made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Literal

import pytest

from stepwell import (
    RetryPolicy,
    StepInterrupted,
    current,
    step,
    step_hook,
    workflow,
)
from stepwell.core.map_rows import ItemRow, ShardKey
from stepwell.core.messages import MapItem
from stepwell.core.records import REMEMBERED, UNHEARD, tombstone
from stepwell.testing import Environment
from tests.integration.attempts import turns_only

MADE: list[int] = []


@step(name="crash.double", dispatch="worker", retry=RetryPolicy(initial=0))
async def double(n: int) -> int:
    MADE.append(n)
    return 2 * n


@workflow(name="crash.flow")
async def flow(count: int, most: int | None) -> int:
    return sum(await double.map(range(count), max_concurrency=most))


def calls_of(count: int, most: int | None) -> list[str]:
    with Environment(chance=0.5) as env:
        env.crash_at(10**9)
        assert env.run(flow, count, most) == count * (count - 1)
        return list(env.port_calls)


COUNT = 130


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("most", [1, None])
def test_a_crash_between_two_shards_leaves_nothing_out(
    when: Literal["before", "after"], most: int | None
) -> None:
    """At each call about the last item of the first shard, and the first ones of the second."""
    calls = calls_of(COUNT, most)
    items = [n for n, name in enumerate(calls, 1) if name == "maps.put_item"]
    for call in range(items[126], items[-1] + 8 if most else items[-1] + 4):
        with Environment(chance=0.5) as env:
            env.crash_at(call, when)
            assert env.run(flow, COUNT, most) == COUNT * (COUNT - 1), call
            assert env.crashes == (call <= len(calls)), call


def test_the_rows_of_a_map_are_put_once_though_its_first_turn_dies() -> None:
    calls = calls_of(5, 2)
    first = calls.index("store.update_header") + 1
    for call in range(1, first + 1):
        for when in ("before", "after"):
            with Environment(chance=0.5) as env:
                env.crash_at(call, when)  # type: ignore[arg-type]
                assert env.run(flow, 5, 2) == 20
                assert env.crashes == 1


def test_messages_that_are_gone_are_sent_again_after_an_hour() -> None:
    MADE.clear()
    with Environment() as env:
        run = env.start(flow, 3, None)
        turns_only(env)
        env.take_turn()
        env._local.database.change("DELETE FROM step_messages")
        env.advance("50m")
        env.wait_for(env.client.wake(run.id))
        env.run_until_idle()
        assert len(MADE) == 1
        header = env.get(run)
        assert header.due == header.waiting[0].since + UNHEARD
        env.advance("20m")
        env.wait_for(env.client.wake(run.id))
        env.run_until_idle()
        assert env.result(run) == 6
        assert sorted(MADE) == [0, 1, 2]


def test_a_wake_up_alone_sends_nothing_again() -> None:
    with Environment() as env:
        run = env.start(flow, 3, None)
        turns_only(env)
        env.wait_for(env.client.wake(run.id))
        turns_only(env)
        assert len(env.wait_for(env._local.step_queue.attempts_of(run.id))) == 3
        env.run_until_idle()


def test_a_step_that_runs_at_most_once_is_not_begun_twice() -> None:
    made: list[tuple[int, int]] = []

    @step(dispatch="worker", at_most_once=True)
    async def charge(n: int) -> int:
        made.append((n, current.attempt))
        return n

    @workflow
    async def charging() -> list[Any]:
        try:
            return await charge.map([1])
        except StepInterrupted as error:
            return [error.step]

    with Environment(chance=0.5) as env:
        env.crash_at(10**9)
        assert env.run(charging) == [1]
        calls = list(env.port_calls)
    first = calls.index("maps.put_item") + 1
    for call, result in ((first, [1]), (first + 1, ["charge*:1#0"])):
        made.clear()
        with Environment(chance=0.5) as env:
            env.crash_at(call, "before")
            assert env.run(charging) == result
            assert len(made) == 1


async def _delete(env: Environment) -> None:
    """Delete the run of the step that calls this, which is under way."""
    store = env._local.store
    header = await store.get_header(current.run_id)
    assert header is not None
    assert await store.bury(tombstone(header, env.clock.now()))
    await store.erase(header.run_id, env.clock.now() + REMEMBERED)


def _left_of_maps(env: Environment) -> list[int]:
    query = env._local.database.query
    return [
        query(f"SELECT count(*) FROM {each}")[0][0] for each in ("map_items", "map_shards", "blobs")
    ]


@workflow(name="crash.outlived")
async def outlived() -> list[str]:
    return await outlives.map([1])


@step(name="crash.outlives", dispatch="worker")
async def outlives(n: int) -> str:
    for env in OUTLIVED:
        await _delete(env)
    return "x" * 20_000


#: The environment whose run goes while an item of it is made.
OUTLIVED: list[Environment] = []


@pytest.mark.parametrize("dies", [False, True])
def test_what_an_item_comes_to_after_its_run_was_deleted_is_deleted(dies: bool) -> None:
    with Environment(chance=0.5) as env:
        OUTLIVED.clear()
        env.crash_at(10**9)
        assert env.run(outlived) == ["x" * 20_000]
        calls = list(env.port_calls)
    with Environment(chance=0.5, unchecked="a run is deleted that goes on") as env:
        OUTLIVED.append(env)
        env.start(outlived)
        env.crash_at(calls.index("maps.finish") + 1 if dies else 10**9)
        env.run_until_idle()
        assert (env.crashes, _left_of_maps(env)) == (dies, [0, 0, 0])


def test_an_item_that_is_withdrawn_from_a_deleted_run_leaves_no_claim() -> None:
    @step(dispatch="worker", at_most_once=True)
    async def claims(n: int) -> int:
        await _delete(env)
        claim = ItemRow(
            key=ShardKey(current.run_id, "claims*:1", 2, 0),
            index=0,
            revision=1,
            status="started",
            attempt=1,
        )
        await env._ports.maps.put_item(claim)  # as if it had come after the deletion
        await asyncio.Event().wait()
        return n

    @workflow
    async def claimed() -> list[int]:
        return await claims.map([1])

    with Environment(unchecked="a run is deleted that goes on") as env:
        env._settings = replace(env._settings, look_every=10)
        env._engine = env._new_engine()
        env.start(claimed)
        env.run_until_idle()
        assert _left_of_maps(env) == [0, 0, 0]


def test_a_message_that_comes_too_early_is_put_off() -> None:
    with Environment() as env:
        run = env.start(flow, 1, None)
        turns_only(env)
        [sent] = env.wait_for(env._local.step_queue.attempts_of(run.id))
        assert isinstance(sent, MapItem)
        env._local.database.change("DELETE FROM step_messages")
        late = sent.model_copy(update={"due": env.clock.now() + 60_000})
        env.wait_for(env._local.step_queue.send(late))
        env.run_until_idle()
        assert env.wait_for(env.client.progress(run.id))[0].completed == 0
        env.advance("1m")
        assert env.result(run) == 0


def test_an_item_of_a_shard_that_is_called_off_is_not_made() -> None:
    MADE.clear()
    with Environment(unchecked="a shard is called off that its run waits for") as env:
        run = env.start(flow, 2, None)
        turns_only(env)
        [wait] = env.get(run).waiting
        env.wait_for(env._ports.maps.cancel_shard(ShardKey(run.id, wait.id, 2, 0)))
        env.run_until_idle()
        assert MADE == []


def test_an_item_that_has_its_outcome_is_not_made_again() -> None:
    call = calls_of(1, None).index("maps.finish") + 1
    MADE.clear()
    with Environment(chance=0.5) as env:
        env.crash_at(call, "before")
        assert env.run(flow, 1, None) == 0
        assert env.crashes == 1
        assert MADE == [0]


def test_the_hook_of_an_item_stays_open_until_the_run_knows_of_the_item() -> None:
    @step(dispatch="worker")
    async def asks(n: int) -> int:
        answer: int = await step_hook("answer")
        return answer + n

    @workflow
    async def asking() -> list[int]:
        return await asks.map([1])

    with Environment(chance=0.5) as env:
        run = env.start(asking)
        turns_only(env)
        env.crash_at(2, "after")
        env.take_turn()
        assert env.port_calls[1] == "store.put_hook"
        [hook] = env.hooks(run)
        env.wait_for(env.client.wake(run.id))
        turns_only(env)
        assert env.hooks(run) == (hook,)
        env.run_until_idle()
        env.resume_hook(hook.token, 10)
        assert env.result(run) == [11]
