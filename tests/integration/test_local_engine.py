"""The embedded engine, where several processes with different code share one file."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stepwell import hook, step, workflow
from stepwell.adapters.local.clock import SkippingClock, SystemClock
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.leases import Leases
from stepwell.adapters.local.queue import SqliteQueue
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.adapters.local.wiring import open_ports
from stepwell.authoring.registry import Registry, registry
from stepwell.core.messages import StartRun
from stepwell.core.records import Attention, RunStatus
from stepwell.engine.headers import header_of
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
            assert (await engine.publish()).woken == 0
            assert (await other.publish()).woken == 0
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
            return await engine.take_turn()
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


def test_a_step_that_blocks_the_event_loop_keeps_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "stepwell.db"
    lease = 2_000  # long enough for a renewal to come late on a busy machine
    others: list[int] = []

    async def look_from_another() -> int:
        with LocalEngine.open(path, lease=lease) as other:
            return await other.run_until_idle()

    @step
    async def block() -> None:
        clock = SystemClock()
        over = clock.now() + lease  # it began before this step did
        while clock.now() <= over:
            time.sleep(0.01)  # noqa: ASYNC251 -- this is what must do no harm
        with ThreadPoolExecutor(1) as thread:
            others.append(thread.submit(asyncio.run, look_from_another()).result())

    @workflow
    async def blocks() -> None:
        await block()

    async def play() -> None:
        with LocalEngine.open(path, lease=lease) as engine:
            run = await engine.client.start(blocks)
            await engine.serve(until_idle=True)
            assert engine.turns == 1
            await run.result(timeout=0)

    asyncio.run(play())
    assert others == [0]


def test_a_message_given_back_is_not_held_by_the_lease_of_its_turn(tmp_path: Path) -> None:
    async def play() -> None:
        with (
            LocalEngine.open(tmp_path / "stepwell.db", lease=2_000) as engine,
            closing(Leases(engine.local.queue, 2_000)) as leases,
        ):
            queue, clock = engine.local.queue, engine.local.ports.clock
            await queue.send(START)
            delivery = await queue.receive()
            assert delivery is not None
            with leases.held(delivery):
                assert await moved(queue)
            assert await queue.give_back(delivery, delay=3_600_000)
            visible = await queue.next_visible_at()
            leases.close()
            assert await queue.next_visible_at() == visible
            assert visible is not None
            assert visible > clock.now() + 3_000_000

    async def moved(queue: SqliteQueue) -> bool:
        before = await queue.next_visible_at()
        for _ in range(1_000):
            if await queue.next_visible_at() != before:
                return True
            await asyncio.sleep(0.005)
        return False

    asyncio.run(play())


def test_an_engine_leaves_no_thread_behind(tmp_path: Path) -> None:
    @workflow
    async def quick() -> int:
        return 1

    async def play() -> None:
        with LocalEngine.open(tmp_path / "stepwell.db") as engine:
            await engine.client.start(quick)
            await engine.serve(until_idle=True)

    asyncio.run(play())
    assert "stepwell-leases" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.breaks_laws("headers that no start led to")
def test_runs_are_listed_by_what_calls_for_attention(tmp_path: Path) -> None:
    async def play() -> None:
        with LocalEngine.open(tmp_path / "stepwell.db") as engine:
            store = engine.local.store
            plain = header_of(START)
            for kind in ("BLOCKED", "STUCK"):
                note = Attention(kind=kind, reason="it is so", since=1)
                await store.put_header(replace(plain, run_id=kind, attention=note))
            await store.put_header(plain)
            for kind in ("BLOCKED", "STUCK"):
                page = await store.list_runs(attention=kind)
                assert [header.run_id for header in page.items] == [kind]
            assert await store.update_header(replace(plain, run_id="STUCK"))
            assert (await store.list_runs(attention="STUCK")).items == ()

    asyncio.run(play())


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "stepwell.db"
    path.touch()
    path.chmod(0o640)
    tmp_path.chmod(0o750)
    LocalEngine.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o640
    assert tmp_path.stat().st_mode & 0o777 == 0o750
