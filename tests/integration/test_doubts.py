"""What a turn, a caller and an attempt make sure of when somebody else died or came in between."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Literal

import pytest

from stepwell import (
    STEP_HOOK_TIMEOUT,
    hook,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.client import Client, PendingHook
from stepwell.core import events as e
from stepwell.core.decide import answer
from stepwell.core.events import Commit
from stepwell.core.ids import run_id_for
from stepwell.core.messages import (
    CancelRun,
    HookDecided,
    Message,
    StartRun,
    TimerDue,
    load_attempt,
)
from stepwell.core.records import Attention, HookRow, HookStatus, RunStatus
from stepwell.engine.attempt import AttemptEnd, StepBusy
from stepwell.errors import HookAlreadyDecided, HookExpired, IdempotencyConflict
from stepwell.testing import Environment
from stepwell.testing.crashes import Crash, Crasher
from tests.integration.attempts import begun, make, received, turns_only, wake
from tests.integration.histories import found

When = Literal["before", "after"]
WHENS: tuple[When, When] = ("before", "after")


async def echo(number: int) -> int:
    return number


async def asks() -> str:
    given = await hook("question", timeout="1h", on_timeout="return")
    return "nobody" if given is STEP_HOOK_TIMEOUT else str(given)


def asked(env: Environment) -> PendingHook:
    """A run that waits for an answer."""
    env.start(workflow(asks))
    env.run_until_idle()
    [waiting] = env.hooks()
    return waiting


class Dying:
    """A client whose process dies before or after its first call of a port."""

    def __init__(self, env: Environment, call: str, when: When) -> None:
        self._crasher = Crasher()
        self.client = Client(self._crasher.wrap(env._local.ports), env._settings)
        self._call = call
        self._when = when

    def at(self, env: Environment, ask: Callable[[Client], Coroutine[Any, Any, object]]) -> None:
        """Ask again and again, and die one call later each time, until it was that call."""
        for number in itertools.count(1):
            self._crasher.crash_at(number, self._when)
            with pytest.raises(Crash), self._crasher.armed():
                env.wait_for(ask(self.client))
            if self._crasher.calls[-1] == self._call:
                break


# Callers


def test_a_message_that_comes_before_the_start_of_its_run_waits_for_it(env: Environment) -> None:
    flow = workflow(asks)
    run_id = run_id_for("asks", "early")
    env.wait_for(env._local.queue.send(CancelRun(run_id=run_id, request_id="r1")))
    env.run_until_idle()
    run = env.wait_for(env.client.with_options(idempotency_key="early").start(flow))
    env.advance("1m")
    assert env.get(run).status is RunStatus.CANCELLED


def test_of_two_starts_with_one_key_the_input_counts_whose_header_stands(env: Environment) -> None:
    flow = workflow(echo)
    once = env.client.with_options(idempotency_key="k")
    died = StartRun(
        run_id=run_id_for("echo", "k"),
        workflow="echo",
        version="1",
        input='{"number":1}',
        input_digest="of another input",
        seed="s",
        created_at=env.clock.now(),
        idempotency_key="k",
    )
    env.wait_for(env._local.queue.send(died))  # and its sender died before the header
    assert env.wait_for(result_of(once, flow, env)) == 2


async def result_of(once: Client, flow: Any, env: Environment) -> Any:
    run = await once.start(flow, 2)
    while await env._take_turn():
        pass
    return await run.result(timeout=0)


def test_a_start_whose_header_lost_compares_its_input(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = workflow(echo)
    once = env.client.with_options(idempotency_key="k")
    env.wait_for(once.start(flow, 1))

    async def not_there_yet(run_id: str) -> None:
        """What the second caller read before the first one put its header."""

    with monkeypatch.context() as patch:
        patch.setattr(env._local.store, "get_header", not_there_yet)
        with pytest.raises(IdempotencyConflict):
            env.wait_for(once.start(flow, 2))
        same = env.wait_for(once.start(flow, 1))
    env.run_until_idle()
    assert env.result(same) == 1


def test_a_cancel_shows_on_the_run_at_once(env: Environment) -> None:
    run = env.start(workflow(asks))
    env.run_until_idle()
    env.wait_for(env.client.cancel(run.id))
    assert env.get(run).cancel_requested
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED


@pytest.mark.parametrize(
    ("call", "when", "sent"),
    [
        ("queue.send", "before", False),
        ("queue.send", "after", True),
        ("store.request_cancel", "before", True),
        ("store.request_cancel", "after", True),
    ],
)
def test_a_cancel_whose_caller_dies_shows_on_the_run_only_if_it_comes(
    env: Environment, call: str, when: When, sent: bool
) -> None:
    run = env.start(workflow(asks))
    env.run_until_idle()
    Dying(env, call, when).at(env, lambda client: client.cancel(run.id))
    shown = env.get(run).cancel_requested
    env.run_until_idle()
    assert (env.get(run).status is RunStatus.CANCELLED) is sent
    assert sent or not shown


@pytest.mark.parametrize(
    ("call", "when", "sent"),
    [
        ("queue.send", "before", False),
        ("queue.send", "after", True),
        ("store.decide_hook", "before", True),
        ("store.decide_hook", "after", True),
    ],
)
def test_a_caller_that_finds_a_deadline_passed_wakes_the_run_before_it_is_over(
    env: Environment, call: str, when: When, sent: bool
) -> None:
    """Nothing else does: the timer is lost."""
    waiting = asked(env)
    env.wait_for(env._local.timers.cancel(waiting.run_id, waiting.hook_id, 0))
    env.advance("2h")
    Dying(env, call, when).at(env, lambda client: client.resume_hook(waiting.token, "late"))
    env.run_until_idle()
    row = env.wait_for(env._local.store.get_hook(waiting.run_id, waiting.hook_id))
    assert row is not None
    assert env.wait_for(env.client.get(waiting.run_id)).status.terminal is sent
    assert sent or row.status is HookStatus.PENDING
    with pytest.raises(HookExpired):
        env.resume_hook(waiting.token, "later")


@pytest.mark.parametrize(
    ("call", "when", "sent"),
    [
        ("queue.send", "before", False),
        ("queue.send", "after", True),
        ("store.decide_hook", "before", True),
        ("store.decide_hook", "after", True),
    ],
)
def test_an_answer_whose_caller_dies_is_taken_once_it_was_sent(
    env: Environment, call: str, when: When, sent: bool
) -> None:
    waiting = asked(env)
    Dying(env, call, when).at(env, lambda client: client.resume_hook(waiting.token, "first"))
    row = env.wait_for(env._local.store.get_hook(waiting.run_id, waiting.hook_id))
    assert row is not None
    assert sent or row.status is HookStatus.PENDING
    env.run_until_idle()
    assert env.wait_for(env.client.get(waiting.run_id)).status.terminal is sent
    if not sent:
        env.resume_hook(waiting.token, "second")
    result = env.wait_for(env.client.result(waiting.run_id, timeout=0))
    assert result == ("first" if sent else "second")


def test_a_caller_says_gone_only_when_the_row_does(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller, whose clock is behind, has its answer accepted in between."""
    waiting = asked(env)
    env.clock.move_to(env.clock.now() + 3_600_000)
    send = env._local.queue.send

    async def answered_meanwhile(message: Message) -> None:
        if isinstance(message, TimerDue):
            other = HookDecided(
                run_id=waiting.run_id,
                hook_id=waiting.hook_id,
                decision_id="other",
                payload='"in time"',
                decided_at=env.clock.now() - 1,
            )
            await send(other)
            await env._local.store.decide_hook(waiting.run_id, waiting.hook_id, answer(other))
        await send(message)

    with monkeypatch.context() as patch:
        patch.setattr(env._local.queue, "send", answered_meanwhile)
        with pytest.raises(HookAlreadyDecided):
            env.wait_for(env.client.resume_hook(waiting.token, "late"))
    env.run_until_idle()
    assert env.wait_for(env.client.result(waiting.run_id, timeout=0)) == "in time"


