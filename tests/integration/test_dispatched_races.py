"""Attempts of dispatched steps against crashes, duplicates, cancellations and changed code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from stepwell import (
    STEP_HOOK_TIMEOUT,
    RetryPolicy,
    StepFailed,
    StepInterrupted,
    current,
    hook,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.authoring.registry import Registry, registry
from stepwell.client import RunHandle
from stepwell.core.payload import codec
from stepwell.core.records import RunStatus
from stepwell.engine.attempt import AttemptEnd, StepBusy
from stepwell.engine.endings import TurnEnd
from stepwell.engine.ports import TransientError
from stepwell.engine.turn import Engine
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.integration.attempts import (
    Underway,
    begun,
    looking_often,
    make,
    received,
    row,
    turns_only,
    wake,
)
from tests.integration.histories import found, kinds

When = Literal["before", "after"]
ONCE = RetryPolicy(max_attempts=1)
AT_ONCE = RetryPolicy(initial=0)


class World:
    """What the bodies of a test did, and what holds them up."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.ended: list[int] = []
        self.gate = asyncio.Event()

    def entered(self) -> int:
        return len(self.entries)


def counting(world: World, retry: RetryPolicy = AT_ONCE) -> Any:
    """A workflow of one dispatched step that says in which attempt it ended."""

    @step(name="away", dispatch="worker", retry=retry)
    async def away() -> int:
        world.entries.append(current.attempt)
        return current.attempt

    @workflow(name="flow")
    async def flow() -> int:
        return await away()

    return flow


def holding(world: World, retry: RetryPolicy = AT_ONCE) -> Any:
    """The same, whose first entry waits at the gate."""

    @step(name="away", dispatch="worker", retry=retry)
    async def away() -> int:
        world.entries.append(current.attempt)
        try:
            if len(world.entries) == 1:
                await world.gate.wait()
        finally:
            world.ended.append(current.cancelled)
        return current.attempt

    @workflow(name="flow")
    async def flow() -> int:
        return await away()

    return flow


#: Port call of an attempt, and in which attempts the body is then entered.
DEATHS: tuple[tuple[int, When, list[int]], ...] = (
    (1, "before", [1]),  # load
    (1, "after", [1]),
    (2, "before", [1]),  # claim
    (2, "after", [2]),  # claimed: the attempt counts, whether or not its body was entered
    (3, "before", [1, 2]),  # the body is through, its outcome is not put
    (3, "after", [1]),  # the row has the outcome
    (4, "before", [1]),  # the report
    (4, "after", [1]),
)


@pytest.mark.parametrize(("call", "when", "entered"), DEATHS)
def test_a_process_that_dies_costs_an_attempt_once_it_has_claimed_it(
    env: Environment, call: int, when: When, entered: list[int]
) -> None:
    world = World()
    run = env.start(counting(world))
    turns_only(env)
    env.crash_at(call, when)
    env.run_until_idle()
    assert env.crashes == 1
    assert world.entries == entered
    assert env.result(run) == entered[-1]
    check_run(env, run)


def test_an_attempt_that_died_is_recorded_as_interrupted(env: Environment) -> None:
    run = env.start(counting(World()))
    turns_only(env)
    env.crash_at(2, "after")
    env.run_until_idle()
    [retry] = found(env, run, "StepRetryScheduled")
    assert (retry.attempt, retry.error.type) == (1, "stepwell.errors.StepInterrupted")


def test_when_the_last_attempt_dies_the_step_is_interrupted(env: Environment) -> None:
    world = World()
    counted = counting(world, RetryPolicy(max_attempts=2, initial=0))

    @workflow
    async def caught() -> list[Any]:
        try:
            await counted()
        except StepInterrupted as error:
            return [error.message, error.attempts]
        return []

    run = env.start(caught)
    turns_only(env)
    for _ in range(2):
        env.crash_at(2, "after")
        assert env.take_turn()
        assert env.take_turn()
        turns_only(env)
    assert env.result(run) == ["the process died in attempt 2, and it was the last one", 2]
    assert world.entries == []


