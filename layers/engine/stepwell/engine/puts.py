"""Puts of hook rows that have left: the turn owns each until its fate is known.

Whoever asked for a row may be cancelled while the put is under way (a step that times out, a branch
that ends), may be cancelled twice, or may be a thread that nobody waits for. An open row that the
turn does not know of would take an answer that nobody reads. So no turn settles before every put
that left has come back; one whose reply was lost fails the turn, and its message is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from stepwell.errors import Suspended

T = TypeVar("T")


class Puts:
    """The puts of one turn."""

    def __init__(self) -> None:
        self._left: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, put: Coroutine[Any, Any, T]) -> T:
        """Make a put; cancelling the caller leaves it under way. Refused once settled."""
        if self._closed:
            put.close()
            raise Suspended
        task = asyncio.get_running_loop().create_task(put)
        self._left.add(task)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for all puts that left; none leaves after this. Raises what one of them raised."""
        for error in await self.close():
            raise error

    async def close(self) -> list[BaseException]:
        """Wait for all puts that left; none leaves after this. What they raised."""
        self._closed = True
        if self._left:
            await asyncio.wait(self._left)
        return [error for task in self._left if (error := _error_of(task)) is not None]


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()
