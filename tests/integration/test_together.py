"""What lies between features: runs that are forked, retried, paused, deleted with others about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from stepwell import (
    ChildCancelled,
    RetryPolicy,
    continue_as_new,
    current,
    hook,
    saga,
    shield,
    start_child,
    step,
    step_guard,
    workflow,
)
from stepwell.authoring.decorators import Workflow
from stepwell.client import RunHandle
from stepwell.core.ids import child_run_id, next_run_id
from stepwell.core.messages import InboxPut
from stepwell.core.payload import codec
from stepwell.core.records import RunStatus
from stepwell.errors import RunDeleted, RunNotEnded
from stepwell.testing import Environment


@step(name="together.note")
async def note(what: Any) -> Any:
    return what


@step_guard(name="together.replaces")
def replaces(_: Any) -> Any:
    return {"power": "replace", "result": "replaced"}


@workflow(name="together.asks")
async def asks() -> Any:
    return await hook("question")


@workflow(name="together.goes_on")
async def goes_on(round: int) -> Any:
    """Goes on once, when it is told to; then notes what its inbox held at its beginning."""
    held = {key: len(value) for key, value in current.run.inbox.items()}
    await hook(f"go-{round}")
    if round == 0:
        continue_as_new(1)
    return await note(held)


BROKEN: list[str] = []


@pytest.fixture(autouse=True)
def _broken() -> None:
    BROKEN[:] = ["broken"]


@workflow(name="together.breaks")
async def breaks(policy: Literal["cancel", "abandon"]) -> Any:
    start = start_child.with_options(wait=False, on_parent_close=policy)
    child = await start(asks)
    await hook("go")
    if BROKEN:
        raise ValueError("broken")
    return await child.result()


def at(env: Environment, run_id: str) -> RunHandle[Any]:
    return RunHandle(env.client, run_id, codec(Any, "result"))


def successor(env: Environment, run: RunHandle[Any]) -> RunHandle[Any]:
    return at(env, next_run_id(run.id))


def child_of(env: Environment, run: RunHandle[Any]) -> RunHandle[Any]:
    return at(env, child_run_id(run.id, "together.asks:1"))


def started(env: Environment, flow: Workflow[..., Any], *args: Any) -> RunHandle[Any]:
    run: RunHandle[Any] = env.start(flow, *args)
    env.run_until_idle()
    return run


def send_answer(env: Environment, run: RunHandle[Any], payload: Any = None) -> None:
    """Answer the run's only hook; nothing of it happens before the next turn."""
    [held] = env.hooks(run)
    env.wait_for(env.client.resume_hook(held.token, payload))


def answer(env: Environment, run: RunHandle[Any], payload: Any = None) -> None:
    send_answer(env, run, payload)
    env.run_until_idle()


def fork(env: Environment, run: RunHandle[Any], **options: Any) -> RunHandle[Any]:
    forked = env.wait_for(env.client.fork(run.id, **options))
    env.run_until_idle()
    return forked


def delete(env: Environment, run: RunHandle[Any]) -> None:
    env.wait_for(env.client.delete(run.id))
    env.run_until_idle()


def dies(begin: Callable[[Environment], RunHandle[Any]], call: str, when: Any) -> Iterator[Any]:
    """An environment whose next turn has died at its first port call of a name, and the run."""
    with Environment() as env:
        begin(env)
        env.crash_at(1_000_000)
        env.run_until_idle()
        number = env.port_calls.index(call) + 1
    with Environment() as env:
        run = begin(env)
        env.crash_at(number, when)
        env.take_turn()
        assert env.crashes == 1
        yield env, run


# Forks


@pytest.mark.parametrize("number", range(2, 8))
def test_a_fork_at_any_place_goes_on_with_its_child(env: Environment, number: int) -> None:
    @workflow
    async def leaves() -> Any:
        child = await start_child.with_options(wait=False)(asks)
        await note(1)
        await child.cancel("not needed")
        await note(2)
        try:
            return await child.result()
        except ChildCancelled as error:
            return error.reason

    run = started(env, leaves)
    assert len(env.history(run)) == 7
    forked = fork(env, run, at=number)
    assert env.result(forked) == "not needed"
    assert env.get(child_of(env, run)).status is RunStatus.CANCELLED