# Turns


async def sleeps_and_asks() -> str:
    await sleep("1m")
    return await asks()


def test_wherever_a_turn_dies_the_header_is_not_ahead_of_the_log() -> None:
    flow = workflow(sleeps_and_asks)
    for when in WHENS:
        for call in itertools.count(1):
            with Environment() as env:
                run = env.start(flow)
                env.crash_at(call, when)
                for _ in range(60):
                    env.take_turn()
                    log = env.history(run)
                    shown = env.get(run)
                    assert shown.last_event <= len(log), (call, when)
                    if shown.status.terminal:
                        break
                    env.clock.move_to(env.clock.now() + 120_000)
                assert env.result(run) == "nobody"
                crashed = env.crashes
            if not crashed:
                break


def test_a_turn_sets_its_timer_before_its_header_says_so(env: Environment) -> None:
    run = env.start(workflow(sleeps_and_asks))
    env.run_until_idle()
    calls = env.port_calls
    assert calls.index("timers.start") < calls.index("store.update_header")
    env.run_to_end(run)


def test_what_led_to_a_step_is_durable_when_its_body_begins(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs: list[list[str]] = []
    append = env._local.store.append

    async def slowly(run_id: str, commit: Commit) -> bool:
        for _ in range(10):
            await asyncio.sleep(0)
        return await append(run_id, commit)

    monkeypatch.setattr(env._local.store, "append", slowly)

    @step
    async def looks() -> None:
        rows = await env._local.store.load(run.id)
        logs.append([event.type for commit in rows.commits for event in commit.events])

    @workflow
    async def flow() -> None:
        await looks()
        await looks()

    run = env.start(flow)
    env.run_until_idle()
    assert logs == [[], ["RunStarted", "StepCompleted"]]


def test_a_checkpoint_is_no_further_on_than_the_log(env: Environment) -> None:
    """An event that is only buffered would hold up whoever takes over from a turn that dies."""
    told = asyncio.Event()
    saved: list[tuple[int, int]] = []

    async def tell(token: str) -> None:
        told.set()

    @step
    async def waits() -> str:
        return str(await step_hook("question", on_created=tell))

    @step
    async def saves() -> None:
        await told.wait()
        for number in range(5):
            await save_step_checkpoint(number)
            [(last,)] = env._local.database.query("SELECT last_event FROM checkpoints")
            rows = await env._local.store.load(run.id)
            saved.append((last, rows.commits[-1].last if rows.commits else 0))
            await asyncio.sleep(0)

    @workflow
    async def flow() -> list[Any]:
        return await asyncio.gather(waits(), saves())

    run = env.start(flow)
    env.run_until_idle()
    assert len(saved) == 5
    assert all(last <= durable for last, durable in saved)
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "yes")


