"""What a child begins with beside its input: a context of its own, and its parent's guards."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    ChildFailed,
    RetryPolicy,
    continue_as_new,
    current,
    sleep,
    start_child,
    step,
    workflow,
)
from stepwell.authoring.guards import step_guard
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core import events as e
from stepwell.core.ids import child_run_id
from stepwell.core.payload import codec
from stepwell.core.records import Guards, RunStatus
from stepwell.errors import PayloadError, PayloadTooLarge, UsageError
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, found, kinds


class Caller(BaseModel):
    tenant: str = "none"
    budget: int = 10


class Strict(BaseModel):
    tenant: str


@step(name="begins.reads")
async def reads() -> str:
    return f"{current.context.tenant}:{current.context.budget}"


@workflow(name="begins.child", context=Caller)
async def child(rounds: int = 0) -> str:
    read = await reads()
    await sleep("1h")
    if rounds:
        continue_as_new(rounds - 1)
    return read


@workflow(name="begins.strict", context=Strict)
async def strict() -> str:
    return str(current.context.tenant)


@workflow(name="begins.bare")
async def bare() -> int:
    return 1


def started(env: Environment, run: RunHandle[Any]) -> list[e.ChildStarted]:
    return found(env, run, "ChildStarted")


def child_of(env: Environment, run: RunHandle[Any], name: str) -> RunHandle[Any]:
    return RunHandle(env.client, child_run_id(run.id, name), codec(Any, "result"))


# The context


def test_a_child_begins_with_the_context_that_its_parent_gives(env: Environment) -> None:
    @workflow
    async def giving() -> list[str]:
        given = start_child.with_options(context=Caller(tenant="acme"))
        return [
            await given(child),
            await start_child(child),
            await start_child.with_options(context={"tenant": "json"})("begins.child"),
        ]

    run = env.start(giving)
    env.advance("5h")
    assert env.result(run) == ["acme:10", "none:10", "json:10"]
    # What the type makes is recorded too: another default in later code changes nothing.
    made = [each.context for each in started(env, run)]
    assert made == [
        '{"tenant":"acme","budget":10}',
        '{"tenant":"none","budget":10}',
        '{"tenant":"json"}',
    ]


def test_a_def_workflow_gives_one_to_a_child_that_it_does_not_wait_for(env: Environment) -> None:
    @workflow
    def giving_from_a_thread() -> Any:
        start = start_child.with_options(wait=False, context=Caller(tenant="acme", budget=1))
        handle: Any = start(child)
        return handle.result()

    run = env.start(giving_from_a_thread)
    env.advance("2h")
    assert env.result(run) == "acme:1"


def test_a_context_that_cannot_be_is_named_at_the_call(env: Environment) -> None:
    told: list[str] = []

    @workflow
    async def giving_badly() -> None:
        for target, given in ((strict, None), (bare, Caller()), (strict, {"tenant": 7})):
            try:
                start_child.with_options(context=given)(target)
            except (PayloadError, UsageError) as error:
                told.append(str(error))
        with pytest.raises(PayloadTooLarge, match=r"workflow .begins\.strict."):
            start_child.with_options(context={"tenant": "x" * 20_000})("begins.strict")

    run = env.start(giving_badly)
    env.run_until_idle()
    assert env.get(run).status is RunStatus.COMPLETED
    assert "none was given, and it cannot be made without" in told[0]
    assert told[1].startswith("workflow 'begins.bare' has no context: declare @workflow(context=")
    assert "tenant" in told[2]
    assert "ChildStarted" not in kinds(env, run)


def test_a_context_by_name_that_does_not_fit_fails_the_child(env: Environment) -> None:
    @workflow
    async def giving_by_name() -> str:
        try:
            await start_child.with_options(context={"tenant": 7})("begins.strict")
        except ChildFailed as error:
            return error.type
        return "it ran"

    run = env.start(giving_by_name)
    env.run_until_idle()
    assert env.result(run) == "stepwell.errors.PayloadError"


def blocked_by_another_context(env: Environment, target: Any) -> str:
    """Why a run does not go on whose code gives its child another context than it did."""
    budget = [1]

    @workflow
    async def changing() -> str:
        result: str = await start_child.with_options(context={"budget": budget[0]})(target)
        return result

    run = env.start(changing)
    env.run_until_idle()
    budget[0] = 2
    env.advance("2h")
    note = env.get(run).attention
    assert note is not None
    assert note.kind == "BLOCKED"
    return note.reason


def test_another_context_is_another_child(env: Environment) -> None:
    assert "child 'begins.child:1' with input" in blocked_by_another_context(env, child)


def test_another_context_by_name_is_another_child(env: Environment) -> None:
    reason = blocked_by_another_context(env, "begins.child")
    assert "child 'begins.child:1' with input" in reason


def test_a_field_that_a_context_gets_later_changes_nothing_of_a_child(env: Environment) -> None:
    """What is at its default is no part of what a child is known by."""
    given: list[Any] = [Caller(tenant="acme")]

    class Later(Caller):
        locale: str = "en"

    @workflow(context=Caller)
    async def carrying() -> str:
        await sleep("1h")
        return str(current.context.tenant)

    @workflow
    async def waiting_for_it() -> str:
        return await start_child.with_options(context=given[0])(carrying)

    run = env.start(waiting_for_it)
    env.run_until_idle()
    given[0] = Later(tenant="acme")
    declared = carrying.definition.context
    assert declared is not None
    later = type(declared)(codec(Later, declared.codec.owner), Later)
    object.__setattr__(carrying.definition, "context", later)
    env.advance("2h")
    assert env.result(run) == "acme"


def test_what_a_child_goes_on_as_keeps_it_and_so_does_a_fork(env: Environment) -> None:
    @workflow
    async def giving_to_rounds() -> str:
        return await start_child.with_options(context=Caller(tenant="acme"))(child, 1)

    run = env.start(giving_to_rounds)
    env.run_until_idle()
    fork = env.wait_for(env.client.fork(run.id))
    env.advance("3h")
    assert env.result(run) == env.result(fork) == "acme:10"
    assert started(env, fork)[0].run_id != started(env, run)[0].run_id


def test_a_retry_gives_it_to_the_child_that_is_started_anew(env: Environment) -> None:
    fails = [True]

    @step(retry=RetryPolicy(max_attempts=1))
    async def fails_at_first() -> str:
        if fails:
            raise ValueError("not yet")
        return str(current.context.tenant)

    @workflow(context=Caller)
    async def failing_child() -> str:
        return await fails_at_first()

    @workflow
    async def retried_giver() -> str:
        return await start_child.with_options(context=Caller(tenant="acme"))(failing_child)

    run = env.start(retried_giver)
    env.run_until_idle()
    fails.clear()
    env.retry(run)
    env.run_until_idle()
    assert env.result(run) == "acme"


def test_a_child_that_is_sent_for_again_has_it(env: Environment) -> None:
    """Its parent died after it had recorded the start."""

    @workflow
    async def dying_giver() -> str:
        return await start_child.with_options(context=Caller(tenant="acme"))(child)

    def scenario(env: Environment) -> None:
        run = env.start(dying_giver)
        env.run_until_idle()
        env.advance("3h")
        assert env.result(run) == "acme:10"

    assert sum(env.crashes for env in crashes_of(scenario)) > 10


# Guards


@step(name="begins.price")
async def price() -> int:
    return 1


@workflow(name="begins.priced")
async def priced() -> int:
    await sleep("1h")
    return await price()


def guards_of(env: Environment, run: RunHandle[Any]) -> Guards | None:
    return env.get(run).guards


def guarded(env: Environment, flow: Any, **chains: Any) -> RunHandle[Any]:
    run: RunHandle[Any] = env.wait_for(env.client.with_options(**chains).start(flow))
    env.run_until_idle()
    return run


def test_a_child_has_the_guards_of_its_parent_unless_it_is_told_otherwise(
    env: Environment,
) -> None:
    @step_guard(name="begins.watch")
    def watch(payload: dict[str, Any]) -> dict[str, Any]:
        return {"power": "observe"}

    @step_guard(name="begins.refuse")
    def refuse(payload: dict[str, Any]) -> dict[str, Any]:
        return {"power": "block", "reason": f"no {payload['step']} in {payload['workflow']}"}

    @workflow
    async def guarded_parent() -> list[Any]:
        found: list[Any] = [await start_child(priced)]
        try:
            await start_child.with_options(prepare_step=refuse)(priced)
        except ChildFailed as error:
            found.append(str(error.failure))
        start = start_child.with_options(wait=False, prepare_step=[], review_step=[])
        return [*found, await (await start(priced)).result()]

    run = guarded(env, guarded_parent, prepare_step=watch, review_step=watch)
    env.advance("3h")
    [first, refused, free] = env.result(run)
    assert (first, free) == (1, 1)
    assert "no begins.price in begins.priced" in refused
    assert [guards_of(env, child_of(env, run, f"begins.priced:{n}")) for n in (1, 2, 3)] == [
        Guards(before=("begins.watch",), after=("begins.watch",)),
        Guards(before=("begins.refuse",), after=("begins.watch",)),
        None,
    ]


def test_a_child_gets_the_guards_that_its_parent_has_when_it_starts(env: Environment) -> None:
    @step_guard(name="begins.later")
    def later(payload: dict[str, Any]) -> dict[str, Any]:
        return {"power": "replace", "result": 7}

    @workflow
    async def guarded_later() -> list[int]:
        return [await start_child(priced), await start_child(priced)]

    run = guarded(env, guarded_later)
    env.wait_for(env.client.resume(run.id, prepare_step=later))
    env.advance("3h")
    assert env.result(run) == [1, 7]


def test_a_child_whose_guards_nobody_knows_is_blocked(env: Environment) -> None:
    with pytest.raises(UsageError, match="only this process knows it"):
        start_child.with_options(prepare_step=lambda _: {"power": "observe"})

    @workflow
    async def guarded_blindly() -> int:
        return await start_child(priced)

    with registry.isolated():

        @step_guard(name="begins.watch_all")
        def watch(payload: dict[str, Any]) -> dict[str, Any]:
            return {"power": "observe"}

        run = guarded(env, guarded_blindly, prepare_step=watch)
    env.advance("3h")
    one = child_of(env, run, "begins.priced:1")
    note = env.get(one).attention
    assert note is not None
    assert note.kind == "BLOCKED"
    assert "begins.watch_all" in note.reason
    for each in (one, run):
        env.wait_for(env.client.resume(each.id, prepare_step=[]))
    env.run_until_idle()
    assert env.result(run) == 1


def test_a_run_that_gives_nothing_records_nothing_of_it(env: Environment) -> None:
    @workflow
    async def plain_parent() -> int:
        return await start_child(bare)

    run = env.start(plain_parent)
    env.run_until_idle()
    text = e.dump_events(started(env, run))
    assert b"context" not in text
    assert b"guards" not in text
