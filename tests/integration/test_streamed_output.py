"""Streamed output: chunks in order, each once to a reader, also while the step still runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    Result,
    RetryPolicy,
    StepFailed,
    current,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.client import Client, OutputChunk
from stepwell.core.tokens import Keyring
from stepwell.engine.settings import Settings
from stepwell.errors import DefinitionError, RunNotFound
from stepwell.testing import Environment
from tests.integration.histories import check_history, crashes_of

QUICK = RetryPolicy(initial="1m", jitter="none")


class Report(BaseModel):
    words: int


def read(chunks: Sequence[OutputChunk]) -> list[Any]:
    """What a reader has who obeys reset marks; checks that numbers and positions agree."""
    assert [chunk.position for chunk in chunks] == list(range(1, len(chunks) + 1))
    standing: list[Any] = []
    for chunk in chunks:
        if chunk.reset:
            assert chunk.number < len(standing)
            del standing[chunk.number :]
        else:
            assert chunk.number == len(standing) + 1
            standing.append(chunk.value)
    return standing


def test_chunks_are_stored_in_order_and_the_result_apart(env: Environment) -> None:
    @step(stream=True)
    async def talk(words: list[str]) -> AsyncIterator[str | Result[Report]]:
        for word in words:
            yield word
        yield Result(Report(words=len(words)))

    @workflow
    async def flow() -> Report:
        report: Report = await talk(["a", "b", "c"])
        await sleep("1h")
        return report

    run = env.start(flow)
    assert env.run_to_end(run) == Report(words=3)
    assert env.output(run, "talk:1") == [
        OutputChunk(1, 1, "a"),
        OutputChunk(2, 2, "b"),
        OutputChunk(3, 3, "c"),
    ]
    assert env.output(run, "talk:1", after=2) == [OutputChunk(3, 3, "c")]
    assert env.output(run, "talk:1", after=3) == []
    assert env.output(run, "other:1") == []


def test_without_a_checkpoint_each_chunk_is_written_once(env: Environment) -> None:
    produced: list[str] = []

    @step(stream=True, retry=QUICK)
    async def talk() -> AsyncIterator[Any]:
        for number in range(3):
            produced.append(f"{number} in {current.entry}")
            yield f"{number} in {current.entry}"
        answer = await step_hook("q")
        yield answer
        if current.attempt == 1:
            raise ConnectionError
        yield "end"
        yield Result(current.entry)

    @workflow
    async def flow() -> Any:
        return await talk()

    run = env.start(flow)
    env.run_until_idle()
    assert read(env.output(run, "talk:1")) == ["0 in 1", "1 in 1", "2 in 1"]
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "answer")
    assert env.run_to_end(run) == 2
    chunks = env.output(run, "talk:1")
    assert [chunk.value for chunk in chunks] == ["0 in 1", "1 in 1", "2 in 1", "answer", "end"]
    assert len(produced) == 9


def test_with_a_checkpoint_numbering_goes_on_where_its_entry_suspended(env: Environment) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[Any]:
        turn = await load_step_checkpoint() or 0
        while turn < 3:
            yield f"turn {turn}"
            turn += 1
            await save_step_checkpoint(turn)
            yield f"question {turn}"
            await step_hook("q", key=str(turn))
            yield f"thanks {turn}"
        yield Result(turn)

    @workflow
    async def flow() -> Any:
        return await talk()

    run = env.start(flow)
    env.run_until_idle()
    for number in (1, 2, 3):
        [waiting] = env.hooks()
        assert waiting.hook_id == f"talk:1>q@{number}"
        env.resume_hook(waiting.token)
    assert env.result(run) == 3
    chunks = env.output(run, "talk:1")
    assert not any(chunk.reset for chunk in chunks)
    assert read(chunks) == [
        "turn 0",
        "question 1",
        "turn 1",
        "question 2",
        "turn 2",
        "question 3",
    ]


def test_what_a_failed_entry_put_out_after_its_checkpoint_is_superseded(env: Environment) -> None:
    @step(stream=True, retry=QUICK)
    async def talk() -> AsyncIterator[Any]:
        done = await load_step_checkpoint()
        if done is None:
            yield "kept"
            await save_step_checkpoint(True)
        yield f"first of {current.attempt}"
        yield f"second of {current.attempt}"
        if current.attempt == 1:
            raise ConnectionError
        yield Result(None)

    @workflow
    async def flow() -> None:
        await talk()

    run = env.start(flow)
    env.run_to_end(run)
    chunks = env.output(run, "talk:1")
    assert [(chunk.number, chunk.reset) for chunk in chunks] == [
        (1, False),
        (2, False),
        (3, False),
        (1, True),
        (2, False),
        (3, False),
    ]
    assert read(chunks) == ["kept", "first of 2", "second of 2"]


def test_a_shorter_second_try_takes_back_what_it_did_not_repeat(env: Environment) -> None:
    @step(stream=True, retry=QUICK)
    async def talk() -> AsyncIterator[Any]:
        for number in range(4 if current.attempt == 1 else 2):
            yield number
        if current.attempt == 1:
            raise ConnectionError
        yield Result(None)

    @workflow
    async def flow() -> None:
        await talk()

    run = env.start(flow)
    env.run_to_end(run)
    assert read(env.output(run, "talk:1")) == [0, 1]


def test_an_entry_that_saves_nothing_repeats_nothing_of_the_one_before(env: Environment) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[Any]:
        if await load_step_checkpoint() is None:
            yield "before"
            await save_step_checkpoint(1)
        yield "after"
        for number in range(3):
            yield f"{number} {await step_hook('q', key=str(number))}"
        yield Result(None)

    @workflow
    async def flow() -> None:
        await talk()

    run = env.start(flow)
    env.run_until_idle()
    for answer in "abc":
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, answer)
    chunks = env.output(run, "talk:1")
    assert not any(chunk.reset for chunk in chunks)
    assert read(chunks) == ["before", "after", "after", "0 a", "1 b", "2 c"]


def test_loading_a_checkpoint_twice_takes_nothing_back(env: Environment) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[Any]:
        if await load_step_checkpoint() is None:
            yield "a"
            await save_step_checkpoint(1)
        await step_hook("q")
        yield "b"
        await load_step_checkpoint()
        yield "c"
        yield Result(await load_step_checkpoint())

    @workflow
    async def flow() -> Any:
        return await talk()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token)
    assert env.result(run) == 1
    chunks = env.output(run, "talk:1")
    assert [chunk.value for chunk in chunks] == ["a", "b", "c"]


def test_a_crash_anywhere_shows_a_reader_each_chunk_once() -> None:
    runs: list[Any] = []
    entries: list[int] = []

    @step(stream=True)
    async def talk() -> AsyncIterator[Any]:
        entries.append(1)
        state = await load_step_checkpoint() or {"answers": [], "asked": False}
        while len(state["answers"]) < 2:
            turn = len(state["answers"])
            if not state["asked"]:
                yield f"model turn {turn}"
                yield f"tool call {turn} in entry {len(entries)}"
                state["asked"] = True
                await save_step_checkpoint(state)
            answer = await step_hook("human", key=str(turn))
            state = {"answers": [*state["answers"], answer], "asked": False}
            await save_step_checkpoint(state)
        yield "done"
        yield Result("done")

    @workflow
    async def flow() -> Any:
        return await talk()

    def scenario(env: Environment) -> None:
        entries.clear()
        runs.append(env.start(flow))
        env.run_until_idle()
        for _ in range(2):
            [waiting] = env.hooks()
            env.resume_hook(waiting.token)
        env.advance("1m")

    resets = set()
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "done"
        chunks = env.output(runs[-1], "talk:1")
        resets.add(sum(chunk.reset for chunk in chunks))
        words = [" ".join(chunk.split()[:3]) for chunk in read(chunks)]
        assert words == ["model turn 0", "tool call 0", "model turn 1", "tool call 1", "done"]
        assert len({chunk.number for chunk in chunks}) == 5
    assert max(resets) <= 1


def test_a_crash_in_mid_entry_marks_what_is_superseded(env: Environment) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[Any]:
        if await load_step_checkpoint() is None:
            yield "kept"
            await save_step_checkpoint(1)
            yield "lost"
            env.crash_at(1)
        yield "again"
        yield Result(None)

    @workflow
    async def flow() -> None:
        await talk()

    run = env.start(flow)
    env.run_until_idle()
    assert env.crashes == 1
    chunks = env.output(run, "talk:1")
    assert [chunk.reset for chunk in chunks] == [False, False, True, False]
    assert read(chunks) == ["kept", "again"]


@pytest.mark.parametrize("kind", ["late result", "no json", "other type"])
def test_a_wrong_yield_is_a_permanent_error(env: Environment, kind: str) -> None:
    @step(stream=True)
    async def talk(kind: str) -> AsyncIterator[str | Result[int]]:
        if kind == "no json":
            yield object()  # type: ignore[misc]
        if kind == "other type":
            yield Result("many")  # type: ignore[arg-type]
            return
        yield Result(1)
        if kind == "late result":
            yield "after the result"

    @workflow
    async def flow(kind: str) -> list[Any]:
        try:
            return [await talk(kind)]
        except StepFailed as failed:
            return [failed.type, failed.attempts, failed.message]

    type_, attempts, message = env.run(flow, kind)
    assert attempts == 1
    assert "step 'talk'" in message
    assert type_ == (
        "stepwell.errors.UsageError" if kind == "late result" else "stepwell.errors.PayloadError"
    )


def test_without_a_result_the_result_is_none(env: Environment) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[str]:
        yield "a"

    @step(stream=True)
    async def silent() -> AsyncIterator[str | Result[str]]:
        if current.attempt > 5:
            yield "never"

    @workflow
    async def flow() -> list[Any]:
        try:
            return [await talk(), await silent()]
        except StepFailed as failed:
            return [failed.name, failed.type]

    assert env.run(flow) == ["silent", "stepwell.errors.PayloadError"]


def test_the_declaration_fits_the_function() -> None:
    with pytest.raises(DefinitionError, match="stream=True"):

        @step
        async def forgot() -> AsyncIterator[int]:
            yield 1

    with pytest.raises(DefinitionError, match="generator"):

        @step(stream=True)  # type: ignore[arg-type]
        async def plain() -> int:
            return 1


def test_typed_and_large_chunks_come_back_whole(env: Environment) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[Report | str | Result[None]]:
        yield Report(words=1)
        yield "x" * 20_000
        yield Result(None)

    @workflow
    async def flow() -> None:
        await talk()

    run = env.start(flow)
    env.run_until_idle()
    assert read(env.output(run, "talk:1")) == [{"words": 1}, "x" * 20_000]


def test_output_of_no_run_is_an_error(env: Environment) -> None:
    async def collect(*, follow: bool) -> list[Any]:
        return [chunk async for chunk in env.client.output("no-run", "talk:1", follow=follow)]

    for follow in (True, False):
        with pytest.raises(RunNotFound):
            env.wait_for(collect(follow=follow))


def test_output_outlives_its_process(
    process: Callable[..., AbstractContextManager[Environment]],
) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[Any]:
        yield "before"
        answer = await step_hook("q")
        yield answer
        yield Result("done")

    @workflow
    async def flow() -> Any:
        return await talk()

    with process() as env:
        run = env.start(flow)
        env.run_until_idle()
    with process() as env:
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, "after")

        async def collect() -> list[Any]:
            return [chunk.value async for chunk in env.client.output(run.id, "talk:1")]

        assert env.wait_for(collect()) == ["before", "after"]


class Hasty:
    """A store on which, while a reader asks whether the step has ended, it ends."""

    def __init__(self, store: Any, work: Callable[[], Any]) -> None:
        self._store = store
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, run_id: str) -> Any:
        """All the work, then the rows."""
        await self._work()
        return await self._store.load(run_id)


def test_what_comes_between_two_looks_of_a_follower_is_not_missed(tmp_path: Path) -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[Any]:
        yield "only"
        yield Result(None)

    @workflow
    async def flow() -> None:
        await talk()

    async def scenario() -> list[Any]:
        with LocalEngine.open(tmp_path / "stepwell.db") as engine:
            run = await engine.client.start(flow)
            hasty = replace(
                engine.local.ports, store=Hasty(engine.local.store, engine.run_until_idle)
            )
            client = Client(hasty, Settings(keyring=Keyring({"k1": b"x" * 32})))
            return [chunk.value async for chunk in client.output(run.id, "talk:1")]

    assert asyncio.run(scenario()) == ["only"]


@pytest.mark.parametrize("ending", ["returns", "fails", "is never run"])
def test_followers_see_the_same_whenever_they_come_and_end_with_the_step(
    tmp_path: Path, ending: str
) -> None:
    shown = asyncio.Event()

    @step(stream=True, retry=RetryPolicy(max_attempts=1))
    async def talk() -> AsyncIterator[Any]:
        for number in range(3):
            yield number
        await shown.wait()
        yield "last"
        if ending == "fails":
            raise ConnectionError
        yield Result("done")

    @workflow
    async def flow() -> str:
        try:
            if ending != "is never run":
                await talk()
        except StepFailed:
            return "failed"
        return "done"

    async def follow(engine: LocalEngine, run_id: str, after: int = 0) -> list[Any]:
        values = []
        async for chunk in engine.client.output(run_id, "talk:1", after=after):
            values.append(chunk.value)
            if len(values) == 3:
                shown.set()
        return values

    async def scenario() -> None:
        with LocalEngine.open(tmp_path / "stepwell.db") as engine:
            run = await engine.client.start(flow)
            early = asyncio.create_task(follow(engine, run.id))
            part = asyncio.create_task(follow(engine, run.id, after=2))
            await asyncio.sleep(0)
            await engine.run_until_idle()
            late = await follow(engine, run.id)
            everything = [] if ending == "is never run" else [0, 1, 2, "last"]
            assert await early == late == everything
            assert await part == everything[2:]
            assert await run.result() == ("failed" if ending == "fails" else "done")
            check_history(await run.history())

    asyncio.run(scenario())