@pytest.mark.parametrize("policy", ["cancel", "abandon"])
def test_a_fork_never_touches_a_child_of_the_other_run(
    env: Environment, policy: Literal["cancel", "abandon"]
) -> None:
    run = started(env, breaks, policy)
    answer(env, run)
    BROKEN.clear()
    env.retry(run)
    first_children = list(env.hooks())
    assert len(first_children) == 1
    forked = fork(env, run)
    assert len(env.hooks()) == 2, "each has a child of its own"
    env.cancel(forked)
    if policy == "cancel":
        delete(env, forked)
    assert first_children[0] in env.hooks()
    env.resume_hook(first_children[0].token, "kept")
    assert env.result(run) == "kept"


def test_the_children_of_a_fork_begin_when_it_does(env: Environment) -> None:
    run = started(env, breaks, "cancel")
    env.advance("2h")
    forked = fork(env, run)
    child = child_of(env, forked)
    assert env.get(child).created_at == env.get(forked).created_at
    assert [wait.since for wait in env.get(forked).waiting] == [env.clock.now()] * 2


@pytest.mark.parametrize("before", [False, True])
def test_an_export_holds_what_was_sent_and_not_yet_seen(env: Environment, before: bool) -> None:
    """Files from before hold the entries alone that an event tells of."""
    run = started(env, goes_on, 0)
    env.put_inbox(run, "a", "seen")
    sent = env.wait_for(env.client.put_inbox(run.id, "large", "x" * 50_000, actor="eve"))
    text = env.wait_for(env.client.export(run.id))
    expected = env.wait_for(env.client.list_inbox(run.id))
    assert sent in expected
    if before:
        file = json.loads(text)
        assert len(file.pop("inbox")) == 2
        text = json.dumps(file)
    with Environment() as other:
        for _ in range(2):
            other.wait_for(other.client.import_run(text))
        taken = other.wait_for(other.client.list_inbox(run.id))
        assert [each.key for each in taken] == (["a"] if before else ["a", "large"])
        assert before or taken == expected
        other.resume(at(other, run.id))
        assert all(each.event for each in other.wait_for(other.client.list_inbox(run.id)))


@pytest.mark.parametrize("moved", ["forked", "imported"])
def test_the_inbox_goes_on_from_a_run_that_was_moved(env: Environment, moved: str) -> None:
    run = started(env, goes_on, 0)
    for key, value in (("a", "old"), ("a", "newer"), ("large", "x" * 50_000)):
        env.put_inbox(run, key, value)
    text = env.wait_for(env.client.export(run.id))
    with Environment() as other:
        there = env if moved == "forked" else other
        if moved == "forked":
            run, original = fork(env, run), run
            env.cancel(original)
            delete(env, original)
        else:
            other.wait_for(other.client.import_run(text))
            run = at(other, run.id)
            other.resume(run)
        entries = there.wait_for(there.client.list_inbox(run.id))
        assert [(each.key, len(each.value)) for each in entries] == [
            ("a", 3),
            ("a", 5),
            ("large", 50_000),
        ]
        assert all(each.event for each in entries)
        answer(there, run)
        answer(there, successor(there, run))
        assert there.result(run) == {"a": 5, "large": 50_000}


def test_a_fork_that_goes_on_at_once_hands_its_inbox_on(env: Environment) -> None:
    run = started(env, goes_on, 0)
    env.put_inbox(run, "a", "four")
    answer(env, run)
    forked = fork(env, run)
    answer(env, successor(env, forked))
    assert env.result(forked) == {"a": 4}


@pytest.mark.parametrize("what", ["wake", "retry", "cancel", "delete"])
def test_a_fork_that_was_refused_stays_so_and_can_be_deleted(env: Environment, what: str) -> None:
    run = started(env, asks)
    env.cancel(run)
    env.wait_for(env.client.delete(run.id))
    forked = fork(env, run)
    assert env.get(forked).status is RunStatus.FAILED
    env.wait_for(getattr(env.client, what)(forked.id))
    env.run_until_idle()
    if what == "delete":
        with pytest.raises(RunDeleted):
            env.get(forked)
        return
    assert env.get(forked).status is RunStatus.FAILED
    assert "was deleted before it was copied" in str(env.get(forked).error)


# Going on as a new run


def test_a_run_begins_with_the_inbox_that_it_was_handed(env: Environment) -> None:
    run = env.start(goes_on, 0)
    env.wait_for(env.client.put_inbox(run.id, "early", "1"))
    env.run_until_idle()
    env.put_inbox(run, "large", "x" * 50_000)
    answer(env, run)
    env.put_inbox(run, "late", "1")  # when the next one has begun
    answer(env, successor(env, run))
    assert env.result(run) == {"early": 1, "large": 50_000}