def test_wherever_a_turn_dies_a_hook_keeps_the_deadline_of_its_row() -> None:
    flow = workflow(asks)
    for call in itertools.count(1):
        with Environment() as env:
            run = env.start(flow)
            env.crash_at(call, "after")
            env.take_turn()
            env.clock.move_to(env.clock.now() + 600_000)  # who takes over comes late
            env.run_until_idle()
            [row] = env.wait_for(env._local.store.list_hooks()).items
            [opened] = found(env, run, "HookOpened")
            assert opened.expires_at == row.expires_at, call
            crashed = env.crashes
        if not crashed:
            assert call > 1
            break


@pytest.mark.breaks_laws("an attempt's message is taken away")
def test_whatever_wakes_a_marked_run_sends_a_lost_attempt_again(env: Environment) -> None:
    @step(dispatch="worker")
    async def away() -> str:
        return "made"

    @workflow
    async def flow() -> list[Any]:
        return await asyncio.gather(away(), hook("question"))

    run = env.start(flow)
    turns_only(env)
    lost = received(env)
    assert lost is not None
    env.wait_for(env._local.step_queue.reject(lost, "received too often"))
    note = Attention(kind="STUCK", reason="a message was lost", since=env.clock.now())
    marked = replace(env.get(run), attention=note)
    assert env.wait_for(env._local.store.update_header(marked))
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "yes")
    assert env.result(run) == ["made", "yes"]


def test_a_turn_that_was_overtaken_gives_its_message_back() -> None:
    @step
    async def overtaken() -> None:
        header = await engine.local.store.get_header(run_id)
        assert header is not None
        began = e.RunStarted(
            at=header.created_at,
            workflow=header.workflow,
            version=header.version,
            input=header.input,
            seed=header.seed,
        )
        cancel = e.CancelRequested(at=header.created_at, request_id="r1")
        other = Commit(first=1, turn="other", number=1, events=(began, cancel))
        await engine.local.store.append(run_id, other)

    @workflow
    async def flow() -> None:
        await overtaken()

    async def play() -> None:
        nonlocal run_id
        run_id = (await engine.client.start(flow)).id
        assert await engine.take_turn()
        assert engine.turns == 0
        assert await engine.local.queue.depth() == 1

    run_id = ""
    with LocalEngine.open(":memory:") as engine:
        asyncio.run(play())


