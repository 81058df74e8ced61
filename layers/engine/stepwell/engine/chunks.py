"""Reading what steps stream, as a caller does, while they go on or afterwards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from stepwell.core.records import Chunk
from stepwell.core.state import fold_commits
from stepwell.engine.headers import found_run
from stepwell.engine.polling import poll
from stepwell.engine.ports import Ports
from stepwell.engine.values import Values


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of a step's output. `position` is what `output(after=)` takes to go on from here.

    A reset mark has `reset` set and no value: chunks above `number` are superseded.
    """

    position: int
    number: int
    value: Any = None
    reset: bool = False


class Chunks:
    """The output of one deployment's steps. See `Client.output`."""

    def __init__(self, ports: Ports, values: Values) -> None:
        self._ports = ports
        self._values = values

    async def read(
        self, run_id: str, step: str, *, after: int = 0, follow: bool = True
    ) -> AsyncIterator[OutputChunk]:
        """The streamed output of a step, by its id in the run, from behind position `after`.

        With `follow` it goes on until the step or the run has ended. Raises `RunNotFound`.
        """
        found_run(await self._ports.store.get_header(run_id), run_id)
        position = after
        chunks: tuple[Chunk, ...] = ()
        ended = not follow

        async def more() -> bool:
            nonlocal chunks, ended
            chunks = await self._ports.store.get_chunks(run_id, step, after=position)
            if not chunks and not ended and await self._step_ended(run_id, step):
                # What it wrote before it ended is read once it is known to have ended.
                ended = True
                chunks = await self._ports.store.get_chunks(run_id, step, after=position)
            return ended or bool(chunks)

        while True:
            await poll(more, None)
            for chunk in chunks:
                position = chunk.position
                yield await self._output_chunk(chunk)
            if ended:
                return

    async def _output_chunk(self, chunk: Chunk) -> OutputChunk:
        if chunk.value is None:
            return OutputChunk(chunk.position, chunk.number, reset=True)
        text = await self._values.get(chunk.value)
        return OutputChunk(chunk.position, chunk.number, json.loads(text))

    async def _step_ended(self, run_id: str, step: str) -> bool:
        rows = await self._ports.store.load(run_id)
        found_run(rows.header, run_id)
        state = fold_commits(rows.commits)
        known = state.steps.get(step)
        return state.terminal or (
            known is not None and known.status in ("completed", "failed", "cancelled")
        )
