"""Steps with a key: one outcome in a run, for all calls that ask for it.

Which call comes first is decided by the order of asking, which is the same on every pass; so is
what the others are told.
"""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell.core.commands import RunStep
from stepwell.errors import KeyConflict


class KeyedStep:
    """The step behind a key, and all who wait for its outcome. `future` is told of it."""

    def __init__(self, key: str, command: RunStep, loop: asyncio.AbstractEventLoop) -> None:
        self.command = command
        self.future: asyncio.Future[Any] = asyncio.Future(loop=loop)
        self.future.add_done_callback(self._tell)
        self._key = key
        self._waiting: list[asyncio.Future[Any]] = []
        self._cancelled = False

    def check(self, name: str, digest: str) -> None:
        """Raises `KeyConflict` if a call cannot share the outcome."""
        known = self.command
        if name != known.step.name:
            raise KeyConflict(
                self._key,
                f"step {name!r} asks for it, it belongs to step {known.step.name!r} in this run; "
                f'a key names one call: write the step\'s name into it, such as "{name}-…"',
            )
        if digest != known.digest:
            raise KeyConflict(
                self._key, f"step {name!r} was called with it before, with another input"
            )
        if self._cancelled:
            raise KeyConflict(
                self._key,
                f"the call of step {name!r} with it was cancelled, perhaps when it had begun; use "
                "another key for another try",
            )

    async def outcome(self) -> Any:
        """Wait for the outcome. When the last who waits is cancelled, so is the step."""
        if self.future.done():
            return self.future.result()
        waiter = self.join()
        try:
            return await waiter
        finally:
            self.leave(waiter)

    def join(self) -> asyncio.Future[Any]:
        """One more who waits: the future is told of the outcome."""
        waiter: asyncio.Future[Any] = asyncio.Future(loop=self.future.get_loop())
        self._waiting.append(waiter)
        if self.future.done():
            self._tell(self.future)
        return waiter

    def leave(self, waiter: asyncio.Future[Any]) -> None:
        """Who joined waits no more."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def abandon(self) -> bool:
        """Somebody who waited was cancelled. Whether nobody is left, and the step is dropped."""
        dropped = not self._waiting and not self.future.done()
        self._cancelled = self._cancelled or dropped
        return dropped

    def _tell(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return  # nobody waits any more
        waiting, self._waiting = self._waiting, []
        error = future.exception()
        for waiter in waiting:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(future.result())
            else:
                waiter.set_exception(error)
