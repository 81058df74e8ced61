"""`patched`: one function for runs that began before a change, and for those that come later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import current, hook, patched, set_attributes, sleep, step, workflow
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.engine.endings import TurnEnd
from stepwell.errors import RunFailed
from stepwell.testing import Environment

with registry.isolated():

    @step
    async def old_way(n: int) -> str:
        return f"old {n}"

    @step
    async def new_way(n: int) -> str:
        return f"new {n}"


async def before() -> Any:
    first = await old_way(1)
    await hook("go")
    return [first, await old_way(2)]


async def changed_at_the_top() -> Any:
    first = await (new_way(1) if patched("way") else old_way(1))
    await hook("go")
    return [first, await (new_way(2) if patched("way") else old_way(2))]


async def changed_behind_the_hook() -> Any:
    first = await old_way(1)
    await hook("go")
    return [first, await (new_way(2) if patched("way") else old_way(2))]


async def changed_before_the_hook() -> Any:
    first = await old_way(1)
    if patched("way"):
        await new_way(9)
    await hook("go")
    return [first, await old_way(2)]


def registered(body: Callable[..., Any]) -> Any:
    return workflow(name="flow")(body)


def waiting(env: Environment, body: Callable[..., Any]) -> RunHandle[Any]:
    with registry.isolated():
        run = env.start(registered(body))
        env.run_until_idle()
    return run


def go_on(env: Environment, run: RunHandle[Any], body: Callable[..., Any]) -> Any:
    """Answer the hook with this code deployed; what the run comes to."""
    with registry.isolated():
        registered(body)
        [question] = env.hooks(run)
        env.resume_hook(question.token)
        return env.result(run)


def marks(env: Environment, run: RunHandle[Any]) -> list[str]:
    events = [each.event for each in env.history(run)]
    return [event.patch for event in events if event.type == "PatchMarked"]


def test_a_run_from_before_the_change_keeps_its_way_to_the_end() -> None:
    with Environment(unchecked="its replay is that of other code") as env:
        run = waiting(env, before)
        assert go_on(env, run, changed_at_the_top) == ["old 1", "old 2"]
        assert marks(env, run) == []


def test_a_new_run_takes_the_new_way_and_says_so_once(stepwell_env: Environment) -> None:
    with registry.isolated():
        run = stepwell_env.start(registered(changed_at_the_top))
        stepwell_env.run_until_idle()
        assert marks(stepwell_env, run) == ["way"]
        [question] = stepwell_env.hooks(run)
        stepwell_env.resume_hook(question.token)
        assert stepwell_env.result(run) == ["new 1", "new 2"]
        assert marks(stepwell_env, run) == ["way"]
        stepwell_env.check()


def test_an_old_run_that_has_not_come_there_yet_takes_the_new_way() -> None:
    with Environment(unchecked="its replay is that of other code") as env:
        run = waiting(env, before)
        assert go_on(env, run, changed_behind_the_hook) == ["old 1", "new 2"]
        assert marks(env, run) == ["way"]


def test_an_open_hook_ahead_counts_as_history() -> None:
    # Nothing is left to be told before the hook is answered, and yet the run has gone past.
    with Environment(unchecked="its replay is that of other code") as env:
        run = waiting(env, before)
        with registry.isolated():
            registered(changed_before_the_hook)
            env.wait_for(env.client.wake(run.id))
            env.run_until_idle()
            assert env.get(run).attention is None
        assert go_on(env, run, changed_before_the_hook) == ["old 1", "old 2"]
        assert marks(env, run) == []


def test_a_hook_that_only_its_row_knows_counts_as_history() -> None:
    # The process died before it could note in the log that the hook was opened.
    with Environment(unchecked="its replay is that of other code") as env:
        with registry.isolated():
            run = env.start(registered(before))
            env.crash_at(1_000)
            env.run_until_idle()
            put = env.port_calls.index("store.put_hook") + 1
        with registry.isolated():
            run = env.start(registered(before))
            env.crash_at(put, "after")
            env.take_turn()
            assert env.crashes == 1
        with registry.isolated():
            registered(changed_before_the_hook)
            [question] = env.hooks(run)
            env.resume_hook(question.token)
            assert env.result(run) == ["old 1", "old 2"]
            assert marks(env, run) == []
            assert TurnEnd.BLOCKED not in env.turns


def test_a_mark_that_nobody_asks_for_any_more_is_left_alone() -> None:
    with Environment(unchecked="its replay is that of other code") as env:
        run = waiting(env, changed_at_the_top)

        async def without() -> Any:
            first = await new_way(1)
            await hook("go")
            return [first, await new_way(2)]

        assert go_on(env, run, without) == ["new 1", "new 2"]


def test_the_mark_is_durable_before_the_step_behind_it_begins(stepwell_env: Environment) -> None:
    seen: list[str] = []

    @step
    async def looks() -> None:
        rows = await stepwell_env.client.history(current.run_id)
        seen.extend(each.event.type for each in rows)

    @workflow
    async def marked_flow() -> None:
        if patched("way"):
            await looks()

    stepwell_env.run(marked_flow)
    assert seen == ["RunStarted", "PatchMarked"]


def test_the_first_answer_holds_for_all_rounds_of_a_loop() -> None:
    async def rounds(asked: bool) -> Any:
        found = []
        for n in range(3):
            found.append(await (new_way(n) if asked and patched("loop") else old_way(n)))
            await sleep("1h")
        return found

    async def plain() -> Any:
        return await rounds(asked=False)

    async def asking() -> Any:
        return await rounds(asked=True)

    with Environment(unchecked="its replay is that of other code") as env:
        run = waiting(env, plain)
        with registry.isolated():
            registered(asking)
            env.advance("5h")
            assert env.result(run) == ["old 0", "old 1", "old 2"]


def test_branches_get_one_answer(stepwell_env: Environment) -> None:
    async def branches() -> Any:
        async def branch(n: int) -> Any:
            await sleep(60 * n)
            return await (new_way(n) if patched("way") else old_way(n))

        return await asyncio.gather(*(branch(n) for n in range(3)))

    with registry.isolated():
        run = stepwell_env.start(registered(branches))
        stepwell_env.run_until_idle()
        stepwell_env.advance("1h")
        assert stepwell_env.result(run) == ["new 0", "new 1", "new 2"]
        stepwell_env.check()


def test_a_def_workflow_asks_in_the_same_way(stepwell_env: Environment) -> None:
    def flow() -> Any:
        found: Any = new_way(1) if patched("way") else old_way(1)
        hook("go")
        return [found, patched("way"), patched("other")]

    with registry.isolated():
        run = stepwell_env.start(registered(flow))
        stepwell_env.run_until_idle()
        [question] = stepwell_env.hooks(run)
        stepwell_env.resume_hook(question.token)
        assert stepwell_env.result(run) == ["new 1", True, True]
        assert marks(stepwell_env, run) == ["way", "other"]
        stepwell_env.check()


def test_a_crash_anywhere_gives_the_same_way() -> None:
    for crash_at in range(1, 40):
        with Environment() as env, registry.isolated():
            env.crash_at(crash_at)
            run = env.start(registered(changed_at_the_top))
            env.run_until_idle()
            [question] = env.hooks(run)
            env.resume_hook(question.token)
            assert env.result(run) == ["new 1", "new 2"]
            assert marks(env, run) == ["way"]
            env.check()
            if not env.crashes:
                return
    pytest.fail("it never came through without a crash")


def test_outside_a_run_it_is_the_new_way() -> None:
    assert patched("anything") is True


def test_in_a_step_it_is_refused(stepwell_env: Environment) -> None:
    with registry.isolated():

        @step
        async def asks() -> bool:
            return patched("way")

        @workflow(name="flow")
        async def flow() -> bool:
            try:
                return await asks()
            except Exception as error:
                return "not replayed" in str(error)

        assert stepwell_env.run(flow) is True
        stepwell_env.check()


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_bad_name_fails_the_run(stepwell_env: Environment, name: str) -> None:
    async def flow() -> bool:
        return patched(name)

    with registry.isolated():
        run = stepwell_env.start(registered(flow))
        stepwell_env.run_until_idle()
        with pytest.raises(RunFailed, match="patch key"):
            stepwell_env.result(run)
        stepwell_env.check()


def test_a_code_that_does_not_fit_marks_nothing() -> None:
    async def unfit() -> Any:
        set_attributes({"way": "new"})
        if patched("way"):
            await new_way(1)
        await new_way(7)

    with Environment() as env:
        run = waiting(env, before)
        with registry.isolated():
            registered(unfit)
            env.wait_for(env.client.wake(run.id))
            env.run_until_idle()
            attention = env.get(run).attention
            assert attention is not None
            assert attention.kind == "BLOCKED"
        assert marks(env, run) == []
        assert env.get(run).attributes is None
        assert env.get(run).status is RunStatus.SUSPENDED


def test_made_up_names_are_bounded(stepwell_env: Environment) -> None:
    async def flow() -> None:
        for n in range(1000):
            patched(f"patch {n}")

    with registry.isolated():
        run = stepwell_env.start(registered(flow))
        stepwell_env.run_until_idle()
        with pytest.raises(RunFailed, match="500 patches"):
            stepwell_env.result(run)
        stepwell_env.check()
