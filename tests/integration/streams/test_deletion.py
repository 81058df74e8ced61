"""Deleting stream runs: their signals and subscriptions go with them. Forking them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import emit, get_current_signal, hook, stream_step, stream_workflow, terminate
from stepwell import save_checkpoint as save
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core.payload import Sizes
from stepwell.core.records import RunStatus
from stepwell.core.retention import Retention
from stepwell.engine.sweep import Sweep
from stepwell.errors import ForkRefused, RunDeleted, StreamEnded, UsageError
from stepwell.testing import Environment
from tests.integration.streams.given import begin, send, standing, subscription

LARGE = "x" * 500
DAY = 86_400_000
_TABLES = ("stream_heads", "signal_batches", "signal_numbers", "subscriptions", "commits", "blobs")


def rows(env: Environment) -> dict[str, int]:
    """How many rows of each kind are left, those of deleted logs apart."""
    count = {name: env._local.database.query(f"SELECT count(*) FROM {name}") for name in _TABLES}
    del count["commits"]
    return {name: found[0][0] for name, found in count.items()}


def ended(env: Environment, run: str = "default") -> tuple[RunHandle[Any], str]:
    """A stream run that has ended, and its subscription's run."""

    @stream_workflow
    async def deeds() -> None: ...

    @stream_step(stream=deeds, signals=["deed", "over"], name="keep")
    async def keep() -> None:
        signal = await get_current_signal()
        if signal is not None and signal.signal_type == "over":
            await terminate()
        await save(LARGE)

    handle = begin(env, deeds, run=run)
    send(env, "deeds", "deed", {"text": LARGE}, stream_run_id=run)
    send(env, "deeds", "over", stream_run_id=run)
    return handle, subscription(env, "deeds", "keep", run).run_id


def delete(env: Environment, run_id: str) -> None:
    env.wait_for(env.client.delete(run_id))
    env.run_until_idle()


def test_nothing_of_a_stream_run_is_left() -> None:
    with Environment(sizes=Sizes(inline_limit=100)) as env:
        run, step = ended(env)
        assert all(rows(env).values())
        delete(env, run.id)
        assert not any(rows(env).values())
        for run_id in (run.id, step):
            with pytest.raises(RunDeleted):
                env.wait_for(env.client.get(run_id))
        with pytest.raises(StreamEnded):
            send(env, "deeds", "deed")


def test_others_keep_what_is_theirs(stepwell_env: Environment) -> None:
    run, _ = ended(stepwell_env)
    ended(stepwell_env, "default2")
    delete(stepwell_env, run.id)
    assert standing(stepwell_env, "deeds", "default2").last == 2
    assert subscription(stepwell_env, "deeds", "keep", "default2").status == "terminated"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_deletion_that_dies_anywhere_is_gone_on_with(when: Any) -> None:
    for call in range(1, 40):
        with Environment(sizes=Sizes(inline_limit=100)) as env:
            run, _ = ended(env)
            env.wait_for(env.client.delete(run.id))
            env.crash_at(call, when)
            env.run_until_idle()
            assert not any(rows(env).values()), f"crashed at call {call}"
            if not env.crashes:
                assert call > 10
                return
    raise AssertionError("there is no end of calls")


def test_a_subscription_is_not_deleted_by_itself(stepwell_env: Environment) -> None:
    run, step = ended(stepwell_env)
    with pytest.raises(UsageError, match=f"which is run '{run.id}'"):
        stepwell_env.wait_for(stepwell_env.client.delete(step))


def test_neither_a_stream_run_nor_a_subscription_is_forked(stepwell_env: Environment) -> None:
    run, step = ended(stepwell_env)
    for run_id, what in ((run.id, "a stream run"), (step, "a subscription")):
        with pytest.raises(ForkRefused, match=what):
            stepwell_env.wait_for(stepwell_env.client.fork(run_id))


def test_a_signal_that_comes_after_the_deletion_leaves_nothing(stepwell_env: Environment) -> None:
    run, _ = ended(stepwell_env)

    @stream_workflow
    async def late() -> None:
        await hook("later")
        await emit("deeds", "deed", {"text": LARGE})

    begin(stepwell_env, late)
    delete(stepwell_env, run.id)
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, {})
    assert standing(stepwell_env, "deeds").last == 0
    assert not rows(stepwell_env)["signal_batches"]


def test_subscriptions_that_cannot_end_by_themselves_are_ended_first(
    stepwell_env: Environment,
) -> None:
    @stream_workflow
    async def stubborn() -> None:
        await hook("later")
        raise ValueError("no")

    @stream_step(stream=stubborn, signals=["x"])
    async def stays() -> None: ...

    run = begin(stepwell_env, stubborn)
    registry._stream_steps[-1].clear()  # its code is gone, so it cannot end
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, {})
    left = subscription(stepwell_env, "stubborn", "stays")
    assert left.attention == "BLOCKED"
    delete(stepwell_env, run.id)
    stepwell_env.advance("1m")
    assert not any(rows(stepwell_env).values())
    with pytest.raises(RunDeleted):
        stepwell_env.wait_for(stepwell_env.client.get(left.run_id))


def test_subscriptions_are_kept_for_as_long_as_their_stream_run(stepwell_env: Environment) -> None:
    object.__setattr__(stepwell_env._settings, "retention", Retention(completed=DAY))

    @stream_workflow
    async def long() -> None: ...

    for name in ("first", "second"):

        @stream_step(stream=long, signals=[name], name=name)
        async def ends() -> None:
            if await get_current_signal() is not None:
                await terminate()

    def sweep() -> int:
        expired = Sweep(stepwell_env._local.ports).delete_expired(lambda: 60_000)
        count = stepwell_env.wait_for(expired)
        stepwell_env.run_until_idle()
        return count

    run = begin(stepwell_env, long)
    send(stepwell_env, "long", "first")
    stepwell_env.advance("3d")
    assert sweep() == 0, "its stream run goes on"
    send(stepwell_env, "long", "second")
    assert stepwell_env.get(run).status is RunStatus.COMPLETED
    stepwell_env.advance("25h")
    assert sweep() == 1
    assert not any(rows(stepwell_env).values())
