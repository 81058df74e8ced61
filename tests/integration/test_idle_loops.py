"""Messages that bring about no progress: each way to send one more is bounded, or sends none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RetryPolicy, hook, sleep, step, workflow
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core.messages import Continue, Wake, load_message
from stepwell.core.records import RunHeader
from stepwell.engine import settle
from stepwell.engine.endings import TurnEnd
from stepwell.engine.settings import Limits
from stepwell.engine.turn import _Delivered
from stepwell.engine.turn_context import TurnContext
from stepwell.testing import Environment
from tests.integration.attempts import begun, received, turns_only
from tests.integration.histories import kinds


def wake(env: Environment, run: RunHandle[Any]) -> int:
    """Wake a run. Returns how many turns came of it, with all that they led to."""
    before = len(env.turns)
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    return len(env.turns) - before


def _waiting_for_long(env: Environment) -> RunHandle[Any]:
    @workflow
    async def flow() -> None:
        await sleep("1d")

    run: RunHandle[Any] = env.start(flow)
    env.run_until_idle()
    return run


def _idle_turn(env: Environment, run: RunHandle[Any], message: Any) -> TurnContext:
    """A turn that has recorded nothing. No workflow is known to bring one about that hands over."""

    async def load() -> TurnContext:
        rows = await env._local.store.load(run.id)
        assert rows.header is not None
        delivered = _Delivered(message, "the-id", 1, None)
        return env._engine._context(delivered, rows.header, rows)

    return env.wait_for(load())


def _handed_over(env: Environment, run: RunHandle[Any], idle: int) -> tuple[bool, list[Any]]:
    """Hand over after so many idle turns. Whether the run goes on, and what was sent."""
    turn = _idle_turn(env, run, Continue(run_id=run.id, cause="one", idle=idle))
    went_on = env.wait_for(settle.hand_over(turn, turn.state.next_alarm()))
    sent = []
    while (delivery := env.wait_for(env._local.queue.receive())) is not None:
        sent.append(load_message(delivery.body))
        env.wait_for(env._local.queue.delete(delivery))
    return went_on, sent


@pytest.mark.parametrize("idle", [0, 18, 19])
def test_a_turn_that_hands_over_with_nothing_recorded_is_counted(
    env: Environment, idle: int
) -> None:
    run = _waiting_for_long(env)
    sent = Continue(run_id=run.id, cause="the-id", idle=idle + 1)
    assert _handed_over(env, run, idle) == (True, [sent])
    assert env.get(run).attention is None


def test_too_many_of_them_in_a_row_leave_the_run_stuck_with_the_reason(env: Environment) -> None:
    run = _waiting_for_long(env)
    assert _handed_over(env, run, 20) == (False, [])
    note = env.get(run).attention
    assert note is not None
    assert (note.kind, note.reason.startswith("21 turns one after the other")) == ("STUCK", True)
    assert wake(env, run) == 1
    assert env.get(run).attention is None
    env.advance("1d")
    assert env.result(run) is None


def test_a_turn_that_records_something_begins_to_count_anew() -> None:
    @step
    async def one() -> None: ...

    @workflow
    async def flow() -> None:
        for _ in range(10):
            await one()

    with Environment(turn_time=0, limits=Limits(idle_hops=1)) as env:
        run = env.start(flow)
        env.run_until_idle()
        assert env.result(run) is None
        assert env.turns.count(TurnEnd.HANDED_OVER) == 9


def test_a_message_of_before_is_read_and_what_is_not_idle_is_written_as_before() -> None:
    assert load_message('{"type":"continue","run_id":"r","cause":"c"}') == Continue(
        run_id="r", cause="c", idle=0
    )
    assert "idle" not in Continue(run_id="r", cause="c").model_dump_json()
    assert Continue(run_id="r", cause="c", idle=3).model_dump_json(exclude_none=True) == (
        '{"run_id":"r","type":"continue","cause":"c","idle":3}'
    )


def _blocked(env: Environment, flow: Any) -> RunHandle[Any]:
    """A run whose code is gone."""
    with registry.isolated():
        run: RunHandle[Any] = env.start(workflow(flow))
        env.run_until_idle()
    return run


async def _retrying() -> None:
    @step(retry=RetryPolicy(max_attempts=5, initial="1h", max_delay="1h", jitter="none"))
    async def never() -> None:
        raise ValueError

    asking = asyncio.create_task(_ask())
    await never()
    await asking


async def _ask() -> None:
    await hook("late", timeout="3h", on_timeout="return")


def test_a_blocked_run_sets_no_timer_for_what_is_due_already() -> None:
    with Environment() as env:
        run = _blocked(env, _retrying)
        env.advance("2h")
        assert env.turns[-1] is TurnEnd.BLOCKED
        due = env.next_timer(run)
        assert due is not None
        assert due > env.clock.now()
        for _ in range(3):
            env.advance("10m")
            assert wake(env, run) == 1


def test_a_blocked_run_still_records_what_comes_due_later() -> None:
    with Environment() as env:
        run = _blocked(env, _retrying)
        env.advance("4h")
        assert kinds(env, run)[-1] == "HookExpired"
        before = len(env.turns)
        env.advance("30d")
        assert len(env.turns) == before


@pytest.mark.breaks_laws("a row is deleted by hand")
def test_a_deadline_whose_row_is_gone_does_not_wake_its_run_again_and_again() -> None:
    @workflow
    async def flow() -> None:
        await hook("gone", timeout="1h")

    with Environment(unchecked="a row is deleted by hand") as env:
        run = env.start(flow)
        env.run_until_idle()
        env._local.database.change("DELETE FROM hooks")
        before = len(env.turns)
        env.advance("30d")
        assert len(env.turns) - before == 1
        for _ in range(3):
            env.advance("10m")
            assert wake(env, run) <= 2
        before = len(env.turns)
        env.advance("30d")
        assert len(env.turns) == before


def test_every_wake_up_of_a_blocked_run_is_one_turn_and_no_more() -> None:
    with Environment() as env:
        run = _blocked(env, _retrying)
        for _ in range(3):
            assert wake(env, run) == 1
            assert env.turns[-1] is TurnEnd.BLOCKED


@step(name="idle.work", dispatch="worker")
async def work() -> str:
    if GATE:
        WAITING.append(1)
        await GATE[0].wait()
    ENTERED.append(1)
    return "done"


GATE: list[asyncio.Event] = []
WAITING: list[int] = []
ENTERED: list[int] = []


@pytest.fixture
def working() -> Any:
    GATE.clear()
    WAITING.clear()
    ENTERED.clear()

    @workflow
    async def working() -> str:
        return await work()

    return working


def test_an_attempt_that_is_sent_again_on_every_doubt_is_made_once(
    env: Environment, working: Any
) -> None:
    run = env.start(working)
    turns_only(env)
    for n in range(5):
        env.wait_for(env._local.queue.send(Wake(run_id=run.id, cause=f"doubt {n}")))
    turns_only(env)
    assert len(env.wait_for(env._local.step_queue.attempts_of(run.id))) == 6
    before = len(env.turns)
    env.run_until_idle()
    assert env.result(run) == "done"
    assert ENTERED == [1]
    assert len(env.turns) - before == 1


def test_a_second_message_of_an_attempt_stays_away_until_the_first_is_over(
    env: Environment, working: Any
) -> None:
    env.start(working)
    turns_only(env)

    async def gate() -> None:
        GATE.append(asyncio.Event())

    env.wait_for(gate())
    underway = begun(env, lambda: WAITING)
    env.wait_for(env._local.step_queue.send(underway.attempt))
    again = received(env)
    assert again is not None
    env.wait_for(env._attempt(again))
    visible = env.wait_for(env._local.step_queue.next_visible_at())
    assert visible is not None
    # Whatever comes first: the end of the claim, or the lease of the first message.
    assert visible >= env.clock.now() + 60_000
    assert received(env) is None
    GATE[0].set()
    underway.ended()
    env.run_until_idle()
    assert ENTERED == [1]


def test_the_header_of_a_run_that_waits_for_nothing_due_is_left_alone(env: Environment) -> None:
    run = _waiting_for_long(env)
    before: RunHeader = env.get(run)
    assert wake(env, run) == 1
    assert env.get(run) == before
