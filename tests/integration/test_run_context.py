"""The typed context of a run: set by its workflow, read by its steps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, Field

from stepwell import RetryPolicy, current, hook, set_context, sleep, step, workflow
from stepwell.authoring.registry import registry
from stepwell.client import Client
from stepwell.errors import (
    DefinitionError,
    IdempotencyConflict,
    PayloadError,
    PayloadTooLarge,
    RunFailed,
    UsageError,
)
from stepwell.testing import Environment


class Caller(BaseModel):
    tenant: str = "none"
    budget: int = Field(default=10, ge=0)


class Strict(BaseModel):
    tenant: str


AGAIN = RetryPolicy(max_attempts=3, initial="10m", jitter="none")


@step(name="context.reads", retry=AGAIN)
async def reads(fail: int = 0) -> str:
    if current.attempt <= fail:
        raise OSError("not yet")
    return f"{current.context.tenant}:{current.context.budget}"


# Known by its name alone to whoever makes an attempt.
@step(name="context.reads_away", dispatch="worker", timeout="5m", retry=AGAIN)
async def reads_away(fail: int = 0) -> str:
    if current.attempt <= fail:
        raise OSError("not yet")
    return f"{current.context.tenant}:{current.context.budget}"


@step(name="context.reads_in_thread")
def reads_in_thread() -> str:
    return str(current.context.tenant)


def client(env: Environment, context: Any, **options: Any) -> Client:
    return env.client.with_options(context=context, **options)


def test_it_is_what_the_start_gave_and_what_was_set_since(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def flow() -> Any:
        first = await reads()
        set_context(Caller(tenant="b", budget=current.context.budget - 1))
        await hook("go")
        return [first, await reads(), await reads_in_thread.aio(), current.context.model_dump()]

    starter = client(stepwell_env, Caller(tenant="a"))
    run = stepwell_env.wait_for(starter.start(flow))
    stepwell_env.run_until_idle()
    [question] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(question.token)
    expected = ["a:10", "b:9", "b", {"tenant": "b", "budget": 9}]
    assert stepwell_env.result(run) == expected
    assert stepwell_env.get(run).context == '{"tenant":"a","budget":10}'


def test_without_one_in_the_start_the_type_makes_it(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def flow() -> str:
        return await reads()

    assert stepwell_env.run(flow) == "none:10"


def test_a_type_that_needs_fields_has_to_be_given(stepwell_env: Environment) -> None:
    @workflow(context=Strict)
    async def flow() -> str:
        tenant: str = current.context.tenant
        return tenant

    with pytest.raises(PayloadError, match="none was given"):
        stepwell_env.start(flow)
    run = stepwell_env.wait_for(client(stepwell_env, {"tenant": "a"}).start(flow))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == "a"


@pytest.mark.parametrize("reader", [reads, reads_away], ids=["inline", "dispatched"])
def test_a_step_keeps_what_it_was_called_with_over_its_attempts(
    stepwell_env: Environment, reader: Any
) -> None:
    @workflow(context=Caller)
    async def flow() -> Any:
        set_context(Caller(tenant="called"))
        early = asyncio.create_task(reader(2))
        await sleep("1m")
        set_context(Caller(tenant="later"))
        return [await early, await reader()]

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.advance("2h")
    assert stepwell_env.result(run) == ["called:10", "later:10"]


def test_a_dispatched_step_reads_plain_json_where_the_type_is_not_known(
    stepwell_env: Environment,
) -> None:
    @step(dispatch="worker")
    async def kind_away() -> str:
        return type(current.context).__name__

    workflow(name="flow", context=Caller)(_calls(kind_away))
    run = stepwell_env.wait_for(stepwell_env.client.start_named("flow"))
    stepwell_env.take_turn()
    registry._workflows[-1].pop("flow")
    stepwell_env.run_until_idle()
    workflow(name="flow", context=Caller)(_calls(kind_away))
    stepwell_env.wait_for(stepwell_env.client.wake(run.id))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == "dict"


def _calls(called: Any) -> Any:
    async def flow() -> Any:
        return await called()

    return flow


def test_what_a_reader_changes_is_his_own(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def flow() -> str:
        mine = current.context
        mine.tenant = "changed"
        return f"{current.context.tenant} {await reads()}"

    assert stepwell_env.run(flow) == "none none:10"


def test_fields_are_validated_when_it_is_set(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def flow() -> str:
        try:
            set_context(Caller().model_copy(update={"budget": -1}))
        except PayloadError as error:
            return f"{error.path} {current.context.budget}"
        return "taken"

    assert stepwell_env.run(flow) == "$.budget 10"


def test_one_that_is_too_large_is_refused(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def flow() -> None:
        set_context(Caller(tenant="x" * 20_000))

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    with pytest.raises(RunFailed, match="16,384"):
        stepwell_env.result(run)
    with pytest.raises(PayloadTooLarge):
        stepwell_env.wait_for(client(stepwell_env, Caller(tenant="x" * 20_000)).start(flow))


def test_another_context_with_one_key_is_another_start(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def flow() -> str:
        return await reads()

    def start(tenant: str) -> Any:
        starter = client(stepwell_env, Caller(tenant=tenant), idempotency_key="one")
        return stepwell_env.wait_for(starter.start(flow))

    first = start("a")
    assert start("a").id == first.id
    with pytest.raises(IdempotencyConflict):
        start("b")


def test_a_start_by_name_gives_it_as_json(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def named_flow() -> str:
        return await reads()

    starter = client(stepwell_env, {"tenant": "json"})
    run = stepwell_env.wait_for(starter.start_named("named_flow"))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == "json:10"


def test_a_start_by_name_with_one_that_does_not_fit_fails(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def named_flow() -> str:
        return await reads()

    starter = client(stepwell_env, {"budget": "many"})
    run = stepwell_env.wait_for(starter.start_named("named_flow"))
    stepwell_env.run_until_idle()
    with pytest.raises(RunFailed, match="context of workflow 'named_flow'"):
        stepwell_env.result(run)


def test_a_workflow_that_declares_none_has_none(stepwell_env: Environment) -> None:
    @workflow
    async def plain_flow() -> Any:
        told = []
        for use in (lambda: current.context, lambda: set_context(1), reads):
            try:
                found = use()
                await found
            except Exception as error:
                told.append(str(error))
        return told

    assert all("@workflow(context=" in each for each in stepwell_env.run(plain_flow))
    with pytest.raises(UsageError, match="has no context"):
        stepwell_env.wait_for(client(stepwell_env, Caller()).start(plain_flow))


def test_outside_a_run_there_is_none() -> None:
    with pytest.raises(UsageError, match="no run here"):
        _ = current.context
    with pytest.raises(UsageError, match="no run here"):
        set_context(1)


def test_a_step_cannot_set_it(stepwell_env: Environment) -> None:
    @step
    async def sets() -> None:
        set_context(Caller())

    @workflow(context=Caller)
    async def flow() -> Any:
        try:
            await sets()
        except Exception as error:
            return str(error)

    assert "a step only reads it" in stepwell_env.run(flow)


def test_a_declaration_that_is_no_type_is_refused() -> None:
    with registry.isolated(), pytest.raises(DefinitionError, match="context takes a type"):
        workflow(context={"tenant": "a"})(_calls(reads))


def test_crashes_anywhere_give_the_same() -> None:
    for crash_at in range(1, 80):
        with Environment(chance=0.5) as env, registry.isolated():

            @workflow(context=Caller)
            async def flow() -> Any:
                found = [await reads()]
                set_context(Caller(tenant="b"))
                found.append(await reads_away(1))
                await sleep("1h")
                return [*found, current.context.tenant, await reads()]

            env.crash_at(crash_at)
            run = env.start(flow)
            env.run_until_idle()
            env.advance("5h")
            assert env.result(run) == ["none:10", "b:10", "b", "b:10"]
            env.check()
            if not env.crashes:
                return
    pytest.fail("it never came through without a crash")


def test_a_keyed_step_reads_it_too(stepwell_env: Environment) -> None:
    @workflow(context=Caller)
    async def flow() -> Any:
        return await reads.with_options(key="k")()

    assert stepwell_env.run(flow) == "none:10"
