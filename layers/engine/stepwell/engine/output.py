"""Streamed output of a step: chunks in order, each once, however often the body produces them.

Without a checkpoint a re-run produces chunk 1, 2, 3 … again and only what is new is written. After
a checkpoint is loaded, numbering goes on from where the entry that saved it suspended; if that
entry never suspended (it crashed or failed), from where it was when it saved. What an unfinished
entry put out beyond that and beyond the last suspension is superseded: readers find a reset mark.
"""

from __future__ import annotations

from stepwell.core.commands import RunStep
from stepwell.core.records import Checkpoint, Chunk, Payload
from stepwell.engine.journal import Fenced
from stepwell.engine.turn_context import TurnContext


class Output:
    """The output of one entry. `position` is how many chunks stand at this point of the body."""

    def __init__(self, turn: TurnContext, command: RunStep) -> None:
        known = turn.state.steps.get(command.id)
        self.position = 0
        self._turn = turn
        self._step = command.id
        self._streams = command.step.chunk is not None
        self._saves = {} if known is None else known.saves
        self._suspended_at = 0 if known is None else known.output
        #: The number of the last chunk that stands, None until it is looked up.
        self._standing: int | None = None
        self._rows = 0

    async def put(self, value: Payload) -> None:
        """The body produced its next chunk."""
        standing = await self._look()
        self.position += 1
        if self.position > standing:
            await self._write(self.position, value)

    async def resume_from(self, checkpoint: Checkpoint) -> None:
        """The body loaded a checkpoint that it did not save itself: number on from there."""
        if not self._streams:
            return
        self.position = self._saves.get(checkpoint.save_id, checkpoint.output)
        await self._cut(max(self.position, self._suspended_at))

    async def end(self) -> None:
        """The body is done: what stands beyond its last chunk is superseded."""
        if self._streams:
            await self._cut(self.position)

    async def _cut(self, number: int) -> None:
        if await self._look() > number:
            await self._write(number, None)

    async def _look(self) -> int:
        if self._standing is None:
            rows = await self._turn.ports.store.get_chunks(self._turn.run_id, self._step)
            # A turn that takes over a message makes an event durable before it begins a step, so
            # what it writes tells a frozen one that it was overtaken, however late that one looks.
            if rows and rows[-1].last_event > self._turn.journal.durable:
                raise Fenced(f"a later turn wrote the output of step {self._step!r}")
            self._rows = rows[-1].position if rows else 0
            self._standing = rows[-1].number if rows else 0
        return self._standing

    async def _write(self, number: int, value: Payload | None) -> None:
        chunk = Chunk(
            run_id=self._turn.run_id,
            step=self._step,
            position=self._rows + 1,
            number=number,
            at=self._turn.ports.clock.now(),
            value=value,
            last_event=self._turn.journal.durable,
        )
        if not await self._turn.ports.store.put_chunk(chunk):
            raise Fenced(f"another turn writes the output of step {self._step!r}")
        self._rows += 1
        self._standing = number
