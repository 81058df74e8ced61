"""Attributes that a workflow sets on its run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell import hook, set_attributes, sleep, step, workflow
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.errors import RunFailed, UsageError
from stepwell.testing import Environment

with registry.isolated():

    @step
    async def touch(n: int) -> int:
        return n


def shown(env: Environment, run: RunHandle[Any]) -> Any:
    attributes = env.get(run).attributes
    return None if attributes is None else json.loads(attributes)


def recorded(env: Environment, run: RunHandle[Any]) -> list[Any]:
    events = [each.event for each in env.history(run)]
    return [json.loads(event.attributes) for event in events if event.type == "AttributesSet"]


async def staged() -> str:
    set_attributes({"stage": "new", "amount": 40, "vip": True})
    await touch(1)
    set_attributes({"stage": "asked"})
    await hook("go")
    set_attributes({"stage": "done", "vip": None})
    return "ended"


def test_they_are_shown_while_the_run_waits_and_after_it_ended(stepwell_env: Environment) -> None:
    run = stepwell_env.start(workflow(name="staged")(staged))
    stepwell_env.run_until_idle()
    assert shown(stepwell_env, run) == {"stage": "asked", "amount": 40, "vip": True}
    [question] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(question.token)
    assert shown(stepwell_env, run) == {"stage": "done", "amount": 40}
    assert recorded(stepwell_env, run) == [
        {"stage": "new", "amount": 40, "vip": True},
        {"stage": "asked"},
        {"stage": "done", "vip": None},
    ]


def test_a_replay_records_nothing_again(stepwell_env: Environment) -> None:
    run = stepwell_env.start(workflow(name="staged")(staged))
    stepwell_env.run_until_idle()
    before = stepwell_env.history(run)
    stepwell_env.wait_for(stepwell_env.client.wake(run.id))
    stepwell_env.run_until_idle()
    assert stepwell_env.history(run) == before


def test_what_is_set_between_two_waits_is_one_event(stepwell_env: Environment) -> None:
    @workflow
    async def counting() -> None:
        for n in range(100):
            set_attributes({"n": n})
        await sleep("1h")
        set_attributes({"n": 99})

    run = stepwell_env.start(counting)
    stepwell_env.run_until_idle()
    stepwell_env.advance("2h")
    assert recorded(stepwell_env, run) == [{"n": 99}]


def test_a_run_without_them_has_none(stepwell_env: Environment) -> None:
    @workflow
    async def bare() -> None:
        await touch(1)

    run = stepwell_env.start(bare)
    stepwell_env.run_until_idle()
    assert shown(stepwell_env, run) is None


def test_a_def_workflow_sets_them_too(stepwell_env: Environment) -> None:
    @workflow
    def blocking_flow() -> None:
        set_attributes({"stage": "new"})
        sleep("1h")
        set_attributes({"stage": "done"})

    run = stepwell_env.start(blocking_flow)
    stepwell_env.run_until_idle()
    stepwell_env.advance("2h")
    assert shown(stepwell_env, run) == {"stage": "done"}


def test_crashes_anywhere_lose_none_of_them() -> None:
    for crash_at in range(1, 60):
        with Environment() as env, registry.isolated():
            env.crash_at(crash_at, "after")
            run = env.start(workflow(name="staged")(staged))
            env.run_until_idle()
            assert shown(env, run) == {"stage": "asked", "amount": 40, "vip": True}
            [question] = env.hooks(run)
            env.resume_hook(question.token)
            assert shown(env, run) == {"stage": "done", "amount": 40}
            env.check()
            if not env.crashes:
                return
    pytest.fail("it never came through without a crash")


def test_too_much_fails_the_run_on_every_pass(stepwell_env: Environment) -> None:
    @workflow
    async def flooding() -> None:
        await touch(1)
        set_attributes({f"a{n}": "x" * 1000 for n in range(20)})

    run = stepwell_env.start(flooding)
    stepwell_env.run_until_idle()
    with pytest.raises(RunFailed, match="at most 8,192"):
        stepwell_env.result(run)


def test_what_was_refused_and_caught_changes_nothing(stepwell_env: Environment) -> None:
    @workflow
    async def careful() -> None:
        set_attributes({"kept": 1})
        try:
            set_attributes({"more": 1, "bad": [1]})  # type: ignore[dict-item]
        except UsageError:
            await touch(1)

    run = stepwell_env.start(careful)
    stepwell_env.run_until_idle()
    assert shown(stepwell_env, run) == {"kept": 1}


def test_in_a_step_it_is_refused(stepwell_env: Environment) -> None:
    @step
    async def sets() -> None:
        set_attributes({"a": 1})

    @workflow
    async def setting() -> str:
        try:
            await sets()
        except Exception as error:
            return str(error)
        return "nothing"

    assert "call it in the workflow" in stepwell_env.run(setting)


def test_outside_a_run_it_only_checks() -> None:
    set_attributes({"a": 1})
    with pytest.raises(UsageError):
        set_attributes({"a": object()})  # type: ignore[dict-item]


# Picking runs by them


@workflow(name="attributes.labelled")
async def labelled(zone: str, amount: int) -> None:
    set_attributes({"zone": zone, "amount": amount, "vip": amount > 2})


def labels(env: Environment) -> list[str]:
    """Six runs, oldest first."""
    found = []
    for n in range(6):
        client = env.client.with_options(tags=("even",) if n % 2 == 0 else ("odd", "new"))
        run = env.wait_for(client.start(labelled, "eu" if n < 3 else "us", n))
        env.advance("1m")
        found.append(run.id)
    return found


def picked(env: Environment, ids: list[str], **wanted: Any) -> list[int]:
    """Which of them a list gives, page after page."""
    found: list[int] = []
    cursor: str | None = None
    while True:
        page = env.wait_for(env.client.list_runs(cursor=cursor, **wanted))
        assert len(page.items) <= wanted.get("limit", 50)
        found += [ids.index(each.run_id) for each in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_runs_are_picked_by_tags_and_attributes(stepwell_env: Environment, limit: int) -> None:
    ids = labels(stepwell_env)

    def found(**wanted: Any) -> list[int]:
        return picked(stepwell_env, ids, limit=limit, **wanted)

    assert found() == [5, 4, 3, 2, 1, 0]
    assert found(tags=["even"]) == [4, 2, 0]
    assert found(tags=["odd", "new"]) == [5, 3, 1]
    assert found(tags=["odd", "even"]) == []
    assert found(attributes={"zone": "eu"}) == [2, 1, 0]
    assert found(attributes={"zone": "us", "vip": True}) == [5, 4, 3]
    assert found(attributes={"amount": 1}) == [1]
    assert found(attributes={"amount": 1.0}) == []
    assert found(attributes={"vip": 1}) == []
    assert found(tags=["even"], attributes={"zone": "us"}, workflow="attributes.labelled") == [4]


def test_a_list_of_few_among_many_ends_its_page_and_goes_on(stepwell_env: Environment) -> None:
    ids = labels(stepwell_env)
    for _ in range(30):
        stepwell_env.start(labelled, "other", 1)
    page = stepwell_env.wait_for(stepwell_env.client.list_runs(tags=["even"], limit=1))
    assert page.items == ()
    assert page.cursor is not None
    assert picked(stepwell_env, ids, tags=["even"], limit=1) == [4, 2, 0]