def test_what_is_open_when_a_run_goes_on_ends_and_nothing_is_undone(env: Environment) -> None:
    made: list[Any] = []

    @step(dispatch="worker")
    async def away(number: int) -> None:
        made.append(number)

    @step
    async def undo(_: Any) -> None:
        made.append("undone")

    @workflow
    async def leaves(round: int) -> Any:
        async with saga() as undoing:
            undoing.add(undo, 1)
            if round == 0:
                note.submit(1)
                away.submit(2)
                await note("x")
                continue_as_new(1)
        return dict(current.run.inbox)

    run = started(env, leaves, 0)
    assert env.wait_for(env.client.result(run.id)) == {}
    assert "undone" not in made
    delete(env, run)
    assert env.result(successor(env, run)) == {}


def test_an_entry_whose_sender_died_reaches_a_run_that_goes_on_meanwhile(env: Environment) -> None:
    run = started(env, goes_on, 0)
    send_answer(env, run)
    entry = InboxPut(run_id=run.id, entry_id="e", key="late", payload='"1"', sent_at=1)
    env.wait_for(env._local.queue.send(entry))  # and no row of it
    env.run_until_idle()
    [held] = env.wait_for(env.client.list_inbox(next_run_id(run.id)))
    assert (held.key, held.value, held.event is not None) == ("late", "1", True)


def test_other_guards_reach_a_run_that_goes_on_meanwhile(env: Environment) -> None:
    run = started(env, goes_on, 0)
    send_answer(env, run)
    env.wait_for(env.client.resume(run.id, prepare_step=[replaces]))
    env.run_until_idle()
    answer(env, successor(env, run))
    assert env.result(run) == "replaced"


def test_a_pause_reaches_a_run_that_goes_on_meanwhile() -> None:
    def begin(env: Environment) -> RunHandle[Any]:
        run = started(env, goes_on, 0)
        send_answer(env, run)
        return run

    for env, run in dies(begin, "store.update_header", "before"):
        env.wait_for(env.client.pause(run.id, "a look first", actor="Ada"))
        env.run_until_idle()
        after = successor(env, run)
        note = env.get(after).attention
        assert note is not None
        assert (note.kind, note.reason, note.actor) == ("PAUSED", "a look first", "Ada")
        assert env.get(run).attention is None
        assert not env.hooks(after)
        env.resume(run)
        answer(env, after)
        assert env.result(run) == {}


@pytest.mark.parametrize("deleted", [(0,), (1,), (0, 1)])
def test_a_chain_is_a_chain_when_links_of_it_are_deleted(
    env: Environment, deleted: tuple[int, ...]
) -> None:
    @workflow(name="together.rounds")
    async def rounds(done: int) -> Any:
        if done < 2:
            continue_as_new(done + 1)
        return await hook("end")

    @workflow
    async def parent() -> Any:
        return await start_child(rounds, 0)

    run = started(env, parent)
    links = [at(env, child_run_id(run.id, "together.rounds:1"))]
    links += [successor(env, links[0])]
    links += [successor(env, links[1])]
    for number in deleted:
        delete(env, links[number])
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.SUSPENDED
    with pytest.raises(RunNotEnded):
        delete(env, links[2])
    answer(env, links[2], "found")
    assert env.result(run) == "found"


# Parents


def test_a_retry_leaves_no_child_that_its_end_was_to_cancel() -> None:
    def begin(env: Environment) -> RunHandle[Any]:
        run = started(env, breaks, "cancel")
        send_answer(env, run)
        return run

    # The turn dies when the end shows, and somebody retries the run before that turn is repeated.
    for env, run in dies(begin, "store.update_header", "after"):
        assert env.get(run).status is RunStatus.FAILED
        BROKEN.clear()
        env.retry(run)
        assert env.get(run).status is RunStatus.SUSPENDED
        assert env.get(child_of(env, run)).status is RunStatus.CANCELLED


def test_a_child_that_is_paused_while_its_parent_is_retried_ends_for_it(env: Environment) -> None:
    run = started(env, breaks, "abandon")
    child = child_of(env, run)
    env.pause(child)
    answer(env, run)
    BROKEN.clear()
    env.retry(run)
    answer(env, child, "late")
    assert env.get(run).status is RunStatus.SUSPENDED
    env.resume(child)
    assert env.result(run) == "late"


def test_force_cancels_children_too(env: Environment) -> None:
    run = started(env, breaks, "cancel")
    env.wait_for(env.client.cancel(run.id, "its code is gone", force=True))
    env.run_until_idle()
    assert env.get(child_of(env, run)).status is RunStatus.CANCELLED


