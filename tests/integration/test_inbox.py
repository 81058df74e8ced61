"""What is sent to a run, and code that waits for it: `current.run.inbox` and `Suspend`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import (
    EntryConflict,
    RunEnded,
    RunNotFound,
    Suspend,
    UsageError,
    continue_as_new,
    current,
    saga,
    sleep,
    step,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.core import events as e
from stepwell.core.payload import Sizes
from stepwell.core.records import RunStatus
from stepwell.testing import Environment


@step
async def signed_off(summary: str) -> str:
    approved = current.run.inbox.get("approved")
    if not approved:
        raise Suspend("waiting on sign-off")
    return f"{summary} by {approved}"


@step
async def drafted() -> str:
    return "draft"


@workflow
async def sign_off() -> str:
    return await signed_off(await drafted())


@step
def signed_off_in_thread(summary: str) -> str:
    if not current.run.inbox.get("approved"):
        raise Suspend("waiting on sign-off")
    return summary


@workflow
def sign_off_in_thread() -> str:
    return signed_off_in_thread("done")


@step(timeout=30)
def signed_off_in_time() -> bool:
    if not current.run.inbox.get("approved"):
        raise Suspend("waiting in time")
    return True


@workflow
def sign_off_in_time() -> bool:
    return signed_off_in_time()


@step(dispatch="worker")
async def signed_off_elsewhere() -> bool:
    if not current.run.inbox.get("approved"):
        raise Suspend("waiting elsewhere")
    return True


@workflow
async def sign_off_elsewhere() -> bool:
    return await signed_off_elsewhere()


def put(env: Environment, run: RunHandle[Any], key: str, value: Any, **more: Any) -> Any:
    entry = env.wait_for(env.client.put_inbox(run.id, key, value, **more))
    env.run_until_idle()
    return entry


def types(env: Environment, run: RunHandle[Any]) -> list[str]:
    return [each.event.type for each in env.history(run)]


@pytest.mark.parametrize(
    ("flow", "result"),
    [
        (sign_off, "draft by Ada"),
        (sign_off_in_thread, "done"),
        (sign_off_in_time, True),
        (sign_off_elsewhere, True),
    ],
)
def test_a_step_that_suspends_is_entered_again_when_input_comes(flow: Any, result: Any) -> None:
    with Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
        header = env.get(run)
        assert header.status is RunStatus.SUSPENDED
        [wait] = header.waiting
        assert (wait.kind, wait.due) == ("input", None)
        assert (wait.reason or "").startswith("waiting")
        put(env, run, "other", 1)
        assert env.get(run).status is RunStatus.SUSPENDED
        put(env, run, "approved", "Ada")
        assert env.result(run) == result
        entries = [each.event for each in env.history(run)]
        suspensions = [event for event in entries if isinstance(event, e.StepSuspended)]
        assert [(event.attempt, event.entry) for event in suspensions] == [(1, 1), (1, 2)]


def test_input_that_comes_while_a_dispatched_step_is_away_wakes_it() -> None:
    @step(dispatch="worker")
    async def slow_to_suspend(comes: bool) -> str:
        if "go" not in current.run.inbox:
            COME.append(current.run.id)
            await COMES[-1](current.run.id)
            raise Suspend("go")
        return "went"

    @workflow
    async def crossing() -> str:
        return await slow_to_suspend(True)

    with Environment() as env:

        async def comes(run_id: str) -> None:
            # What a turn would do meanwhile: it records the entry, for the step is away.
            if len(COME) == 1:
                await env.client.put_inbox(run_id, "go", True)
                await env._take_turn()

        COMES.append(comes)
        run = env.start(crossing)
        env.run_until_idle()
        assert env.result(run) == "went"


COME: list[str] = []
COMES: list[Any] = []


def test_resume_without_input_enters_the_step_again() -> None:
    with Environment() as env:
        run = env.start(sign_off)
        env.run_until_idle()
        env.wait_for(env.client.resume(run.id, actor="Ada"))
        env.run_until_idle()
        assert types(env, run)[-2:] == ["LookRequested", "StepSuspended"]
        assert env.get(run).status is RunStatus.SUSPENDED


def test_resume_of_a_run_that_waits_for_no_input_changes_nothing() -> None:
    @workflow
    async def sleeps_once() -> None:
        await sleep("1h")

    with Environment() as env:
        run = env.start(sleeps_once)
        env.run_until_idle()
        before = env.history(run)
        env.wait_for(env.client.resume(run.id))
        env.run_until_idle()
        assert env.history(run) == before


def test_a_step_that_swallows_its_suspension_is_suspended_all_the_same() -> None:
    @step
    async def greedy() -> str:
        try:
            raise Suspend("for a word")
        except BaseException:
            return "nothing of the kind"

    @workflow
    async def greedy_flow() -> str:
        return await greedy()

    with Environment() as env:
        run = env.start(greedy_flow)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["for a word"]


def test_a_step_that_raises_something_else_is_suspended_all_the_same() -> None:
    @step
    async def mistaking() -> str:
        try:
            raise Suspend("for a word")
        except BaseException as error:
            raise ValueError("what was that?") from error

    @workflow
    async def mistaking_flow() -> str:
        return await mistaking()

    with Environment() as env:
        run = env.start(mistaking_flow)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["for a word"]


def test_a_step_that_goes_on_for_ever_after_its_suspension_is_stopped() -> None:
    @step
    async def stubborn() -> None:
        try:
            raise Suspend("for a word")
        except BaseException:
            await asyncio.Event().wait()

    @workflow
    async def stubborn_flow() -> None:
        await stubborn()

    with Environment() as env:
        run = env.start(stubborn_flow)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["for a word"]


def test_a_helper_in_a_task_of_the_step_may_suspend_it() -> None:
    async def helper() -> None:
        raise Suspend("from below")

    @step
    async def grouped_below() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(helper())

    @workflow
    async def grouped_flow() -> None:
        await grouped_below()

    with Environment() as env:
        run = env.start(grouped_flow)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["from below"]


# In the workflow itself


@workflow
async def scripted() -> list[Any]:
    draft = await drafted()
    approved = current.run.inbox.get("approved")
    if approved is None:
        told = await signalled("please")
        raise Suspend(f"waiting on sign-off, {told}")
    return [draft, approved, await signalled("thanks")]


@step(identity="name")
async def signalled(word: str) -> str:
    return word


@workflow
def scripted_in_thread() -> list[Any]:
    approved = current.run.inbox.get("approved")
    if approved is None:
        raise Suspend("waiting on sign-off")
    return [approved]


def test_a_workflow_that_suspends_begins_again_with_its_records() -> None:
    with Environment() as env:
        run = env.start(scripted)
        env.run_until_idle()
        header = env.get(run)
        assert header.status is RunStatus.SUSPENDED
        assert [(wait.kind, wait.reason) for wait in header.waiting] == [
            ("input", "waiting on sign-off, please")
        ]
        put(env, run, "approved", "Ada")
        # The same step was recorded before, with another word.
        assert env.result(run) == ["draft", "Ada", "please"]
        assert types(env, run).count("StepCompleted") == 2


def test_a_workflow_may_go_another_way_once_there_is_input() -> None:
    @step
    async def asked_for(word: str) -> str:
        return word

    @workflow
    async def either() -> str:
        if "way" not in current.run.inbox:
            await asked_for("left")
            await drafted()
            raise Suspend("which way?")
        first = await drafted()
        await sleep("1h")
        return first + current.run.inbox["way"]

    with Environment() as env:
        run = env.start(either)
        env.run_until_idle()
        put(env, run, "way", " right")
        assert env.get(run).status is RunStatus.SUSPENDED
        env.advance("2h")
        assert env.result(run) == "draft right"


def test_a_step_that_is_called_with_other_arguments_is_another_one() -> None:
    ran = []

    @step
    async def tells(word: str) -> str:
        ran.append(word)
        return word

    @workflow
    async def telling() -> list[str]:
        answers = current.run.inbox
        if "first" not in answers:
            await tells("asks")
            raise Suspend("first")
        said = [await tells("first came")]
        if "second" not in answers:
            await tells("asks more")
            raise Suspend("second")
        await sleep("1h")
        return [*said, await tells("done"), await tells("asks")]

    with Environment() as env:
        run = env.start(telling)
        env.run_until_idle()
        put(env, run, "first", 1)
        put(env, run, "other", 1)
        put(env, run, "second", 1)
        env.advance("1h")
        assert env.result(run) == ["first came", "done", "asks"]
        steps = [x.event.step for x in env.history(run) if isinstance(x.event, e.StepCompleted)]
    assert steps == ["tells:1", "tells:1~2", "tells:2", "tells:2~2", "tells:3"]
    assert ran == ["asks", "first came", "asks more", "done", "asks"]


def test_a_def_workflow_suspends_and_is_resumed() -> None:
    with Environment() as env:
        run = env.start(scripted_in_thread)
        env.run_until_idle()
        env.wait_for(env.client.resume(run.id))
        env.run_until_idle()
        assert types(env, run) == ["RunStarted", "RunSuspended", "LookRequested", "RunSuspended"]
        put(env, run, "approved", True)
        assert env.result(run) == [True]


def test_a_workflow_that_swallows_its_suspension_is_suspended_all_the_same() -> None:
    @workflow
    async def swallowing() -> str:
        try:
            raise Suspend("for a word")
        except BaseException:
            await drafted()
        return "ended"

    with Environment() as env:
        run = env.start(swallowing)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["for a word"]
        assert types(env, run) == ["RunStarted", "RunSuspended"]


@pytest.mark.parametrize("flow", [sign_off, scripted, scripted_in_thread, sign_off_elsewhere])
def test_a_suspended_run_can_be_cancelled(flow: Any) -> None:
    with Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
        env.cancel(run, "no longer wanted")
        assert env.get(run).status is RunStatus.CANCELLED


# What code sees


def test_workflow_code_sees_the_same_inbox_on_every_pass() -> None:
    @workflow
    async def watching() -> list[int]:
        seen = [len(current.run.inbox)]
        for _ in range(3):
            await sleep("1h")
            seen.append(len(current.run.inbox))
        return seen

    with Environment() as env:
        run = env.start(watching)
        env.run_until_idle()
        put(env, run, "a", 1)
        put(env, run, "b", 1)
        env.advance("1h")
        put(env, run, "c", 1)
        env.advance("1h")
        env.advance("1h")
        assert env.result(run) == [0, 2, 3, 3]


def test_the_latest_entry_of_a_key_counts_and_none_is_lost() -> None:
    with Environment() as env:
        run = env.start(sign_off)
        env.run_until_idle()
        put(env, run, "approved", None, actor="Grace")
        put(env, run, "approved", "Ada")
        assert env.result(run) == "draft by Ada"
        entries = env.wait_for(env.client.list_inbox(run.id))
        assert [(each.key, each.value, each.actor) for each in entries] == [
            ("approved", None, "Grace"),
            ("approved", "Ada", None),
        ]
        assert all(each.event for each in entries)


def test_of_two_entries_of_one_moment_the_later_one_counts() -> None:
    @workflow
    def latest() -> int:
        if not current.run.inbox:
            raise Suspend("anything")
        return int(current.run.inbox["n"])

    for seed in range(5):
        with Environment(seed=seed) as env:
            run = env.start(latest)
            env.run_until_idle()
            for n in range(5):
                env.wait_for(env.client.put_inbox(run.id, "n", n))
            env.run_until_idle()
            assert env.result(run) == 4


def test_what_an_author_does_to_a_value_changes_no_inbox() -> None:
    @step
    async def appends() -> int:
        current.run.inbox["list"].append(1)
        return len(current.run.inbox["list"])

    @workflow
    async def appending() -> int:
        while "list" not in current.run.inbox:
            await sleep("1h")
        return await appends()

    with Environment() as env:
        run = env.start(appending)
        env.run_until_idle()
        put(env, run, "list", [])
        env.advance("1h")
        assert env.result(run) == 0


def test_a_large_value_is_seen_whole() -> None:
    with Environment(sizes=Sizes(inline_limit=10)) as env:
        for flow, expected in ((sign_off, f"draft by {'x' * 100}"), (scripted, None)):
            run = env.start(flow)
            env.run_until_idle()
            put(env, run, "approved", "x" * 100)
            result = env.result(run)
            assert result == expected or result[1] == "x" * 100


# Whoever sends


def test_an_entry_id_makes_two_sends_one_entry() -> None:
    with Environment() as env:
        run = env.start(sign_off)
        env.run_until_idle()
        put(env, run, "other", 1, entry_id="one")
        put(env, run, "other", 1, entry_id="one")
        assert types(env, run).count("InboxReceived") == 1
        with pytest.raises(EntryConflict, match="'one'"):
            put(env, run, "other", 2, entry_id="one")
        with pytest.raises(EntryConflict):
            put(env, run, "approved", 1, entry_id="one")
        env.run_until_idle()
        assert types(env, run).count("InboxReceived") == 1


def test_a_run_that_has_ended_takes_no_entry_but_knows_those_it_has() -> None:
    with Environment() as env:
        run = env.start(sign_off)
        env.run_until_idle()
        put(env, run, "approved", "Ada", entry_id="one")
        with pytest.raises(RunEnded, match="COMPLETED"):
            put(env, run, "approved", "Grace")
        assert put(env, run, "approved", "Ada", entry_id="one").key == "approved"
        with pytest.raises(RunEnded):
            env.wait_for(env.client.resume(run.id))


def test_a_run_that_is_not_there_takes_no_entry() -> None:
    with Environment() as env:
        for work in (
            env.client.put_inbox("nobody", "a", 1),
            env.client.list_inbox("nobody"),
            env.client.resume("nobody"),
        ):
            with pytest.raises(RunNotFound):
                env.wait_for(work)


MADE_ELSEWHERE = Suspend("made elsewhere")


@pytest.mark.parametrize("where", ["step", "workflow"])
def test_a_suspension_that_was_made_elsewhere_counts(where: str) -> None:
    @step
    async def raising() -> None:
        raise MADE_ELSEWHERE

    @workflow
    async def raising_flow() -> None:
        if where == "workflow":
            raise MADE_ELSEWHERE
        await raising()

    with Environment() as env:
        run = env.start(raising_flow)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["made elsewhere"]


@pytest.mark.parametrize("where", ["step", "workflow"])
def test_a_suspension_that_was_made_elsewhere_counts_in_a_group_too(where: str) -> None:
    async def group() -> None:
        async with asyncio.TaskGroup() as tasks, asyncio.TaskGroup() as inner:
            inner.create_task(raising_task())
            tasks.create_task(asyncio.sleep(0))

    async def raising_task() -> None:
        raise MADE_ELSEWHERE

    undone: list[str] = []

    @step
    async def grouping() -> None:
        await group()

    @workflow
    async def grouping_flow() -> None:
        async with saga() as block:
            block.add(undone.append, "undone")
            if where == "workflow":
                await group()
            await grouping()

    with Environment() as env:
        run = env.start(grouping_flow)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["made elsewhere"]
    assert undone == []


def test_a_step_suspends_in_a_thread_that_knows_no_run() -> None:
    @step
    async def threads() -> Any:
        inbox = current.run.inbox

        def look() -> Any:
            if "go" not in inbox:
                raise Suspend("made in a bare thread")
            return inbox["go"]

        async def away() -> Any:
            return await asyncio.get_running_loop().run_in_executor(None, look)

        async with asyncio.TaskGroup() as tasks:
            found = tasks.create_task(away())
        return found.result()

    @workflow
    async def threads_flow() -> Any:
        return await threads()

    with Environment() as env:
        run = env.start(threads_flow)
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["made in a bare thread"]
        put(env, run, "go", 1)
        assert env.result(run) == 1


# Going on as a new run


@workflow
async def renewed(round: int) -> list[Any]:
    if round == 1:
        await sleep("1h")
        continue_as_new(2)
    while "last" not in current.run.inbox:
        await sleep("1h")
    return sorted(current.run.inbox.items())


def test_a_run_that_goes_on_as_a_new_one_hands_its_inbox_on() -> None:
    with Environment() as env:
        run = env.start(renewed, 1)
        env.run_until_idle()
        put(env, run, "a", 1)
        put(env, run, "a", 2)
        put(env, run, "b", 1)
        env.advance("1h")
        assert put(env, run, "last", True).run_id != run.id
        env.advance("1h")
        assert env.result(run) == [["a", 2], ["b", 1], ["last", True]]


@pytest.mark.parametrize("call", range(1, 30))
def test_an_entry_that_comes_while_a_run_goes_on_as_a_new_one_is_not_lost(call: int) -> None:
    with Environment() as env:
        run = env.start(renewed, 1)
        env.run_until_idle()
        put(env, run, "a", 1)
        env.clock.move_to(env.clock.now() + 3_600_000)
        # The timer comes first, and the entry finds the run going on, or gone on.
        env.crash_at(call)
        assert env.take_turn()
        env.wait_for(env.client.put_inbox(run.id, "last", True))
        env.run_until_idle()
        env.advance("2h")
        assert env.result(run) == [["a", 1], ["last", True]]


# Outside of a run


def test_outside_a_run_there_is_no_inbox() -> None:
    for name in ("id", "inbox", "journal_dir"):
        with pytest.raises(UsageError, match=f"current.run.{name}"):
            getattr(current.run, name)


def test_outside_a_run_a_suspension_is_a_plain_exception() -> None:
    with pytest.raises(Suspend, match="for nobody"):
        raise Suspend("for nobody")
    assert not issubclass(Suspend, Exception)


@pytest.mark.parametrize("reason", ["", None, 3, "x" * 2_000])
def test_a_suspension_says_what_it_is_for(reason: Any) -> None:
    with pytest.raises(UsageError):
        Suspend(reason)


# Many at a time


@step
async def signs_item(item: int) -> int:
    if "go" not in current.run.inbox:
        raise Suspend(f"item {item}")
    return item


@step(dispatch="worker")
async def signs_far_item(item: int) -> int:
    if "go" not in current.run.inbox:
        raise Suspend(f"item {item}")
    return item


@workflow
async def signs_items() -> list[int]:
    return list(await signs_item.map(range(3)))


@workflow
async def signs_far_items() -> list[int]:
    return list(await signs_far_item.map(range(3)))


@pytest.mark.parametrize("flow", [signs_items, signs_far_items])
def test_items_of_a_map_wait_for_input_too(flow: Any) -> None:
    with Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
        put(env, run, "other", 1)
        assert env.get(run).status is RunStatus.SUSPENDED
        env.wait_for(env.client.resume(run.id))
        env.run_until_idle()
        assert env.get(run).status is RunStatus.SUSPENDED
        put(env, run, "go", True)
        assert env.result(run) == [0, 1, 2]


def test_a_fork_knows_what_was_sent_before_it_and_takes_what_comes() -> None:
    with Environment() as env:
        run = env.start(sign_off)
        env.run_until_idle()
        put(env, run, "other", 1)
        put(env, run, "approved", "Ada")
        fork = env.wait_for(env.client.fork(run.id, at=4))
        env.run_until_idle()
        assert env.get(fork).status is RunStatus.SUSPENDED
        assert [wait.reason for wait in env.get(fork).waiting] == ["waiting on sign-off"]
        put(env, fork, "approved", "Grace")
        assert env.result(fork) == "draft by Grace"
