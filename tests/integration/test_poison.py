"""Poison: a run whose turns fail again and again is marked and kept, and harms no other run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepwell import RetryPolicy, StepInterrupted, hook, step, workflow
from stepwell.adapters.local.clock import SkippingClock
from stepwell.adapters.local.database import Database
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.adapters.local.wiring import open_ports
from stepwell.authoring.registry import registry
from stepwell.core.messages import HookDecided, load_message
from stepwell.core.records import RunStatus
from stepwell.engine.settings import Settings
from stepwell.testing import Environment
from tests.integration.histories import found, kinds

Mend = Callable[[], object]


class Deployment:
    """A local engine whose clock skips. `live` gives every message as many deliveries as it has."""

    def __init__(self, engine: LocalEngine, clock: SkippingClock) -> None:
        self.engine = engine
        self.client = engine.client
        self.queue = engine.local.queue
        self.database: Database = engine.local.database
        self._clock = clock

    async def live(self) -> None:
        for _ in range(15):
            await self.engine.run_until_idle()
            self._clock.advance(60_000)


def play(path: Path, story: Callable[[Deployment], Awaitable[None]]) -> None:
    """Play a story in a deployment of its own."""

    async def told() -> None:
        ports = open_ports(path / "stepwell.db", clock=(clock := SkippingClock(1_000_000)))
        settings = Settings(keyring=keyring_of(ports.database))
        with LocalEngine(ports, registry=registry, settings=settings) as engine:
            await story(Deployment(engine, clock))

    asyncio.run(told())


def a_row_of_a_later_version(database: Database, run_id: str) -> Mend:
    return _replace_commit(database, run_id, '[{"type":"OfALaterVersion","at":1}]')


def a_log_that_cannot_be(database: Database, run_id: str) -> Mend:
    return _replace_commit(database, run_id, '[{"type":"RunCompleted","at":1,"result":"1"}]')


def _replace_commit(database: Database, run_id: str, events: str) -> Mend:
    sql = "UPDATE commits SET events = ? WHERE run_id = ? AND first = 1"
    [(before,)] = database.query("SELECT events FROM commits WHERE run_id = ?", run_id)
    database.change(sql, events, run_id)
    return lambda: database.change(sql, before, run_id)


def a_value_that_is_gone(database: Database, run_id: str) -> Mend:
    [(sha256, data)] = database.query("SELECT sha256, data FROM blobs")
    database.change("DELETE FROM blobs")
    return lambda: database.change("INSERT INTO blobs VALUES (?, ?)", sha256, data)


POISONS = [a_row_of_a_later_version, a_log_that_cannot_be, a_value_that_is_gone]


@pytest.mark.parametrize("by", ["wake", "redrive", "both"])
@pytest.mark.parametrize("poison", POISONS)
def test_a_poisoned_run_is_stuck_and_kept_and_goes_on_once_it_is_mended(
    tmp_path: Path, poison: Callable[[Database, str], Mend], by: str
) -> None:
    @workflow
    async def asks(text: str) -> str:
        return f"{len(text)} {await hook('question')}"

    @workflow
    async def healthy(number: int) -> int:
        return number

    async def story(at: Deployment) -> None:
        run = await at.client.start(asks, "x" * 20_000)
        await at.engine.run_until_idle()
        [waiting] = (await at.client.list_hooks(run_id=run.id)).items
        mend = poison(at.database, run.id)
        await at.client.resume_hook(waiting.token, "promised")
        others = [await at.client.start(healthy, n) for n in range(3)]
        await at.engine.run_until_idle()
        assert [await other.result(timeout=0) for other in others] == [0, 1, 2]
        await at.live()
        header = await at.engine.local.store.get_header(run.id)
        assert header is not None
        assert (header.status, header.last_event) == (RunStatus.SUSPENDED, 2)
        assert header.attention is not None
        assert header.attention.kind == "STUCK"
        assert "10 times" in header.attention.reason or "too often" in header.attention.reason
        [letter] = [each for each in await at.queue.dead_letters() if each.run_id == run.id]
        message = load_message(letter.body)
        assert isinstance(message, HookDecided)
        assert message.payload == '"promised"'
        mend()
        if by != "redrive":
            await at.client.wake(run.id)
        if by != "wake":
            await at.queue.redrive(letter.message_id)
        await at.live()
        assert await run.result(timeout=0) == "20000 promised"
        assert (await run.get()).attention is None
        events = [each.event.type for each in await run.history()]
        assert events == ["RunStarted", "HookOpened", "HookReceived", "RunCompleted"]

    play(tmp_path, story)


@contextmanager
def fatal(env: Environment, deaths: int, retry: RetryPolicy) -> Iterator[Any]:
    """A step whose process dies in its first entries."""
    entered: list[int] = []

    @step(retry=retry)
    async def fatal() -> int:
        entered.append(1)
        if len(entered) <= deaths:
            env.crash_at(1)
        return len(entered)

    yield fatal


def test_a_step_that_kills_each_process_fails_as_interrupted_with_its_attempts(
    env: Environment,
) -> None:
    with fatal(env, 1_000, RetryPolicy(max_attempts=4)) as kills:

        @workflow
        async def flow() -> str:
            try:
                await kills()
            except StepInterrupted as error:
                return f"{error.attempts}: {error.message}"
            return "survived"

        run = env.start(flow)
        env.run_until_idle()
    assert env.result(run) == "4: the process died in attempt 4, and it was the last one"
    # The death in the first delivery is not counted.
    assert env.crashes == 5
    assert [event.attempt for event in found(env, run, "StepStarted")] == [1, 2, 3, 4]


def test_with_more_attempts_than_deliveries_the_run_is_stuck_and_not_silent() -> None:
    with (
        Environment() as env,
        fatal(env, 10, RetryPolicy(max_attempts=100)) as kills,
    ):

        @workflow
        async def flow() -> int:
            entered: int = await kills()
            return entered

        run = env.start(flow)
        env.run_until_idle()
        assert env.crashes == 10
        note = env.get(run).attention
        assert note is not None
        assert note.kind == "STUCK"
        for what in ("10 times", "log", "await", "memory", "wake the run"):
            assert what in note.reason
        assert len(env.wait_for(env._local.queue.dead_letters())) == 1
        env.wait_for(env.client.wake(run.id))
        env.run_until_idle()
        assert env.result(run) == 11
        assert env.get(run).attention is None
        assert kinds(env, run)[-2:] == ["StepCompleted", "RunCompleted"]
        [done] = found(env, run, "StepCompleted")
        assert done.attempt == 10