def test_a_blocked_parent_has_its_childs_end_when_its_code_fits(env: Environment) -> None:
    asked = "a"

    @workflow
    async def parent() -> Any:
        await note(asked)
        return await start_child(asks)

    run = started(env, parent)
    asked = "b"
    answer(env, child_of(env, run), "ended")
    assert env.get(run).attention is not None
    asked = "a"
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.result(run) == "ended"


def test_a_cancel_of_a_paused_parent_waits_for_its_shielded_child(env: Environment) -> None:
    @workflow
    async def parent() -> Any:
        async with shield():
            return await start_child(asks)

    run = started(env, parent)
    env.pause(run)
    env.cancel(run, "not wanted")
    assert env.get(run).status is RunStatus.SUSPENDED
    assert not env.get(run).paused
    answer(env, child_of(env, run), "ended")
    assert env.get(run).status is RunStatus.CANCELLED
    assert env.get(child_of(env, run)).status is RunStatus.COMPLETED


def test_a_child_of_the_life_before_that_ends_late_is_not_the_one_that_is_waited_for(
    env: Environment,
) -> None:
    run = started(env, breaks, "cancel")
    send_answer(env, run)
    env.take_turn()
    assert env.get(run).status is RunStatus.FAILED
    BROKEN.clear()
    env.retry(run)  # its children have not heard of its end so far
    assert env.get(child_of(env, run)).status is RunStatus.CANCELLED
    [held] = env.hooks()
    env.resume_hook(held.token, "anew")
    assert env.result(run) == "anew"


def test_a_deleted_run_has_ended_though_somebody_asked_for_a_retry_meanwhile() -> None:
    def begin(env: Environment) -> RunHandle[Any]:
        run = started(env, asks)
        env.cancel(run)
        env.wait_for(env.client.delete(run.id))
        return run

    # The log says that it is deleted, and its header nothing of it so far.
    for env, run in dies(begin, "store.append", "after"):
        env.retry(run)
        with pytest.raises(RunDeleted):
            env.get(run)
        left = env.wait_for(env._local.store.get_header(run.id))
        assert left is not None
        assert (left.status, left.due) == (RunStatus.CANCELLED, None)


# Dispatched maps


def test_a_map_in_a_saga_is_undone_and_made_again(env: Environment) -> None:
    made: list[Any] = []
    down = True

    @step
    async def undo(_: int, number: int) -> None:
        made.append(f"undone {number}")

    @step(dispatch="worker", compensate=undo)
    async def item(number: int) -> int:
        made.append(number)
        return number

    @step(retry=RetryPolicy(max_attempts=1))
    async def reach() -> str:
        if down:
            raise OSError("down")
        return "there"

    @workflow
    async def flow() -> Any:
        async with saga():
            return [await item.map([1, 2]), await reach()]

    run = started(env, flow)
    assert env.get(run).status is RunStatus.FAILED
    down = False
    env.retry(run)
    assert env.result(run) == [[1, 2], "there"]
    assert sorted(map(str, made)) == ["1", "1", "2", "2", "undone 1", "undone 2"]


def test_a_paused_run_has_its_map_ended_and_goes_on_when_it_is_resumed(env: Environment) -> None:
    @step(dispatch="worker")
    async def item(number: int) -> int:
        return number

    @workflow
    async def flow() -> Any:
        return [await item.map([1, 2, 3, 4], max_concurrency=1), await note("after")]

    run = env.start(flow)
    env.take_turn()
    env.take_turn()
    env.pause(run)
    assert env.get(run).status is RunStatus.SUSPENDED
    env.resume(run)
    assert env.result(run) == [[1, 2, 3, 4], "after"]


@pytest.mark.parametrize("call", ["steps.send", "steps.send_items"])
@pytest.mark.parametrize("how", ["paused", "blocked"])
def test_what_was_not_sent_before_a_run_was_held_is_sent_when_it_goes_on(
    call: str, how: str
) -> None:
    @step(dispatch="worker")
    async def item(number: int) -> int:
        return number

    asked = ["a"]

    @workflow
    async def flow() -> Any:
        await note(asked[0])
        return await (item(1) if call == "steps.send" else item.map([1, 2]))

    # The turn dies when it has recorded the start and sent nothing.
    for env, run in dies(lambda env: env.start(flow), call, "before"):
        if how == "paused":
            env.pause(run)
            env.resume(run)
        else:
            asked[:] = ["b"]
            env.run_until_idle()
            assert env.get(run).attention is not None
            asked[:] = ["a"]
            env.wait_for(env.client.wake(run.id))
            env.run_until_idle()
        assert env.result(run) == (1 if call == "steps.send" else [1, 2])
