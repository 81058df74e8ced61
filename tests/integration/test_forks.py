"""A fork begins with what another run has come to, and leaves that run as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from stepwell import (
    EntryConflict,
    ForkRefused,
    IdempotencyConflict,
    RetryPolicy,
    RunFailed,
    RunNotFound,
    define_hook,
    hook,
    now,
    sleep,
    start_child,
    step,
    step_hook,
    uuid4,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.core import events as e
from stepwell.core.payload import Sizes
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

CALLS: list[str] = []


@pytest.fixture
def env() -> Iterator[Environment]:
    CALLS.clear()
    with Environment(chance=0.5) as environment:
        yield environment


@step(name="fork_call", retry=RetryPolicy(max_attempts=1))
async def call(what: str) -> str:
    CALLS.append(what)
    return what


class Verdict(BaseModel):
    """What a reviewer says."""

    approved: bool


review = define_hook("fork_review", Verdict)


@workflow(name="fork_flow")
async def flow(name: str) -> list[Any]:
    first = await call(f"first {name}")
    verdict = await review()
    return [first, verdict.approved, await call("last")]


def rows_of(env: Environment, run: RunHandle[Any]) -> Any:
    return env.wait_for(env._ports.store.load(run.id))


def fork(env: Environment, run: RunHandle[Any], **spec: Any) -> RunHandle[Any]:
    handle = env.wait_for(env.client.fork(run.id, **spec))
    env.run_until_idle()
    return handle


def numbers(env: Environment, run: RunHandle[Any], kind: str) -> list[int]:
    return [each.number for each in env.history(run) if each.event.type == kind]


def ended(env: Environment) -> RunHandle[Any]:
    run = env.start(flow, "a")
    env.run_until_idle()
    env.resume_hook(env.hooks(run)[0].token, {"approved": True})
    assert env.result(run) == ["first a", True, "last"]
    CALLS.clear()
    return run


def test_a_fork_of_an_ended_run_has_all_its_outcomes(env: Environment) -> None:
    run = ended(env)
    before = rows_of(env, run)
    forked = fork(env, run)
    assert env.result(forked) == ["first a", True, "last"]
    assert CALLS == []
    header = env.get(forked)
    assert header.forked_from is not None
    assert (header.forked_from.run_id, header.forked_from.event) == (run.id, 5)
    assert rows_of(env, run) == before
    check_run(env, forked)


def test_a_fork_at_an_event_goes_on_from_there(env: Environment) -> None:
    run = ended(env)
    [received] = numbers(env, run, "HookReceived")
    forked = fork(env, run, at=received)
    assert env.result(forked) == ["first a", True, "last"]
    assert CALLS == ["last"]
    check_run(env, forked)


def test_open_hooks_begin_anew_with_tokens_of_their_own(env: Environment) -> None:
    run = env.start(flow, "a")
    env.run_until_idle()
    [old] = env.hooks(run)
    before = rows_of(env, run)
    forked = fork(env, run)
    [new] = env.hooks(forked)
    assert new.token != old.token
    check_run(env, forked)
    env.resume_hook(new.token, {"approved": False})
    assert env.result(forked) == ["first a", False, "last"]
    assert rows_of(env, run) == before
    env.resume_hook(old.token, {"approved": True})
    assert env.result(run) == ["first a", True, "last"]


def test_edited_outcomes_stand_in_their_place(env: Environment) -> None:
    run = ended(env)
    [first, _] = numbers(env, run, "StepCompleted")
    [received] = numbers(env, run, "HookReceived")
    edits = {first: "edited", received: {"approved": False}}
    forked = fork(env, run, at=received, edits=edits, actor="Ada")
    assert env.result(forked) == ["edited", False, "last"]
    [marked] = [each.event for each in env.history(forked) if each.event.type == "RunForked"]
    assert isinstance(marked, e.RunForked)
    assert (marked.source, marked.event, marked.actor) == (run.id, received, "Ada")
    check_run(env, forked)
    assert env.result(run) == ["first a", True, "last"]


def test_another_input_begins_from_the_top(env: Environment) -> None:
    run = ended(env)
    forked = fork(env, run, at=1, input={"name": "b"})
    assert CALLS == ["first b"]
    env.resume_hook(env.hooks(forked)[0].token, {"approved": True})
    assert env.result(forked) == ["first b", True, "last"]
    check_run(env, forked)


def test_code_that_does_not_fit_the_copy_blocks_the_fork(env: Environment) -> None:
    run = ended(env)
    forked = fork(env, run, input={"name": "b"})
    note = env.get(forked).attention
    assert note is not None
    assert note.kind == "BLOCKED"
    assert env.get(run).status is RunStatus.COMPLETED


def test_what_cannot_be_forked_is_refused(env: Environment) -> None:
    run = ended(env)
    [received] = numbers(env, run, "HookReceived")
    with pytest.raises(ForkRefused, match="none numbered 99"):
        fork(env, run, at=99)
    with pytest.raises(ForkRefused, match="RunStarted"):
        fork(env, run, edits={1: "x"})
    with pytest.raises(ForkRefused, match="not among those that are copied"):
        fork(env, run, at=2, edits={received: {"approved": True}})
    with pytest.raises(ForkRefused, match="does not fit its hook") as caught:
        fork(env, run, edits={received: {"approved": "maybe"}})
    assert caught.value.errors[0]["pointer"] == "/approved"
    with pytest.raises(RunNotFound):
        env.wait_for(env.client.fork("nobody"))
    unbegun = env.start(flow, "a")
    with pytest.raises(ForkRefused, match="has not begun"):
        fork(env, unbegun)


def test_one_id_or_key_is_one_fork(env: Environment) -> None:
    run = ended(env)
    one = fork(env, run, idempotency_key="k")
    again = fork(env, run, idempotency_key="k")
    assert (one.id, one.repeated, again.id, again.repeated) == (one.id, False, one.id, True)
    with pytest.raises(IdempotencyConflict):
        fork(env, run, idempotency_key="k", at=1)
    named = fork(env, run, fork_id="my-fork")
    assert named.id == "my-fork"
    with pytest.raises(IdempotencyConflict):
        fork(env, run, fork_id="my-fork", at=1)


def test_steps_that_were_under_way_begin_anew(env: Environment) -> None:
    @step(dispatch="worker")
    async def far() -> Any:
        CALLS.append("far")
        return [await step_hook("one"), await step_hook("two")]

    @workflow
    async def calls() -> Any:
        return await far()

    run = env.start(calls)
    env.run_until_idle()
    env.resume_hook(env.hooks(run)[0].token, 1)
    CALLS.clear()
    forked = fork(env, run)
    assert CALLS == ["far"]
    [two] = env.hooks(forked)
    assert two.name == "two"  # the first answer was copied
    check_run(env, forked)
    env.resume_hook(two.token, 2)
    assert env.result(forked) == [1, 2]
    check_run(env, forked)


def test_time_does_not_pass_between_a_run_and_its_fork(env: Environment) -> None:
    @workflow
    async def timed() -> Any:
        began, drawn = now(), uuid4()
        async with asyncio.timeout(3600):
            await sleep("10m")
            await hook("go")
        return [str(began), str(drawn)]

    run = env.start(timed)
    env.advance("10m")
    env.resume_hook(env.hooks(run)[0].token, 1)
    env.advance("3d")
    [fired] = numbers(env, run, "TimerFired")
    forked = fork(env, run, at=fired)
    env.advance("30m")
    env.resume_hook(env.hooks(forked)[0].token, 1)
    assert env.result(forked) == env.result(run)
    check_run(env, forked)


def test_children_that_had_ended_are_copied_and_others_start_anew(env: Environment) -> None:
    @workflow
    async def child(n: int) -> int:
        CALLS.append(f"child {n}")
        return n if n < 2 else await hook("go")

    @workflow
    async def parent() -> Any:
        return [await start_child(child, 1), await start_child(child, 2)]

    run = env.start(parent)
    env.run_until_idle()
    CALLS.clear()
    forked = fork(env, run)
    assert "child 1" not in CALLS
    assert "child 2" in CALLS
    check_run(env, forked)


def test_a_run_that_was_retried_is_forked_with_its_lives(env: Environment) -> None:
    down = True

    @step(retry=RetryPolicy(max_attempts=1))
    async def flaky() -> str:
        if down:
            raise OSError("down")
        return "up"

    @workflow
    async def tries() -> Any:
        asking = asyncio.ensure_future(hook("beside"))
        await sleep("1m")
        found = await flaky()
        return [found, await asking]

    run = env.start(tries)
    env.advance("1m")
    with pytest.raises(RunFailed):
        env.result(run)
    down = False
    env.retry(run)
    [again] = env.hooks(run)
    assert again.hook_id == "1/beside:1~2"
    forked = fork(env, run)
    env.resume_hook(env.hooks(forked)[0].token, 1)
    assert env.result(forked) == ["up", 1]
    check_run(env, forked)
    failed = fork(env, run, at=numbers(env, run, "RunFailed")[0])
    assert env.get(failed).status is not RunStatus.COMPLETED


def test_a_fork_is_forked(env: Environment) -> None:
    run = ended(env)
    [received] = numbers(env, run, "HookReceived")
    one = fork(env, run, at=received)
    two = fork(env, one)
    assert env.result(two) == ["first a", True, "last"]
    assert CALLS == ["last"]
    check_run(env, two)


def test_large_values_stay_readable_when_the_original_is_gone() -> None:
    large = "x" * 5_000

    @workflow
    async def big(text: str) -> int:
        found = await call(text)
        return len(found) + await hook("more")

    with Environment(sizes=Sizes(inline_limit=100)) as env:
        run = env.start(big, large)
        env.run_until_idle()
        forked = fork(env, run)
        env.cancel(run)
        env.wait_for(env.client.delete(run.id))
        env.run_until_idle()
        env.resume_hook(env.hooks(forked)[0].token, 7)
        assert env.result(forked) == 5_007


def test_a_fork_whose_original_is_deleted_first_fails_and_says_so() -> None:
    CALLS.clear()
    with Environment(unchecked="rows are deleted by hand") as env:
        run = ended(env)
        forked = env.wait_for(env.client.fork(run.id))
        env._local.database.change("DELETE FROM commits WHERE run_id = ?", run.id)
        env.run_until_idle()
        with pytest.raises(RunFailed, match="deleted before it was copied"):
            env.result(forked)


def test_a_copy_that_is_cut_short_goes_on_where_it_stopped(env: Environment) -> None:
    run = ended(env)
    reference = fork(env, run)
    copied = [each.event for each in env.history(reference)][:4]
    half = env.wait_for(env.client.fork(run.id, fork_id="half"))
    header = env.get(half)
    begun = [e.RunStarted(**_fields(copied[0])), *copied[1:2]]
    commit = e.Commit(first=1, turn="died", number=1, events=tuple(begun))
    assert env.wait_for(env._ports.store.append(half.id, commit))
    assert header.last_event == 0
    env.run_until_idle()
    assert env.result(half) == ["first a", True, "last"]
    untimed = [type(each.event) for each in env.history(half)]
    assert untimed == [type(each.event) for each in env.history(reference)]
    check_run(env, half)


def _fields(event: e.Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in type(event).__dataclass_fields__}


@workflow(name="fork_long")
async def long(count: int) -> int:
    return sum([len(await call("x" * 7_000)) for _ in range(count)])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_copy_of_several_commits_goes_on_where_it_stopped(
    env: Environment, when: Literal["before", "after"]
) -> None:
    run = env.start(long, 120)
    env.run_until_idle()
    env.crash_at(10**9)
    reference = fork(env, run)
    appends = [n for n, name in enumerate(env.port_calls, 1) if name == "store.append"]
    assert len(appends) >= 3
    expected = [each.event for each in env.history(reference)]
    for call in appends:
        crashes = env.crashes
        env.crash_at(call, when)
        again = fork(env, run)
        assert env.crashes == crashes + 1
        assert [type(each.event) for each in env.history(again)] == [type(e) for e in expected]
        assert env.result(again) == 120 * 7_000
    assert len(CALLS) == 120


@pytest.mark.parametrize("value", ["seen", "another"])
def test_an_entry_of_the_original_stands_in_a_fork_that_has_not_begun(
    env: Environment, value: str
) -> None:
    run = env.start(flow, "a")
    env.run_until_idle()
    env.wait_for(env.client.put_inbox(run.id, "key", "x" * 50_000, entry_id="large"))
    env.wait_for(env.client.put_inbox(run.id, "key", "seen", entry_id="one"))
    env.run_until_idle()
    env.wait_for(env.client.put_inbox(run.id, "key", "late", entry_id="late"))
    forked = env.wait_for(env.client.fork(run.id))
    put = env.client.put_inbox(forked.id, "key", value, entry_id="one")
    if value == "seen":
        env.wait_for(put)
    else:
        with pytest.raises(EntryConflict):
            env.wait_for(put)
    # Not among those that are copied, so another value is no conflict.
    env.wait_for(env.client.put_inbox(forked.id, "key", "own", entry_id="late"))
    env.run_until_idle()
    entries = env.wait_for(env.client.list_inbox(forked.id))
    assert [(each.entry_id, len(each.value)) for each in entries] == [
        ("large", 50_000),
        ("one", 4),
        ("late", 3),
    ]
    assert all(each.event for each in entries)
