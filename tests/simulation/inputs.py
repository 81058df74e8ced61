"""Scenarios of runs that wait for input, with guards before their steps and after them."""

from __future__ import annotations

import asyncio
from typing import Any

from examples.outside import outside
from stepwell import RetryPolicy, Suspend, ask, current, step, step_guard, workflow
from stepwell.client import RunHandle
from stepwell.testing import Environment
from tests.simulation.scenario import Scenario, answer


@step_guard(name="input.watch")
def watch(payload: dict[str, Any]) -> dict[str, Any]:
    outside().request("note", f"{payload['run_id']}/{payload['key']}/asked", payload["type"])
    if payload["args"] == ["replaced"]:
        return {"power": "replace", "result": "by the guard"}
    if payload["args"] == ["blocked"]:
        return {"power": "block", "reason": "not this one"}
    return {"power": "observe"}


@step(name="input.note")
async def note(what: str) -> str:
    return outside().request("note", current.idempotency_key, what)


def _signed(what: str) -> str:
    if what not in current.run.inbox:
        outside().request("note", f"{current.idempotency_key}/waits", what)
        raise Suspend(f"wants {what}")
    return f"{what} by {current.run.inbox[what]}"


@step(name="input.signed")
async def signed(what: str) -> str:
    return _signed(what)


@step(name="input.signed_in_thread")
def signed_in_thread(what: str) -> str:
    return _signed(what)


#: A crash costs an attempt, and the next one follows at once.
_TRIES = RetryPolicy(max_attempts=20, initial=0, jitter="none")


@step(name="input.signed_away", dispatch="worker", retry=_TRIES)
def signed_away(what: str) -> str:
    return _signed(what)


@workflow(name="input.wanting")
async def wanting() -> list[Any]:
    first = await note("first")
    if "go" not in current.run.inbox:
        await note("waits")
        raise Suspend("go on?")
    both = await asyncio.gather(signed("left"), signed_away.aio("right"))
    return [first, *both, len(current.run.inbox)]


@workflow(name="input.wanting_in_thread")
def wanting_in_thread() -> list[Any]:
    if "go" not in current.run.inbox:
        raise Suspend("go on?")
    return [signed_in_thread("left"), ask("Shall we?")]


@workflow(name="input.guarded")
async def guarded() -> list[Any]:
    if "go" not in current.run.inbox:
        raise Suspend("go on?")
    found = [await note("kept"), await note("replaced")]
    try:
        await note("blocked")
    except Exception as error:
        found.append(str(error))
    return [*found, await signed_away.aio("right")]


def _all_in_turn(env: Environment, run: RunHandle[Any]) -> None:
    for key in ("other", "go", "right", "left"):
        env.put_inbox(run, key, "Ada", entry_id=f"{key}-1")


def _go_and_answer(env: Environment, run: RunHandle[Any]) -> None:
    for key in ("go", "left"):
        env.put_inbox(run, key, "Ada", entry_id=f"{key}-1")
    answer(env, run, "ask", "yes")


def _with_guards(env: Environment, run: RunHandle[Any]) -> None:
    env.wait_for(env.client.resume(run.id, prepare_step=watch))
    env.run_until_idle()
    for key in ("go", "right"):
        env.put_inbox(run, key, "Ada", entry_id=f"{key}-1")


INPUTS = (
    Scenario(name="input", workflow=wanting, script=_all_in_turn),
    Scenario(name="input of a def workflow", workflow=wanting_in_thread, script=_go_and_answer),
    Scenario(name="guards", workflow=guarded, script=_with_guards),
)
