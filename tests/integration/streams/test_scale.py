"""Many signals, and many subscriptions: what they cost grows as they do, and no turn reads more."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stepwell import (
    get_checkpoint,
    get_current_signal,
    hook,
    save_checkpoint,
    stream_step,
    stream_workflow,
)
from stepwell.client import NewSignal
from stepwell.engine.subscriptions import SNAPSHOT_EVERY
from stepwell.testing import Environment
from tests.integration.streams.given import begin, post, send, standing, subscription

Seen = list[Any]


def counter(env: Environment) -> Any:
    """A stream with a step that adds up."""

    @stream_workflow
    async def meter() -> None: ...

    @stream_step(stream=meter, signals=["tick"])
    async def total() -> None:
        signal = await get_current_signal()
        known = (await get_checkpoint()) or {"sum": 0, "seen": 0}
        if signal is not None:
            assert signal.sequence == known["seen"] + 1
            await save_checkpoint({"sum": known["sum"] + signal.payload, "seen": signal.sequence})

    return begin(env, meter)


def emit_many(env: Environment, many: int) -> Counter[str]:
    """Emit that many signals, work until idle; the port calls by name."""
    signals = [NewSignal(signal_type="tick", payload=1) for _ in range(many)]
    env.wait_for(env.client.emit_all("meter", signals))
    env.crash_at(10**9)  # from here on calls are counted
    env.run_until_idle()
    return Counter(env.port_calls)


def test_each_further_signal_costs_what_those_before_did(stepwell_env: Environment) -> None:
    counter(stepwell_env)
    first = emit_many(stepwell_env, 2_500)
    found = [emit_many(stepwell_env, 2_500) for _ in range(3)]
    for calls in found:
        assert calls.total() <= first.total() + 10
        assert calls["streams.append"] == 250
        assert calls["store.append"] <= 250
    shown = subscription(stepwell_env, "meter", "total")
    assert (shown.handled, shown.lag) == (10_000, 0)


def test_a_turn_reads_the_log_from_the_last_snapshot_on(stepwell_env: Environment) -> None:
    counter(stepwell_env)
    for _ in range(6):
        emit_many(stepwell_env, 200)
    run_id = subscription(stepwell_env, "meter", "total").run_id
    rows = stepwell_env.wait_for(stepwell_env._local.store.load(run_id))
    events = sum(len(commit.events) for commit in rows.commits)
    assert events <= SNAPSHOT_EVERY + 2 * 100, "whatever came before"
    assert rows.header is not None
    assert rows.header.snapshot > 1_500
    assert subscription(stepwell_env, "meter", "total").handled == 1_200


def test_commits_before_the_last_snapshots_go_after_a_day(stepwell_env: Environment) -> None:
    def kept() -> int:
        sql = "SELECT count(*) FROM commits WHERE run_id = ?"
        found: int = stepwell_env._local.database.query(sql, run_id)[0][0]
        return found

    counter(stepwell_env)
    run_id = subscription(stepwell_env, "meter", "total").run_id
    sizes = []
    for _ in range(4):
        emit_many(stepwell_env, 400)
        stepwell_env.advance("25h")
        sizes.append(kept())
    assert sizes[-1] <= sizes[1] + 2, sizes
    emit_many(stepwell_env, 3)
    assert subscription(stepwell_env, "meter", "total").handled == 1_603


def test_rows_of_signals_that_are_through_go_after_an_hour(stepwell_env: Environment) -> None:
    @stream_workflow
    async def desk() -> None: ...

    @stream_step(stream=desk, signals=["letter"])
    async def answer() -> None:
        if await get_current_signal() is not None:
            await hook("reply")

    begin(stepwell_env, desk)
    for _ in range(60):
        send(stepwell_env, "desk", "letter")
        [question] = stepwell_env.hooks()
        stepwell_env.resume_hook(question.token, {})
        stepwell_env.advance("5m")
    run_id = subscription(stepwell_env, "desk", "answer").run_id
    sql = "SELECT count(*) FROM hooks WHERE run_id = ?"
    left = stepwell_env._local.database.query(sql, run_id)[0][0]
    assert 12 <= left <= 12 + SNAPSHOT_EVERY // 3


@pytest.mark.parametrize("many", [30])
def test_one_signal_wakes_each_of_many_subscriptions_once(
    stepwell_env: Environment, many: int
) -> None:
    seen: Seen = []

    def declare(stream: Any, name: str) -> None:
        @stream_step(stream=stream, signals=["news"], name=name)
        async def read() -> None:
            if await get_current_signal() is not None:
                seen.append(name)

    def broadcast(stream: str, readers: int) -> Counter[str]:
        @stream_workflow(name=stream)
        async def body() -> None: ...

        for number in range(readers):
            declare(body, f"reader{number}")
        begin(stepwell_env, body)
        post(stepwell_env, stream, "news")
        seen.clear()
        stepwell_env.crash_at(10**9)
        stepwell_env.run_until_idle()
        assert len(seen) == len(set(seen)) == readers
        return Counter(stepwell_env.port_calls)

    few, more = broadcast("gazette", many), broadcast("herald", 2 * many)
    assert more["queue.send_all"] == few["queue.send_all"] == 1
    assert more.total() - 10 <= 2 * few.total()
    assert standing(stepwell_env, "herald").last == 1