# Attempts


def test_a_message_delivered_twice_at_once_is_worked_on_once(env: Environment) -> None:
    """The second delivery comes when the first is at work, and is counted as the same receive."""
    entries: list[int] = []
    gate = asyncio.Event()

    @step(dispatch="worker")
    async def away() -> int:
        entries.append(1)
        await gate.wait()
        return len(entries)

    @workflow
    async def flow() -> int:
        return await away()

    run = env.start(flow)
    turns_only(env)
    first = begun(env, lambda: entries)
    with pytest.raises(StepBusy):
        env.wait_for(make(env, first.delivery))
    gate.set()
    assert first.ended() is AttemptEnd.REPORTED
    env.run_until_idle()
    assert env.result(run) == 1


def test_an_attempt_is_not_begun_for_a_loser_that_nobody_told(env: Environment) -> None:
    """The turn that dropped it died before it could say so in the step's row."""
    entries: list[int] = []

    @step(dispatch="worker")
    async def away() -> None:
        entries.append(1)

    @workflow
    async def flow() -> str:
        slow = asyncio.ensure_future(away())
        quick = asyncio.ensure_future(hook("question"))
        await asyncio.wait({slow, quick}, return_when=asyncio.FIRST_COMPLETED)
        slow.cancel()
        return await asks()

    run = env.start(flow)
    turns_only(env)
    delivery = received(env)
    assert delivery is not None
    [waiting] = env.hooks()
    env.wait_for(env.client.resume_hook(waiting.token, "yes"))
    die_before(env, "store.put_step")
    assert found(env, run, "StepCancelled")
    made = env.wait_for(env._make(load_attempt(delivery.body), delivery))
    assert made is AttemptEnd.NOTHING
    assert entries == []
    env.wait_for(env._local.step_queue.delete(delivery))
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "the end")
    assert env.result(run) == "the end"


def late_row(env: Environment, run_id: str, hook_id: str, step: str | None = None) -> None:
    """The row of a hook, put by somebody who does not know yet that its run has ended."""
    row = HookRow(
        run_id=run_id,
        hook_id=hook_id,
        name="late",
        step=step,
        key_id="k1",
        created_at=env.clock.now(),
    )
    env.wait_for(env._local.store.put_hook(row))


def status_of(env: Environment, run_id: str, hook_id: str) -> HookStatus | None:
    row = env.wait_for(env._local.store.get_hook(run_id, hook_id))
    return None if row is None else row.status


@pytest.mark.breaks_laws("a row is put after the end")
def test_a_row_that_comes_after_the_end_is_closed_by_the_next_turn(env: Environment) -> None:
    run = env.start(workflow(echo), 1)
    env.run_until_idle()
    late_row(env, run.id, "late:1")
    wake(env, run.id)
    assert status_of(env, run.id, "late:1") is HookStatus.CLOSED


@pytest.mark.breaks_laws("a row is put after the end")
def test_a_row_that_comes_after_the_end_is_closed_by_an_attempt_of_its_step(
    env: Environment,
) -> None:
    @step(dispatch="worker")
    async def away() -> int:
        return 1

    @workflow
    async def flow() -> int:
        return await away()

    run = env.start(flow)
    turns_only(env)
    delivery = received(env)
    assert delivery is not None
    attempt = load_attempt(delivery.body)
    env.wait_for(env._make(attempt, delivery))
    env.wait_for(env._local.step_queue.delete(delivery))
    env.run_until_idle()
    assert env.result(run) == 1
    late_row(env, run.id, "late:1", attempt.step)
    assert env.wait_for(env._make(attempt, delivery)) is AttemptEnd.NOTHING
    assert status_of(env, run.id, "late:1") is HookStatus.CLOSED


def die_before(env: Environment, call: str) -> None:
    """Take turns of which each dies one port call later, until one dies before that call."""
    for number in itertools.count(1):
        env.crash_at(number)
        env.wait_for(one_turn(env))
        assert env.crashes == number
        if env.port_calls[-1] == call:
            break


async def one_turn(env: Environment) -> None:
    delivery = await env._local.queue.receive()
    assert delivery is not None
    await env._work(delivery)
