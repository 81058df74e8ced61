"""The embedded engine: one file, this process, nothing else.

It pulls messages, takes turns and fires timers. Several processes may do so on one file; a killed
one loses nothing, for what it held becomes visible again. While a turn runs, its message is kept
invisible in short leases, so that little time is lost when a process dies. A message that cannot be
handled becomes a dead letter, and its run is marked with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stepwell.adapters.local.clock import system_fraction
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.leases import Leases
from stepwell.adapters.local.queue import SqliteQueue
from stepwell.adapters.local.reports import report
from stepwell.adapters.local.retention import retention_from_env
from stepwell.adapters.local.signal_queue import SignalDelivery
from stepwell.adapters.local.step_queue import SqliteStepQueue
from stepwell.adapters.local.sweeping import MinuteSweep, take_dead_letters
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.authoring.registry import Registry, registry
from stepwell.client import Client
from stepwell.core.messages import (
    Message,
    SignalSent,
    StartRun,
    load_attempt,
    load_message,
    load_signal,
)
from stepwell.core.records import Millis
from stepwell.engine.attempt import StepBusy
from stepwell.engine.catalogue import Publication
from stepwell.engine.headers import header_of
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Delivery, TransientError
from stepwell.engine.sequencing import Sequencer
from stepwell.engine.settings import Settings
from stepwell.engine.turn import Engine

_LOG = logging.getLogger("stepwell.local")
#: How long a message stays invisible when the process that holds it has died.
LEASE: Millis = 10_000
#: How often a message is delivered before it becomes a dead letter.
MAX_RECEIVE_COUNT = 10
#: How often another process's messages are looked for, at most, in seconds.
_IDLE = 0.2
#: Delays before a message that could not be worked on is tried again, in ms, by receive count.
_BACK_OFF = (100, 500, 2_000, 5_000, 10_000, 30_000)


class LocalEngine:
    """An engine and a client on one file. Close it, or use it as a context manager.

    It works only on runs of workflows that its registry knows and leaves the others to the
    processes that know them; with `only`, on the runs alone whose ids that gives when it is asked.
    `turns` counts the turns that it has taken.
    """

    def __init__(
        self,
        local: LocalPorts,
        *,
        registry: Registry,
        settings: Settings,
        lease: Millis = LEASE,
    ) -> None:
        self.local = local
        self.only: Callable[[], Iterable[str]] | None = None
        self.client = Client(local.ports, settings)
        self.turns = 0
        local.store.on_commit = report
        self._registry = registry
        self._leases = Leases(local.queue, lease)
        self._step_leases = Leases(local.step_queue, lease)
        self._signal_leases = Leases(local.signal_queue, lease)
        self._sequencer = Sequencer(local.ports, registry.stream_step)
        self._engine = Engine(local.ports, settings, registry, system_fraction)
        self._minute_sweep = MinuteSweep(local)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        registry: Registry = registry,
        settings: Settings | None = None,
        lease: Millis = LEASE,
    ) -> LocalEngine:
        """The engine on a file, which is made if it is not there.

        `lease` is how long a message stays invisible when the process that holds it has died.
        """
        local = open_ports(path, visibility=lease, max_receive_count=MAX_RECEIVE_COUNT)
        return cls(
            local,
            registry=registry,
            settings=settings or _settings(local),
            lease=lease,
        )

    def close(self) -> None:
        """Renew no more leases and close the file."""
        self._leases.close()
        self._step_leases.close()
        self._signal_leases.close()
        self._engine.close()
        self.local.close()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def run_until_idle(self) -> int:
        """Take all turns that can be taken now, and no timer to come. Returns how many."""
        turns = 0
        while await self.take_turn():
            turns += 1
        await take_dead_letters(self.local)
        return turns

    async def take_turn(self) -> bool:
        """Fire due timers and take one turn, or make one attempt of a dispatched step.

        Whether there was one to take.
        """
        work = await self._next()
        if work is None:
            return False
        await work
        return True

    async def serve(
        self,
        *,
        concurrency: int = 8,
        until: asyncio.Event | None = None,
        until_idle: bool = False,
    ) -> None:
        """Work until `until` is set: several runs at a time, timers as they come due.

        With `until_idle` also only until nothing is left to do now. Turns in flight are finished.
        At first and then every minute it looks for runs that were left behind.
        """
        until = until or asyncio.Event()
        busy: set[asyncio.Task[None]] = set()
        while not until.is_set():
            await self._sweep()
            work, idle = None, False
            if len(busy) < concurrency:
                with suppress(TransientError):  # another process has the file to itself
                    work = await self._next()
                    idle = work is None and not busy
            if work is not None:
                busy.add(asyncio.create_task(work))
                await asyncio.sleep(0)
            elif idle and until_idle:
                with suppress(TransientError):
                    await take_dead_letters(self.local)
                return
            else:
                await self._rest(busy, until)
            busy = {task for task in busy if not task.done()}
        if busy:
            await asyncio.wait(busy)

    async def publish(self) -> Publication:
        """Publish the workflows known here, and wake their blocked runs: this code may fit."""
        return await self.client.publish(self._registry.workflows().values(), wake_all=True)

    async def _next(self) -> Coroutine[Any, Any, None] | None:
        """Fire due timers and take the next message of a workflow or a step that is known here."""
        await self.local.timers.fire_due(self.local.queue)
        await self.local.signal_timers.fire_due(self.local.signal_queue)
        signals = await self.local.signal_queue.receive()
        if signals is not None:
            return self._sequence(signals)
        runs = None if self.only is None else self.only()
        delivery = await self.local.queue.receive(workflows=self._registry.runnable(), runs=runs)
        if delivery is not None:
            return self._work(delivery)
        delivery = await self.local.step_queue.receive(steps=self._registry.steps(), runs=runs)
        return None if delivery is None else self._attempt(delivery)

    async def _sweep(self) -> None:
        """Do this minute's sweep. What fails in it is left to that of the next one."""
        try:
            await self._minute_sweep.sweep()
        except TransientError as error:
            _LOG.info("the sweep is left to the next minute: %s", error)
        except Exception:
            _LOG.exception("the sweep failed")

    async def _rest(self, busy: set[asyncio.Task[None]], until: asyncio.Event) -> None:
        """Sleep until a turn ends, a timer may be due, or another process may have sent."""
        stop = asyncio.create_task(until.wait())
        await asyncio.wait({stop, *busy}, timeout=_IDLE, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()

    async def _work(self, delivery: Delivery) -> None:
        try:
            message = load_message(delivery.body)
        except ValidationError as error:
            await self._reject(self.local.queue, delivery, f"not a message: {error}")
            return
        # What fails here costs nothing but time: the message becomes visible again by itself.
        with suppress(TransientError):
            if await self._taken(delivery, message):
                await self.local.queue.delete(delivery)

    async def _reject(
        self, queue: SqliteQueue | SqliteStepQueue, delivery: Delivery, reason: str
    ) -> None:
        """Make a message a dead letter, and tell its run. What fails here comes again by itself."""
        with suppress(TransientError):
            await queue.reject(delivery, reason)
            await take_dead_letters(self.local)

    async def _taken(self, delivery: Delivery, message: Message) -> bool:
        """Take a turn. Whether its message is done with; if not, it was given back."""
        if isinstance(message, StartRun) and message.workflow not in self._registry.runnable():
            # Its sender died before the header, which tells others whether the run is theirs.
            await self.local.store.put_header(header_of(message))
            await self.local.queue.give_back(delivery)
            return False
        try:
            with self._leases.held(delivery):
                await self._engine.take_turn(
                    message,
                    message_id=delivery.message_id,
                    receive_count=delivery.receive_count,
                    last=delivery.receive_count >= MAX_RECEIVE_COUNT,
                )
        except (TransientError, Fenced) as error:
            await self._give_back(delivery, message, error)
            return False
        except Exception as error:
            _LOG.exception("a turn of run %s failed", message.run_id)
            await self._give_back(delivery, message, error)
            return False
        self.turns += 1
        return True

    async def _sequence(self, delivery: SignalDelivery) -> None:
        """Number signals. Their messages are deleted, or given back."""
        queue = self.local.signal_queue
        sent: list[SignalSent] = []
        with suppress(TransientError):
            for message in delivery.messages:
                try:
                    sent.append(load_signal(message.body))
                except ValidationError as error:
                    await queue.reject(delivery, message.message_id, f"not a signal: {error}")
            try:
                with self._signal_leases.held(delivery):
                    await self._sequencer.take(sent)
            except Exception as error:
                delay = _back_off(delivery.messages[0])
                _LOG.info("signals given back for %d ms: %s", delay, error)
                await queue.give_back(delivery, delay=delay)
            else:
                await queue.delete(delivery)

    async def _attempt(self, delivery: Delivery) -> None:
        """Make an attempt of a dispatched step. Its message is deleted, or given back."""
        queue = self.local.step_queue
        try:
            attempt = load_attempt(delivery.body)
        except ValidationError as error:
            await self._reject(queue, delivery, f"not an attempt of a step: {error}")
            return
        with suppress(TransientError):
            try:
                with self._step_leases.held(delivery):
                    await self._engine.run_attempt(
                        attempt,
                        message_id=delivery.message_id,
                        receive_count=delivery.receive_count,
                    )
            except StepBusy as busy:
                wait = busy.until - self.local.ports.clock.now()
                await queue.give_back(delivery, delay=min(max(wait, 0), LEASE))
            except Exception as error:
                delay = _back_off(delivery)
                _LOG.info("step %s: message given back for %d ms: %s", attempt.name, delay, error)
                await queue.give_back(delivery, delay=delay)
            else:
                await queue.delete(delivery)

    async def _give_back(self, delivery: Delivery, message: Message, error: Exception) -> None:
        delay = _back_off(delivery)
        _LOG.info("run %s: message given back for %d ms: %s", message.run_id, delay, error)
        await self.local.queue.give_back(delivery, delay=delay)


def _settings(local: LocalPorts) -> Settings:
    path = local.database.path
    folder = None if path == ":memory:" else Path(path).absolute().parent
    return Settings(
        keyring=keyring_of(local.database), retention=retention_from_env(), journal_dir=folder
    )


def _back_off(delivery: Delivery) -> Millis:
    """How long a message that could not be worked on stays away."""
    return _BACK_OFF[min(delivery.receive_count, len(_BACK_OFF)) - 1]
