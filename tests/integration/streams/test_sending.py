"""When a signal that code emits leaves: after the event that says so is durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepwell import emit, step, workflow
from stepwell.core.events import SignalEmitted
from stepwell.core.messages import SignalSent
from stepwell.engine.stream_ports import SignalQueue
from stepwell.engine.turn import Engine
from stepwell.testing import Environment


class Watched(Environment):
    """Its engine's signals are looked for in the log of their run when they leave."""

    def _new_engine(self) -> Engine:
        self.early: list[str] = []
        self.left = 0
        ports = replace(self._ports, signals=_Watch(self, self._ports.signals))
        return Engine(ports, self._settings, self._registry, self._chance)

    async def look(self, signals: Sequence[SignalSent]) -> None:
        for signal in signals:
            assert signal.source_run_id is not None
            rows = await self._local.store.load(signal.source_run_id)
            events = [event for commit in rows.commits for event in commit.events]
            there = {each.signal_id for each in events if isinstance(each, SignalEmitted)}
            self.left += 1
            if signal.signal_id not in there:
                self.early.append(signal.signal_type)


class _Watch:
    def __init__(self, env: Watched, queue: SignalQueue) -> None:
        self._env = env
        self._queue = queue

    async def send(self, signals: Sequence[SignalSent]) -> None:
        await self._env.look(signals)
        await self._queue.send(signals)


def test_no_signal_leaves_before_its_event() -> None:
    @step
    async def between(number: int) -> int:
        return number

    @workflow
    async def tells() -> None:
        await emit("elsewhere", "first")
        await between(1)
        await emit("elsewhere", "second")
        await emit("elsewhere", "third")

    with Watched() as env:
        env.run(tells)
        assert env.early == []
        assert env.left == 3