@pytest.mark.parametrize(("call", "when"), [(3, "before"), (3, "after"), (4, "before")])
def test_a_turn_that_dies_around_the_message_sends_it_again(
    env: Environment, call: int, when: When
) -> None:
    """Load, append, send: dying there, the next delivery makes up for it."""
    world = World()
    run = env.start(counting(world))
    env.crash_at(call, when)
    turns_only(env)
    assert env.crashes == 1
    env.run_until_idle()
    assert env.result(run) == 1
    assert world.entries == [1]


def failing(env: Environment, port: Any, method: str, at: int) -> None:
    """Let the n-th call of a port's method fail, once."""
    original: Callable[..., Any] = getattr(port, method)
    calls: list[int] = []

    async def fail_once(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            raise TransientError("throttled")
        return await original(*args, **kwargs)

    setattr(port, method, fail_once)


def test_a_port_that_fails_in_the_body_costs_no_attempt(env: Environment) -> None:
    entries: list[int] = []

    @step(dispatch="worker", retry=ONCE)
    async def away() -> int:
        entries.append(current.attempt)
        try:
            await save_step_checkpoint("kept")
        except Exception:  # also where the body would rather not hear of it
            return 0
        return current.attempt

    @workflow
    async def flow() -> int:
        return await away()

    run = env.start(flow)
    failing(env, env._local.store, "put_checkpoint", 1)
    env.run_until_idle()
    assert entries == [1]
    standing = row(env, run.id, "away:1")
    assert standing is not None
    assert standing.claim is None
    env.advance("1m")
    assert env.result(run) == 1
    assert entries == [1, 1]


@pytest.mark.parametrize("at", [1, 2])
def test_a_row_that_cannot_be_put_now_costs_no_attempt(env: Environment, at: int) -> None:
    """The claim, or the outcome."""
    run = env.start(counting(World(), ONCE))
    failing(env, env._local.store, "put_step", at)
    env.advance("1m")
    assert env.result(run) == 1


def test_a_report_that_cannot_be_sent_now_is_sent_later(env: Environment) -> None:
    world = World()
    run = env.start(counting(world, ONCE))
    turns_only(env)
    failing(env, env._local.queue, "send", 1)
    env.advance("1m")
    assert env.result(run) == 1
    assert world.entries == [1]


def test_another_message_is_refused_while_the_attempt_is_made(env: Environment) -> None:
    world = World()
    run = env.start(holding(world))
    turns_only(env)
    first = begun(env, world.entered)
    env.wait_for(env._local.ports.steps.send(first.attempt))
    second = received(env)
    assert second is not None
    with pytest.raises(StepBusy) as busy:
        env.wait_for(make(env, second))
    assert busy.value.until > env.clock.now()
    env.wait_for(env._local.step_queue.give_back(second))
    world.gate.set()
    assert first.ended() is AttemptEnd.REPORTED
    env.run_until_idle()
    assert env.result(run) == 1
    assert world.entries == [1]


def test_one_of_two_receives_at_the_same_moment_makes_the_attempt(env: Environment) -> None:
    """A standard queue may deliver a message twice at once, counted as one receive."""
    world = World()
    run = env.start(holding(world))
    turns_only(env)
    delivery = received(env)
    assert delivery is not None
    load, loaded, both = env._local.store.load, [0], asyncio.Event()

    async def load_together(run_id: str) -> Any:
        rows = await load(run_id)
        loaded[0] += 1
        if loaded[0] == 2:
            both.set()
        await both.wait()
        return rows

    async def play() -> list[Any]:
        env._local.store.load = load_together  # type: ignore[method-assign]
        tasks = [asyncio.create_task(make(env, delivery)) for _ in range(2)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        world.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    ends = env.wait_for(play())
    env._local.store.load = load  # type: ignore[method-assign]
    assert world.entries == [1]
    assert sorted(type(end).__name__ for end in ends) == ["AttemptEnd", "StepBusy"]
    env.wait_for(env._local.step_queue.delete(delivery))
    env.run_until_idle()
    assert env.result(run) == 1


def test_a_message_that_comes_again_later_does_nothing(env: Environment) -> None:
    world = World()
    run = env.start(counting(world))
    turns_only(env)
    first = received(env)
    assert first is not None
    assert env.wait_for(make(env, first)) is AttemptEnd.REPORTED
    # Its row has the outcome, and the run does not know yet: it is woken again.
    assert env.wait_for(make(env, first, count=2)) is AttemptEnd.REPORTED
    turns_only(env)
    before = env.history(run)
    for count in (1, 3):
        assert env.wait_for(make(env, first, count=count)) is AttemptEnd.NOTHING
    turns_only(env)
    assert env.history(run) == before
    assert world.entries == [1]


def test_a_message_of_an_earlier_attempt_does_nothing(env: Environment) -> None:
    world = World()

    @step(dispatch="worker", retry=AT_ONCE)
    async def flaky() -> int:
        world.entries.append(current.attempt)
        if current.attempt == 1:
            raise ConnectionError
        await world.gate.wait()
        return current.attempt

    @workflow
    async def flow() -> int:
        return await flaky()

    run = env.start(flow)
    turns_only(env)
    first = received(env)
    assert first is not None
    env.wait_for(make(env, first))
    turns_only(env)
    env.wait_for(env._local.step_queue.delete(first))
    second = begun(env, lambda: world.entered() == 2)
    assert env.wait_for(make(env, first, count=2)) is AttemptEnd.NOTHING
    world.gate.set()
    second.ended()
    env.run_until_idle()
    assert env.result(run) == 2
    assert world.entries == [1, 2]


def test_an_attempt_that_was_taken_for_dead_changes_nothing(env: Environment) -> None:
    """Its message came again while it was frozen; another attempt was made in its place."""
    world = World()
    run = env.start(holding(world))
    turns_only(env)
    frozen = begun(env, world.entered)
    assert env.wait_for(make(env, frozen.delivery, count=2)) is AttemptEnd.REPORTED
    env.run_until_idle()
    assert env.result(run) == 2
    before = env.history(run)
    world.gate.set()
    assert frozen.ended() is AttemptEnd.NOTHING
    env.run_until_idle()
    assert env.history(run) == before


def test_an_attempt_that_was_taken_for_dead_is_told_so(env: Environment) -> None:
    world = World()
    run = env.start(holding(world))
    turns_only(env)
    looking_often(env)
    frozen = begun(env, world.entered)
    env.wait_for(make(env, frozen.delivery, count=2))
    assert frozen.ended() is AttemptEnd.NOTHING
    assert world.ended == [True]
    env.run_until_idle()
    assert env.result(run) == 2


def test_an_overtaken_attempt_cannot_save_a_checkpoint(env: Environment) -> None:
    world = World()

    @step(dispatch="worker", retry=AT_ONCE)
    async def away() -> int:
        world.entries.append(1)
        entry = len(world.entries)
        if entry == 1:
            await world.gate.wait()
        await save_step_checkpoint(entry)
        return entry

    @workflow
    async def flow() -> int:
        return await away()

    run = env.start(flow)
    turns_only(env)
    frozen = begun(env, world.entered)
    env.wait_for(make(env, frozen.delivery, count=2))
    env.run_until_idle()
    world.gate.set()
    with pytest.raises(TransientError, match="later turn"):
        frozen.ended()
    assert env.result(run) == 2
    kept = env.wait_for(env._local.store.get_checkpoint(run.id, "away:1"))
    assert kept is not None
    assert kept.value == "2"


def lose(env: Environment) -> None:
    """Somebody deletes the message of an attempt."""
    delivery = received(env)
    assert delivery is not None
    env.wait_for(env._local.step_queue.delete(delivery))


def test_a_wake_sends_a_lost_message_again(env: Environment) -> None:
    run = env.start(counting(World()))
    turns_only(env)
    lose(env)
    env.advance("1d")
    assert env.get(run).status is RunStatus.SUSPENDED
    wake(env, run.id)
    env.run_until_idle()
    assert env.result(run) == 1


def test_a_wake_leaves_an_attempt_alone_that_is_being_made(env: Environment) -> None:
    world = World()
    run = env.start(holding(world))
    turns_only(env)
    underway = begun(env, world.entered)
    wake(env, run.id)
    assert received(env) is None
    world.gate.set()
    underway.ended()
    env.run_until_idle()
    assert env.result(run) == 1


def test_a_wake_sends_again_what_its_maker_can_no_longer_be_at(env: Environment) -> None:
    """The maker died, and its message is gone as well."""
    run = env.start(counting(World()))
    turns_only(env)
    env.crash_at(2, "after")
    assert env.take_turn()
    lose(env)
    wake(env, run.id)
    assert received(env) is None
    standing = row(env, run.id, "away:1")
    assert standing is not None
    env.clock.move_to(standing.until)
    wake(env, run.id, "a doubt, later")
    env.run_until_idle()
    assert env.result(run) == 2


@pytest.mark.breaks_laws("the message of an attempt is taken away, and nothing may replace it")
def test_other_messages_send_nothing_again(env: Environment) -> None:
    @step(dispatch="worker")
    async def away() -> None: ...

    @workflow
    async def flow() -> None:
        await asyncio.gather(away(), hook("question"), hook("other"))

    run = env.start(flow)
    turns_only(env)
    [question] = [each for each in env.hooks(run) if each.name == "question"]
    env.wait_for(env.client.resume_hook(question.token))
    turns_only(env)
    lose(env)
    assert received(env) is None


def asking(world: World, timeout: str | None = None) -> Any:
    """A step whose first entry is held up after its token has left."""

    @step(name="ask", dispatch="worker")
    async def ask() -> Any:
        world.entries.append(current.entry)

        async def tell(token: str) -> None:
            world.ended.append(1)
            if current.entry == 1:
                await world.gate.wait()

        return str(
            await step_hook("question", on_created=tell, timeout=timeout, on_timeout="return")
        )

    @workflow(name="asking")
    async def flow() -> str:
        return str(await ask())

    return flow


@pytest.mark.parametrize("turn", ["before the end", "after the end"])
def test_an_answer_that_comes_while_the_entry_is_under_way_is_not_lost(
    env: Environment, turn: str
) -> None:
    world = World()
    run = env.start(asking(world))
    turns_only(env)
    underway = begun(env, lambda: len(world.ended))
    [question] = env.hooks(run)
    env.wait_for(env.client.resume_hook(question.token, "quick"))
    if turn == "before the end":
        turns_only(env)
        assert received(env) is None, "it is under way already"
    world.gate.set()
    underway.ended()
    env.run_until_idle()
    assert env.result(run) == "quick"
    assert world.entries == [1, 2]
    check_run(env, run)


def test_a_deadline_that_passes_while_the_entry_is_under_way_is_not_lost(env: Environment) -> None:
    world = World()
    run = env.start(asking(world, "1m"))
    turns_only(env)
    underway = begun(env, lambda: len(world.ended))
    env.clock.advance(60_000)
    wake(env, run.id)
    world.gate.set()
    underway.ended()
    env.run_until_idle()
    assert env.result(run) == str(STEP_HOOK_TIMEOUT)
    check_run(env, run)


def test_a_hook_that_is_closed_by_the_end_of_its_step_takes_no_answer(env: Environment) -> None:
    @step(dispatch="worker")
    async def ask() -> str:
        question = asyncio.create_task(step_hook("question"))
        while not (await env.client.list_hooks()).items:
            await asyncio.sleep(0)
        question.cancel()
        return "never mind"

    @workflow
    async def flow() -> str:
        answer = await ask()
        await sleep("1h")
        return answer

    run = env.start(flow)
    env.run_until_idle()
    assert env.hooks(run) == ()
    env.advance("1h")
    check_run(env, run)


def racing(world: World) -> Any:
    """A step that loses against an answer, in a run that goes on for an hour."""

    @step(name="away", dispatch="worker")
    async def away() -> None:
        world.entries.append(1)
        try:
            await world.gate.wait()
        except asyncio.CancelledError:
            world.ended.append(current.cancelled)
            raise

    @workflow(name="racing")
    async def flow() -> Any:
        loser = asyncio.create_task(away())
        winner = asyncio.create_task(hook("question"))
        await asyncio.wait({loser, winner}, return_when=asyncio.FIRST_COMPLETED)
        loser.cancel()
        await sleep("1h")
        return winner.result()

    return flow


def test_the_loser_of_a_race_is_told_and_cancelled(env: Environment) -> None:
    world = World()
    run = env.start(racing(world))
    turns_only(env)
    looking_often(env)
    underway = begun(env, world.entered)
    env.resume_hook(env.hooks(run)[0].token, "won")
    assert underway.ended() is AttemptEnd.NOTHING
    assert world.ended == [True]
    check_run(env, run)
    env.advance("1h")
    assert env.result(run) == "won"


def test_the_outcome_of_a_loser_that_was_not_told_in_time_is_dropped(env: Environment) -> None:
    world = World()
    run = env.start(racing(world))
    turns_only(env)
    underway = begun(env, world.entered)
    env.resume_hook(env.hooks(run)[0].token, "won")
    world.gate.set()
    assert underway.ended() is AttemptEnd.NOTHING
    assert "StepCompleted" not in kinds(env, run)
    env.advance("1h")
    assert env.result(run) == "won"


def test_a_loser_that_had_not_begun_is_never_begun(env: Environment) -> None:
    world = World()
    run = env.start(racing(world))
    turns_only(env)
    [question] = env.hooks(run)
    env.wait_for(env.client.resume_hook(question.token, "won"))
    turns_only(env)
    delivery = received(env)
    assert delivery is not None
    assert env.wait_for(make(env, delivery)) is AttemptEnd.NOTHING
    assert world.entries == []


def test_a_cancelled_run_cancels_its_attempts(env: Environment) -> None:
    world = World()
    run = env.start(holding(world))
    turns_only(env)
    looking_often(env)
    underway = begun(env, world.entered)
    env.wait_for(env.client.cancel(run.id, "not wanted"))
    turns_only(env)
    assert env.get(run).status is RunStatus.CANCELLED
    assert underway.ended() is AttemptEnd.NOTHING
    assert world.ended == [True]
    env.run_until_idle()
    check_run(env, run)


def test_a_body_sees_that_its_run_is_to_be_cancelled(env: Environment) -> None:
    """Also a thread, which cannot be cancelled, and before the turn has seen the request."""
    seen = threading.Event()

    @step(dispatch="worker")
    def away() -> str:
        seen.set()
        while not current.cancelled:
            threading.Event().wait(0.001)
        return "gave up"

    @workflow
    async def flow() -> str:
        said = await away.aio()
        await sleep("1h")
        return said

    run = env.start(flow)
    turns_only(env)
    looking_often(env)
    underway = begun(env, seen.is_set)
    env.wait_for(env.client.cancel(run.id))
    assert underway.ended() is AttemptEnd.REPORTED
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    assert [each.result for each in found(env, run, "StepCompleted")] == ['"gave up"']


@pytest.mark.parametrize("how", ["reports", "is told"])
def test_a_hook_that_is_opened_after_the_end_of_the_run_takes_no_answer(
    env: Environment, how: str
) -> None:
    world = World()

    @step(dispatch="worker")
    async def late() -> None:
        world.entries.append(1)
        try:
            await world.gate.wait()
        except asyncio.CancelledError:
            if how == "is told":
                return
        await step_hook("late")

    @workflow
    async def flow() -> None:
        await late()

    run = env.start(flow)
    turns_only(env)
    underway = begun(env, world.entered)
    env.wait_for(env.client.cancel(run.id))
    turns_only(env)
    if how == "is told":
        looking_often(env)
    world.gate.set()
    underway.ended()
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    assert env.hooks(run) == ()


Process = Callable[..., AbstractContextManager[Environment]]


def reopened(env: Environment, run_id: str) -> RunHandle[Any]:
    return RunHandle(env.client, run_id, codec(Any, "result"))


def version(dispatch: Literal["inline", "worker"], name: str = "away") -> Any:
    """A version of the code: one step, of this name and dispatched in this way."""

    @step(name=name, dispatch=dispatch, retry=AT_ONCE)
    async def away() -> str:
        return f"{dispatch} {current.attempt}"

    @workflow(name="flow")
    async def flow() -> str:
        return await away()

    return flow


def test_an_attempt_under_way_is_made_after_its_step_has_become_inline(process: Process) -> None:
    with process() as env, registry.isolated():
        run = env.start(version("worker"))
        turns_only(env)
    with process() as env, registry.isolated():
        version("inline")
        wake(env, run.id)
        assert env.get(reopened(env, run.id)).status is RunStatus.SUSPENDED
        env.run_until_idle()
        assert env.result(reopened(env, run.id)) == "inline 1"


@pytest.mark.breaks_laws("its code changes: a dispatched step goes on without being dispatched")
def test_a_dispatched_step_that_became_inline_is_retried_inline(process: Process) -> None:
    with process() as env, registry.isolated():
        run = env.start(version("worker"))
        turns_only(env)
        env.crash_at(2, "after")
        assert env.take_turn()
    with process() as env, registry.isolated():
        version("inline")
        env.run_until_idle()
        assert env.result(reopened(env, run.id)) == "inline 2"
        assert len(found(env, reopened(env, run.id), "StepStarted")) == 1


def test_an_inline_step_that_became_a_dispatched_one_is_dispatched(process: Process) -> None:
    """Its process died twice; the second time its start had been recorded."""
    with process() as env, registry.isolated():
        run = env.start(version("inline"))
        for call in (2, 3):  # the commits after the body: the second time its start is recorded
            env.crash_at(call)
            assert env.take_turn()
    with process() as env, registry.isolated():
        version("worker")
        env.run_until_idle()
        assert env.result(reopened(env, run.id)) == "worker 2"


def test_interrupted_inline_attempts_count_when_the_step_becomes_a_dispatched_one(
    process: Process,
) -> None:
    def once(dispatch: Literal["inline", "worker"]) -> Any:
        @step(name="away", dispatch=dispatch, retry=ONCE)
        async def away() -> str:
            return dispatch

        @workflow(name="flow")
        async def flow() -> str:
            try:
                return await away()
            except StepInterrupted:
                return "interrupted"

        return flow

    with process() as env, registry.isolated():
        run = env.start(once("inline"))
        for call in (2, 3):  # the commits after the body: the second time its start is recorded
            env.crash_at(call)
            assert env.take_turn()
    with process() as env, registry.isolated():
        once("worker")
        env.run_until_idle()
        assert env.result(reopened(env, run.id)) == "interrupted"


def test_an_attempt_of_a_step_that_is_not_known_here_is_given_back(env: Environment) -> None:
    world = World()
    run = env.start(counting(world))
    turns_only(env)
    stranger = Engine(env._ports, env._settings, Registry(), lambda: 0.5)
    delivery = received(env)
    assert delivery is not None
    with pytest.raises(TransientError, match="'away' is not registered here"):
        env.wait_for(
            stranger.run_attempt(
                Underway(env, delivery).attempt, message_id="m", receive_count=1, time_left=None
            )
        )
    stranger.close()
    assert row(env, run.id, "away:1") is None
    env.wait_for(env._local.step_queue.give_back(delivery))
    env.run_until_idle()
    assert env.result(run) == 1


def test_a_renamed_step_blocks_its_run_until_the_old_code_is_back(process: Process) -> None:
    with process() as env, registry.isolated():
        run = env.start(version("worker"))
        turns_only(env)
    with process() as env, registry.isolated():
        version("worker", "renamed")
        wake(env, run.id)
        env.advance("1h")
        attention = env.get(reopened(env, run.id)).attention
        assert attention is not None
        assert attention.kind == "BLOCKED"
        assert len(env.wait_for(env._local.step_queue.dead_letters())) == 1
    with process() as env, registry.isolated():
        version("worker")
        wake(env, run.id, "the old code is back")
        env.run_until_idle()
        assert env.result(reopened(env, run.id)) == "worker 1"
        assert env.get(reopened(env, run.id)).attention is None


def test_a_blocked_run_takes_what_its_attempts_report(process: Process) -> None:
    with process() as env, registry.isolated():
        run = env.start(version("worker"))
        turns_only(env)
        delivery = received(env)
        assert delivery is not None
        assert env.wait_for(make(env, delivery)) is AttemptEnd.REPORTED
    with process() as env, registry.isolated():
        version("worker", "renamed")
        turns_only(env)
        assert env.turns == [TurnEnd.BLOCKED]
        assert kinds(env, reopened(env, run.id))[-1] == "StepCompleted"
    with process() as env, registry.isolated():
        version("worker")
        wake(env, run.id)
        assert env.result(reopened(env, run.id)) == "worker 1"


def shaped(strict: bool) -> Any:
    """A step whose input has to have one field more, in the strict version."""
    if strict:

        class Order(BaseModel):
            number: int
            customer: str

    else:

        class Order(BaseModel):  # type: ignore[no-redef]
            number: int

    def order() -> Any:
        return Order(**{"number": 1, "customer": "C"} if strict else {"number": 1})

    async def body(order: Any) -> int:
        return int(order.number)

    body.__annotations__["order"] = Order
    away = step(name="away", dispatch="worker")(body)

    @workflow(name="flow")
    async def flow() -> str:
        try:
            return str(await away(order()))
        except StepFailed as error:
            return error.type

    return flow


def test_an_input_that_fits_the_code_no_more_blocks_the_run_and_fails_nothing(
    process: Process,
) -> None:
    with process() as env, registry.isolated():
        run = env.start(shaped(strict=False))
        turns_only(env)
    with process() as env, registry.isolated():
        shaped(strict=True)
        env.run_until_idle()
        header = env.get(reopened(env, run.id))
        assert header.status is RunStatus.SUSPENDED
        assert header.attention is not None
        assert header.attention.kind == "BLOCKED"
        assert "'away:1' does not fit" in header.attention.reason
        assert row(env, run.id, "away:1") is None
    with process() as env, registry.isolated():
        shaped(strict=False)
        env.advance("1m")
        header = env.get(reopened(env, run.id))
        assert env.result(reopened(env, run.id)) == "1"
        assert header.attention is None
        assert len(found(env, reopened(env, run.id), "StepStarted")) == 1


def test_a_body_that_is_interrupted_by_hand_lets_its_claim_go(env: Environment) -> None:
    """A local process is asked to stop: another one makes the attempt, and it counts once."""
    world = World()
    run = env.start(holding(world, ONCE))
    turns_only(env)
    underway = begun(env, world.entered)
    underway.die()
    env.run_until_idle()
    assert env.result(run) == 1
    assert replace(found(env, run, "StepCompleted")[0], at=0).attempt == 1
