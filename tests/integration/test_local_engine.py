"""The embedded engine, where several processes with different code share one file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stepwell import hook, workflow
from stepwell.adapters.local.clock import SkippingClock
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.adapters.local.wiring import open_ports
from stepwell.authoring.registry import Registry, registry
from stepwell.core.messages import StartRun
from stepwell.core.records import RunStatus
from stepwell.engine.settings import Settings

START = StartRun(
    run_id="run",
    workflow="greet",
    version="1",
    input='{"name":"world"}',
    input_digest="d",
    seed="s",
    created_at=1_893_456_000_000,
)


def test_a_start_whose_sender_died_is_left_to_an_engine_that_knows_the_workflow(
    tmp_path: Path,
) -> None:
    @workflow
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def play() -> None:
        path = tmp_path / "stepwell.db"
        with (
            LocalEngine.open(path) as knowing,
            LocalEngine.open(path, registry=Registry()) as other,
        ):
            await other.local.queue.send(START)
            await other.serve(until_idle=True)
            assert other.turns == 0
            assert (await other.client.get("run")).status is RunStatus.PENDING
            await knowing.serve(until_idle=True)
            assert knowing.turns == 1
            assert await knowing.client.result("run", timeout=0) == "hello world"

    asyncio.run(play())


def test_only_blocked_runs_of_known_workflows_are_woken(tmp_path: Path) -> None:
    @workflow
    async def asks() -> None:
        await hook("question")

    async def play() -> None:
        path = tmp_path / "stepwell.db"
        with LocalEngine.open(path) as engine, LocalEngine.open(path, registry=Registry()) as other:
            await engine.client.start(asks)
            await engine.serve(until_idle=True)
            assert await engine.wake_blocked() == 0
            assert await other.wake_blocked() == 0
            assert await engine.local.queue.depth() == 0

    asyncio.run(play())


def test_the_lease_is_how_long_a_message_of_a_dead_process_stays_away(tmp_path: Path) -> None:
    async def play() -> None:
        with LocalEngine.open(tmp_path / "stepwell.db", lease=60_000) as engine:
            queue, clock = engine.local.queue, engine.local.ports.clock
            await queue.send(START)
            before = clock.now()
            assert await queue.receive() is not None
            visible = await queue.next_visible_at()
            assert visible is not None
            assert before + 60_000 <= visible <= clock.now() + 60_000

    asyncio.run(play())


def test_a_run_whose_turns_keep_failing_ends_up_marked_as_stuck_and_others_go_on(
    tmp_path: Path,
) -> None:
    @workflow
    async def healthy() -> str:
        return "done"

    @workflow
    async def poisoned() -> None:
        raise KeyboardInterrupt  # what no turn survives

    async def turn(engine: LocalEngine) -> bool:
        try:
            return await engine.step()
        except KeyboardInterrupt:
            return True

    async def play() -> None:
        ports = open_ports(tmp_path / "stepwell.db", clock=(clock := SkippingClock(0)))
        settings = Settings(keyring=keyring_of(ports.database))
        with LocalEngine(ports, registry=registry, settings=settings) as engine:
            stuck = await engine.client.start(poisoned)
            well = await engine.client.start(healthy)
            for _ in range(30):
                await turn(engine)
                clock.advance(300_000)
            assert await well.result(timeout=0) == "done"
            attention = (await stuck.get()).attention
            assert attention is not None
            assert attention.kind == "STUCK"
            [letter] = await ports.queue.dead_letters()
            assert letter.receive_count == 10

    asyncio.run(play())
