"""Scenarios of runs that are paused, retried, forked and shielded."""

from __future__ import annotations

import asyncio
from typing import Any

from examples.outside import outside
from stepwell import FatalError, RetryPolicy, current, hook, shield, step, workflow
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from tests.simulation.scenario import Scenario, answer


@step(name="lives.note")
async def note(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(
    name="lives.note_away",
    dispatch="worker",
    retry=RetryPolicy(max_attempts=20, initial=0, jitter="none"),
)
async def note_away(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


@step(name="lives.reach", retry=RetryPolicy(max_attempts=20, initial=0, jitter="none"))
async def reach(what: str) -> str:
    if not outside().effects("outage"):
        raise FatalError("down")
    return outside().request("note", current.idempotency_key, what)


async def _beside() -> str:
    try:
        return await hook("beside")
    finally:
        await note("beside is over")


@workflow(name="lives.reopened")
async def reopened() -> list[Any]:
    found: list[Any] = [await note("first"), await hook("question")]
    try:
        async with asyncio.TaskGroup() as group:
            away = group.create_task(note_away("away"))
            beside = group.create_task(_beside())
            found.append(await away)
            found.append(await reach("there"))
        return [*found, beside.result()]
    finally:
        await note("tidied")


@workflow(name="lives.paused")
async def paused() -> list[Any]:
    found = [await note("before"), await hook("question")]
    async with shield():
        found.append(await note("guarded"))
    return [*found, await note_away("after")]


def _ends(env: Environment, run: RunHandle[Any], status: RunStatus) -> None:
    """Let pass what a frozen process takes, until the run has ended so."""
    for _ in range(6):
        if env.get(run).status is status:
            return
        env.advance("10m")
    raise AssertionError(f"{env.get(run)}")


def _reopen(env: Environment, run: RunHandle[Any]) -> None:
    answer(env, run, "question", 1)
    _ends(env, run, RunStatus.FAILED)
    outside().request("outage", "over", "yes")
    env.retry(run)
    for _ in range(6):
        if env.hooks(run):
            break
        env.advance("10m")
    answer(env, run, "beside", 2)


def _pause(env: Environment, run: RunHandle[Any]) -> None:
    env.pause(run, "a look first")
    answer(env, run, "question", 1)
    env.resume(run)


def _fork(env: Environment, run: RunHandle[Any]) -> None:
    answer(env, run, "question", 1)
    _ends(env, run, RunStatus.COMPLETED)
    number = next(r.number for r in env.history(run) if r.event.type == "HookReceived")
    env.wait_for(env.client.fork(run.id, at=number, edits={number: 2}, fork_id="the-fork"))
    env.run_until_idle()


LIVES = (
    Scenario(name="reopened", workflow=reopened, script=_reopen),
    Scenario(name="paused", workflow=paused, script=_pause),
    Scenario(name="forked", workflow=paused, script=_fork),
)
