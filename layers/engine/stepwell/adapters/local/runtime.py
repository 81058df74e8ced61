"""The embedded engine: one file, this process, nothing else.

It pulls messages, takes turns and fires timers. Several processes may do so on one file; a killed
one loses nothing, for what it held becomes visible again. While a turn runs, its message is kept
invisible in short leases, so that little time is lost when a process dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType

from pydantic import ValidationError

from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.authoring.registry import Registry, registry
from stepwell.client import Client
from stepwell.core.messages import Message, load_message
from stepwell.core.records import Millis
from stepwell.engine.journal import Fenced
from stepwell.engine.perform import default_fraction
from stepwell.engine.ports import Delivery, TransientError
from stepwell.engine.settings import Settings
from stepwell.engine.turn import Engine

_LOG = logging.getLogger("stepwell.local")
#: How long a message stays invisible when the process that holds it has died.
LEASE: Millis = 10_000
#: How often another process's messages are looked for, at most, in seconds.
_IDLE = 0.2
#: Delays before a message that could not be worked on is tried again, in ms, by receive count.
_BACK_OFF = (100, 500, 2_000, 5_000, 10_000, 30_000)


class LocalEngine:
    """An engine and a client on one file. Close it, or use it as a context manager."""

    def __init__(self, local: LocalPorts, *, registry: Registry, settings: Settings) -> None:
        self.local = local
        self.client = Client(local.ports, settings)
        self._engine = Engine(local.ports, settings, registry, default_fraction)

    @classmethod
    def open(
        cls, path: str | Path, *, registry: Registry = registry, settings: Settings | None = None
    ) -> LocalEngine:
        """The engine on a file, which is made if it is not there."""
        local = open_ports(path, visibility=LEASE)
        return cls(
            local,
            registry=registry,
            settings=settings or Settings(keyring=keyring_of(local.database)),
        )

    def close(self) -> None:
        """Close the file."""
        self.local.close()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def run_until_idle(self) -> int:
        """Take all turns that can be taken now. Returns how many; timers to come are not awaited."""
        turns = 0
        while await self.step():
            turns += 1
        return turns

    async def step(self) -> bool:
        """Fire due timers and take one turn. Whether there was one to take."""
        await self.local.timers.fire_due(self.local.queue)
        delivery = await self.local.queue.receive()
        if delivery is None:
            return False
        await self._work(delivery)
        return True

    async def serve(self, *, concurrency: int = 8, until: asyncio.Event | None = None) -> None:
        """Work until `until` is set: several runs at a time, timers as they come due."""
        until = until or asyncio.Event()
        busy: set[asyncio.Task[None]] = set()
        while not until.is_set():
            await self.local.timers.fire_due(self.local.queue)
            delivery = None
            if len(busy) < concurrency:
                delivery = await self.local.queue.receive()
            if delivery is not None:
                busy.add(asyncio.create_task(self._work(delivery)))
                await asyncio.sleep(0)
            else:
                await self._rest(busy, until)
            busy = {task for task in busy if not task.done()}
        if busy:
            await asyncio.wait(busy)

    async def _rest(self, busy: set[asyncio.Task[None]], until: asyncio.Event) -> None:
        """Sleep until a turn ends, a timer may be due or another process may have sent something."""
        stop = asyncio.create_task(until.wait())
        await asyncio.wait({stop, *busy}, timeout=_IDLE, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()

    async def _work(self, delivery: Delivery) -> None:
        try:
            message = load_message(delivery.body)
        except ValidationError as error:
            await self.local.queue.reject(delivery, f"not a message: {error}")
            return
        try:
            async with self._leased(delivery):
                await self._engine.take_turn(
                    message,
                    message_id=delivery.message_id,
                    receive_count=delivery.receive_count,
                )
        except (TransientError, Fenced) as error:
            await self._give_back(delivery, message, error)
        except Exception as error:
            _LOG.exception("a turn of run %s failed", message.run_id)
            await self._give_back(delivery, message, error)
        else:
            await self.local.queue.delete(delivery)

    async def _give_back(self, delivery: Delivery, message: Message, error: Exception) -> None:
        delay = _BACK_OFF[min(delivery.receive_count, len(_BACK_OFF)) - 1]
        _LOG.info("run %s: message given back for %d ms: %s", message.run_id, delay, error)
        await self.local.queue.give_back(delivery, delay=delay)

    @asynccontextmanager
    async def _leased(self, delivery: Delivery) -> AsyncIterator[None]:
        """Keep the message invisible for as long as its turn takes."""
        keeper = asyncio.get_running_loop().create_task(self._keep(delivery))
        try:
            yield
        finally:
            keeper.cancel()

    async def _keep(self, delivery: Delivery) -> None:
        while True:
            await asyncio.sleep(LEASE / 3000)
            with suppress(TransientError):  # the next renewal comes before the lease ends
                await self.local.queue.give_back(delivery, delay=LEASE)
