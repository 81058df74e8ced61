"""What a simulated deployment consists of: store, queues, schedules, processes, time.

It only holds them and lets them go on by one step. What happens is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from stepwell.adapters.local.clock import SeededIds
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.authoring.registry import Registry
from stepwell.client import Client
from stepwell.core.payload import Sizes
from stepwell.core.records import Millis
from stepwell.core.tokens import Keyring
from stepwell.engine.attempt import AttemptEnd
from stepwell.engine.endings import TurnEnd
from stepwell.engine.ports import Ports
from stepwell.engine.sequencing import Sequenced
from stepwell.engine.settings import Limits, Settings
from stepwell.engine.turn import Engine
from stepwell.testing.crashes import Crash
from stepwell.testing.promises import Promises
from stepwell.testing.simulation.faults import Faults
from stepwell.testing.simulation.processes import Process
from stepwell.testing.simulation.queues import (
    FifoQueue,
    SignalFifo,
    SimulatedQueue,
    StandardQueue,
)
from stepwell.testing.simulation.schedules import Scheduler, SignalScheduler
from stepwell.testing.simulation.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")

#: 2030-01-01.
START: Millis = 1_893_456_000_000
#: How long a function may take for a turn, and for an attempt of a dispatched step.
TURN_TIME: Millis = 120_000
ATTEMPT_TIME: Millis = 300_000
#: How much longer than that its message stays invisible.
MARGIN: Millis = 30_000
MAX_RECEIVE_COUNT = 10

_KEYRING = Keyring({"k1": b"only for tests, not a secret" * 2})
_TABLES = (
    "runs",
    "commits",
    "hooks",
    "steps",
    "inbox",
    "checkpoints",
    "chunks",
    "map_shards",
    "map_items",
    "stream_heads",
    "signal_batches",
    "signal_numbers",
    "subscriptions",
)


@dataclass(slots=True, eq=False)
class Request:
    """What somebody outside asks for. It is begun when `when` holds, by a process of its own.

    Who gets no reply asks again, unless he is `gone`. `result` or `error` is what he was told last,
    None while he waits.
    """

    name: str
    ask: Callable[[Client], Coroutine[Any, Any, Any]]
    when: Callable[[], bool]
    begun: bool = False
    gone: bool = False
    result: Any = None
    error: Exception | None = None

    @property
    def answered(self) -> bool:
        """Whether its caller was told something."""
        return self.result is not None or self.error is not None


@dataclass(slots=True)
class Record:
    """What happened, as far as rows do not tell."""

    turns: list[TurnEnd] = field(default_factory=list)
    attempts: list[AttemptEnd] = field(default_factory=list)
    numbered: list[Sequenced] = field(default_factory=list)
    #: Messages that were done with.
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    #: Errors that no fault explains.
    unexpected: list[BaseException] = field(default_factory=list)
    swept: int = 0
    frozen: int = 0


class Cluster:
    """The deployment. `skews` are how far the clocks of the workers are off, in ms, in turn."""

    def __init__(
        self,
        faults: Faults,
        *,
        registry: Registry,
        seed: int | str,
        workers: int,
        skews: Sequence[Millis],
        paged: bool,
        sizes: Sizes,
        limits: Limits,
    ) -> None:
        self.loop = VirtualLoop(START, self._threads_work)
        self.loop.set_exception_handler(self._unhandled)
        self.left = faults.budget()
        self.record = Record()
        self.promises = Promises()
        self.requests: list[Request] = []
        self.registry = registry
        self.settings = Settings(keyring=_KEYRING, sizes=sizes, limits=limits, step_grace=200)
        self._seed = seed
        self._skews = skews
        self._paged = paged
        self._made = 0
        self._dump: tuple[int, Hashable] = (-1, None)
        self.local = self._open()
        now = self.loop.now
        self.queue = FifoQueue("m", now, TURN_TIME + MARGIN, MAX_RECEIVE_COUNT)
        self.steps = StandardQueue("s", now, ATTEMPT_TIME + MARGIN, MAX_RECEIVE_COUNT)
        self.signals = SignalFifo("g", now, TURN_TIME + MARGIN, MAX_RECEIVE_COUNT)
        self.scheduler = Scheduler(now, self.queue)
        self.signal_scheduler = SignalScheduler(now, self.signals)
        self.ports: Ports = replace(
            self.local.ports,
            queue=self.queue,
            steps=self.steps,
            timers=self.scheduler,
            signals=self.signals,
            signal_timers=self.signal_scheduler,
        )
        #: One that freezes or dies is replaced in its place.
        self.workers = [self.new_process(f"worker {n + 1}") for n in range(workers)]
        self.steppers = [self.new_process("stepper 1")]
        self.sweeper = self.new_process("sweeper")
        #: All that have calls which may still be made.
        self.callers: list[Process] = []
        self.frozen: list[Process] = []

    def _open(self) -> LocalPorts:
        return open_ports(
            ":memory:", clock=VirtualClock(self.loop), ids=SeededIds(f"store/{self._seed}")
        )

    @property
    def queues(self) -> tuple[SimulatedQueue, ...]:
        """All queues."""
        return (self.queue, self.steps, self.signals)

    def new_process(self, name: str) -> Process:
        """A process that has just started."""
        self._made += 1
        process = Process(name, self.loop)
        skew = self._skews[self._made % len(self._skews)] if name.startswith("worker") else 0
        ports = process.ports(
            self.ports,
            clock=VirtualClock(self.loop, skew),
            ids=SeededIds(f"{name}/{self._made}/{self._seed}"),
            paged=self._paged,
        )
        process.outside = ports
        process.engine = Engine(ports, self.settings, self.registry, lambda: 0.5)
        return process

    def request_of(self, process: Process) -> Request:
        """What a caller asks for."""
        return next(each for each in self.requests if process.name == f"caller {each.name}")

    def processes(self) -> list[Process]:
        """All that live, the frozen ones last."""
        return [*self.workers, *self.steppers, self.sweeper, *self.callers, *self.frozen]

    def replace_dead(self) -> None:
        """Where a process died, another one takes its place; callers who are done go."""
        for process in self.processes():
            if process.dead and process.engine is not None:
                process.engine.close()
        for place in (self.workers, self.steppers):
            for n, process in enumerate(place):
                if process.dead:
                    place[n] = self.new_process(process.name)
        if self.sweeper.dead:
            self.sweeper = self.new_process(self.sweeper.name)
        for process in self.callers:
            if process.dead:
                request = self.request_of(process)
                request.begun = request.gone
        self.callers = [each for each in self.callers if each.busy or each.calls]
        self.frozen = [each for each in self.frozen if not each.dead and (each.busy or each.calls)]

    def freeze(self, process: Process) -> None:
        """Let it stop where it is, and another one take its place."""
        process.frozen = True
        self.record.frozen += 1
        self.frozen.append(process)
        if process is self.sweeper:
            self.sweeper = self.new_process(process.name)
        for place in (self.workers, self.steppers):
            if process in place:
                place[place.index(process)] = self.new_process(process.name)

    def go_on(self) -> None:
        """Let everything go on that waits for neither time nor a verdict."""
        self.loop.run_until_idle()
        for process in self.processes():
            work = process.work
            if work is None or not work.done():
                continue
            process.work = None
            process.learned.clear()
            error = None if work.cancelled() else work.exception()
            if error is not None and not isinstance(error, Crash) and not process.dead:
                self.record.unexpected.append(error)
        self.replace_dead()

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns that waits for nothing."""
        try:
            work.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        work.close()
        raise RuntimeError("it waits")

    def state(self) -> Hashable:
        """A value that is equal for equal states: what follows from here follows from there."""
        return (
            self.loop.now(),
            self._rows(),
            repr([queue.contents() for queue in self.queues]),
            repr((self.scheduler.standing, self.scheduler.deleted, self.scheduler.lost)),
            repr((self.signal_scheduler.standing, self.signal_scheduler.deleted)),
            repr(self.left),
            tuple(
                (
                    *(each.name, each.what, each.frozen, each.busy, tuple(each.learned)),
                    *sorted(call.name + call.asked for call in each.calls),
                )
                for each in self.processes()
            ),
            repr([(each.name, each.begun, each.result, each.error) for each in self.requests]),
        )

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Crash):
            self.record.unexpected.append(error or RuntimeError(context["message"]))

    def _rows(self) -> Hashable:
        query = self.local.database.query
        changes: int = query("SELECT total_changes()")[0][0]
        if changes != self._dump[0]:
            rows = tuple(tuple(query(f"SELECT * FROM {table}")) for table in _TABLES)  # noqa: S608
            self._dump = (changes, rows)
        return self._dump[1]

    def _threads_work(self) -> bool:
        return any(each.engine is not None and each.engine.working for each in self.processes())

    def close(self) -> None:
        """Let everything go."""
        for process in self.processes():
            process.die()
        self.loop.run_until_idle()
        for process in self.processes():
            if process.engine is not None:
                process.engine.close()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.local.close()
