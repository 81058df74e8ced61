"""A subscription that is busy for days: what stays of its log, and how soon it hears of others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from stepwell import get_current_signal, step, stream_step, stream_workflow
from stepwell.client import NewSignal
from stepwell.testing import Environment
from tests.integration.streams.given import begin, subscription


def many(env: Environment, count: int) -> None:
    """Emit signals, and work until idle."""
    left = count
    while left > 0:
        news = [NewSignal(signal_type="ring") for _ in range(min(left, 50))]
        env.wait_for(env.client.emit_all("bells", news))
        left -= len(news)
    env.run_until_idle()


def commits(path: Path, run_id: str) -> list[int]:
    """The first numbers of all commits that are kept of a run."""
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT first FROM commits WHERE run_id = ? ORDER BY first", (run_id,))
        return [first for (first,) in rows]


def test_a_log_that_is_busy_all_day_is_cut_off_behind_it(tmp_path: Path) -> None:
    with Environment(path=tmp_path / "file.db") as env:

        @stream_workflow
        async def bells() -> None: ...

        @stream_step(stream=bells, signals=["ring"])
        async def tower() -> None: ...

        begin(env, bells)
        run_id = subscription(env, "bells", "tower").run_id
        firsts = []
        for _ in range(16):
            many(env, 100)
            firsts.append(commits(tmp_path / "file.db", run_id)[0])
            env.advance(timedelta(hours=6))
        assert firsts[:5] == [1] * 5, "nothing goes for a day"
        kept = commits(tmp_path / "file.db", run_id)
        # Eight hundred events a day: no more than two days are kept, and a bit.
        assert kept[-1] - kept[0] < 2_200
        assert subscription(env, "bells", "tower").handled == 1_600


def test_a_cancel_is_heard_between_two_signals_of_a_long_turn(stepwell_env: Environment) -> None:
    env, seen = stepwell_env, []
    env._engine.settings = replace(env._engine.settings, look_every=0)

    @step(name="streams.toll")
    async def toll(number: int) -> None:
        seen.append(number)
        if number == 2:
            await env.client.cancel(run_id)

    @stream_workflow
    async def bells() -> None: ...

    @stream_step(stream=bells, signals=["ring"])
    async def tower() -> None:
        signal = await get_current_signal()
        if signal is not None:
            await toll(signal.sequence)

    owner = begin(env, bells)
    run_id = subscription(env, "bells", "tower").run_id
    many(env, 20)
    assert len(seen) < 5, "a turn that other signals have called begins with one of them"
    assert subscription(env, "bells", "tower").status == "cancelled"
    assert env.result(owner).step_states == {"tower": "cancelled"}
