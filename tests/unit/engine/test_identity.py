"""Ids come from scopes and order of creation, never from what ends first."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepwell import hook, sleep, step, uuid4, workflow
from stepwell import random as a_random
from stepwell.authoring.registry import registry
from stepwell.core import events as e
from stepwell.core.commands import OpenHook, RunStep, StartTimer
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.state import RunState
from stepwell.engine.endings import Returned
from stepwell.engine.replay import Replay
from stepwell.testing import Environment

#: A branch: how many steps it runs before and after its own branches, and those.
Tree = tuple[int, int, list[Any]]

with registry.isolated():

    @step
    async def work(path: str, n: int) -> int:
        return n

    @workflow
    async def tree(shape: Any) -> int:
        return await branch("root", shape)


async def branch(path: str, shape: Tree) -> int:
    before, after, children = shape
    total = 0
    for n in range(before):
        total += await work(path, n)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(branch(f"{path}/{n}", child)) for n, child in enumerate(children)
        ]
    total += sum(task.result() for task in tasks)
    for n in range(after):
        total += await work(path, before + n)
    return total


def begun(definition: WorkflowDefinition, *args: Any) -> tuple[Replay, RunState]:
    state = RunState()
    started = e.RunStarted(
        at=1_000, workflow="w", version="1", seed="s", input=definition.arguments.encode(args, {})
    )
    state.apply(started)
    replay = Replay("a-run", definition, state, {})
    replay.run([started])
    return replay, state


def finish_in_random_order(definition: WorkflowDefinition, shape: Any, seed: int) -> Any:
    """Complete pending steps in some order. Digests by id, then the outcome."""
    replay, state = begun(definition, shape)
    choose = random.Random(seed)
    digests: dict[str, str] = {}
    while replay.outcome is None:
        for each in replay.pending.values():
            assert isinstance(each.command, RunStep)
            digests[each.command.id] = each.command.digest
        command = choose.choice(list(replay.pending.values())).command
        assert isinstance(command, RunStep)
        done = e.StepCompleted(
            at=2_000,
            step=command.id,
            name="work",
            digest=command.digest,
            attempt=1,
            result=json.dumps(command.args[1]),
        )
        state.apply(done)
        replay.feed(done)
    replay.unwind()
    return digests, replay.outcome


trees = st.recursive(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.just([])),
    lambda below: st.tuples(st.integers(0, 2), st.integers(0, 2), st.lists(below, max_size=3)),
    max_leaves=8,
)


@given(trees, st.integers(), st.integers())
def test_every_step_has_one_id_whichever_branch_ends_first(
    shape: Tree, one: int, other: int
) -> None:
    first = finish_in_random_order(tree.definition, shape, one)
    second = finish_in_random_order(tree.definition, shape, other)
    assert first == second
    assert isinstance(first[1], Returned)


def test_a_task_counts_in_the_order_of_its_creation_not_of_its_start() -> None:
    @workflow
    async def flow() -> None:
        gate = asyncio.Event()

        async def late() -> None:
            await gate.wait()
            await work("late", 1)

        async def early() -> None:
            await work("early", 1)
            gate.set()

        await asyncio.gather(late(), early())

    replay, _ = begun(flow.definition)
    assert replay.asked == ["2/work:1"]
    replay.unwind()


def test_names_count_apart_in_each_scope_and_keys_stand_apart_from_counts() -> None:
    @workflow
    async def flow() -> None:
        async def child() -> None:
            await asyncio.gather(work("b", 1), hook("ask"), hook("ask", key="work:1"), sleep("1h"))

        await asyncio.gather(work("a", 1), work("a", 2), child())

    replay, _ = begun(flow.definition)
    assert replay.asked == [
        "1/work:1", "2/work:1", "3.1/work:1", "3.2/ask:1", "ask@work:1", "3.4/sleep:1"
    ]  # fmt: skip
    kinds = [type(each.command) for each in replay.pending.values()]
    assert kinds == [RunStep, RunStep, RunStep, OpenHook, OpenHook, StartTimer]
    replay.unwind()


def test_an_id_is_fixed_when_a_call_is_awaited_not_when_it_is_made() -> None:
    @workflow
    async def flow() -> None:
        first, second = work("first", 1), work("second", 2)
        await second
        await first

    replay, _ = begun(flow.definition)
    [pending] = replay.pending.values()
    assert isinstance(pending.command, RunStep)
    assert pending.command.id == "work:1"
    assert pending.command.args == ("second", 2)
    replay.unwind()


def test_random_values_depend_on_scope_and_place_and_differ_between_runs() -> None:

    @workflow
    async def flow() -> list[str]:
        async def one() -> str:
            return str(uuid4())

        found = await asyncio.gather(one(), one())
        return [*found, str(uuid4()), str(uuid4()), str(a_random()), str(a_random())]

    with Environment() as env:
        runs = [env.run(flow), env.run(flow)]
    assert all(len(set(found)) == 6 for found in runs)
    assert not set(runs[0]) & set(runs[1])
    assert all(0 <= float(number) < 1 for number in runs[0][4:])


def test_a_use_of_random_does_not_shift_other_ids() -> None:

    @workflow
    async def flow() -> None:
        a_random()
        await work("a", 1)

    replay, _ = begun(flow.definition)
    assert replay.asked == ["work:1"]
    replay.unwind()
