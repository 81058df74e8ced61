"""An environment with worse luck than any real one: crashes, duplicates, frozen turns and attempts.

It reaches into `Environment`, where a turn is taken and an attempt is made; no other test has to.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from stepwell.adapters.local.signal_queue import SignalDelivery
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.client import Client, InboxEntry, Resumed, RunHandle
from stepwell.core.ids import run_id_for
from stepwell.core.messages import Message, SignalSent, StepAttempt
from stepwell.core.payload import codec
from stepwell.core.records import Millis
from stepwell.engine.attempt import AttemptEnd
from stepwell.engine.endings import TurnEnd
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Delivery, Ports, TransientError
from stepwell.engine.sequencing import Sequencer
from stepwell.engine.turn import Engine
from stepwell.testing import Environment
from stepwell.testing.crashes import Crash, Crasher

T = TypeVar("T")
When = Literal["before", "after"]
#: How long a received message stays invisible, in ms; a frozen turn loses that much time.
VISIBILITY = 150_000
_KEY = "one"


class CrashingEnvironment(Environment):
    """Dies at each of these port calls, the later ones counted from the crash before."""

    def __init__(self, plan: Sequence[tuple[int, When]] = ()) -> None:
        super().__init__(chance=0.5)
        self._plan = list(plan)
        self._next_crash()

    def _next_crash(self) -> None:
        if self._plan:
            self.crash_at(*self._plan.pop(0))

    def take_turn(self) -> bool:
        """Take one turn; after a crash, prepare the next one."""
        crashes = self.crashes
        worked = super().take_turn()
        if self.crashes > crashes:
            self._next_crash()
        return worked


class RepeatingEnvironment(Environment):
    """Each message is delivered twice: a process dies after its turn, before it acknowledges."""

    def __init__(self) -> None:
        super().__init__(chance=0.5)
        self.seen: list[tuple[Message, Delivery]] = []
        self.seen_attempts: list[tuple[StepAttempt, Delivery]] = []
        self.seen_signals: list[Sequence[SignalSent]] = []

    async def _turn(self, message: Message, delivery: Delivery) -> TurnEnd:
        end = await super()._turn(message, delivery)
        if delivery.receive_count == 1:
            self.seen.append((message, delivery))
            raise Crash
        return end

    async def _make(self, attempt: StepAttempt, delivery: Delivery) -> AttemptEnd:
        end = await super()._make(attempt, delivery)
        if delivery.receive_count == 1:
            self.seen_attempts.append((attempt, delivery))
            raise Crash
        return end

    async def _number(self, sent: Sequence[SignalSent], delivery: SignalDelivery) -> None:
        await super()._number(sent, delivery)
        if delivery.messages[0].receive_count == 1:
            self.seen_signals.append(sent)
            raise Crash

    def number_again(self, seen: Iterable[Sequence[SignalSent]]) -> None:
        """Deliver signals that were numbered long ago."""
        for sent in seen:
            self.wait_for(_numbered(self._engine, sent))

    def deliver_again(self, seen: Sequence[tuple[Message, Delivery]]) -> list[TurnEnd]:
        """Deliver messages that were done with long ago."""
        return [
            self.wait_for(_taken(self._engine, message, delivery)) for message, delivery in seen
        ]

    def attempt_again(self, seen: Sequence[tuple[StepAttempt, Delivery]]) -> list[AttemptEnd]:
        """Deliver messages of attempts that were done with long ago."""
        return [self.wait_for(_made(self._engine, attempt, delivery)) for attempt, delivery in seen]


async def _numbered(engine: Engine, sent: Sequence[SignalSent]) -> None:
    await Sequencer(engine.ports, registry.stream_step).take(sent)


async def _made(engine: Engine, attempt: StepAttempt, delivery: Delivery) -> AttemptEnd:
    return await engine.run_attempt(
        attempt, message_id=delivery.message_id, receive_count=delivery.receive_count
    )


async def _taken(engine: Engine, message: Message, delivery: Delivery) -> TurnEnd:
    return await engine.take_turn(
        message, message_id=delivery.message_id, receive_count=delivery.receive_count
    )


class VanishingCallerEnvironment(Environment):
    """The caller dies at the n-th port call of its requests; then it asks again, or never does."""

    def __init__(self, call: int, when: When, *, asks_again: bool) -> None:
        super().__init__(chance=0.5)
        self.vanished = False
        self._asks_again = asks_again
        self._caller = Crasher()
        self._caller.crash_at(call, when)
        client = Client(self._caller.wrap(self._local.ports), self._settings)
        self._asking = client.with_options(idempotency_key=_KEY)

    @property
    def caller_calls(self) -> int:
        """How many port calls the caller made."""
        return len(self._caller.calls)

    def handle(self, run_id: str) -> RunHandle[Any]:
        """A run whose caller never got its handle."""
        return RunHandle(self.client, run_id, codec(Any, "result"))

    def handle_by_key(self, workflow: Workflow[Any, Any]) -> RunHandle[Any]:
        """The run that this environment's key stands for."""
        return self.handle(run_id_for(workflow.definition.name, _KEY))

    def start(self, workflow: Workflow[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start a run by its key."""
        run = self._request(lambda: self._asking.start(workflow, *args, **kwargs))
        # A handle works through the client that made it, and that one may die later.
        return None if run is None else self.handle(run.id)

    def resume_hook(self, token: str, payload: Any = None, *, actor: str | None = None) -> Resumed:
        """Answer a hook."""
        resumed: Resumed = self._request(lambda: self._asking.resume_hook(token, payload))
        self.run_until_idle()
        return resumed

    def put_inbox(
        self, run: RunHandle[Any], key: str, value: Any = None, *, entry_id: str | None = None
    ) -> InboxEntry:
        """Send something to a run."""
        entry: InboxEntry = self._request(
            lambda: self._asking.put_inbox(run.id, key, value, entry_id=entry_id)
        )
        self.run_until_idle()
        return entry

    def cancel(self, run: RunHandle[Any], reason: str | None = None) -> None:
        """Cancel a run."""
        self._request(lambda: self._asking.cancel(run.id, reason))
        self.run_until_idle()

    def _request(self, ask: Callable[[], Any]) -> Any:
        try:
            with nullcontext() if self.vanished else self._caller.armed():
                return self.wait_for(ask())
        except Crash:
            self.vanished = True
        self._asking = self.client.with_options(idempotency_key=_KEY)
        self.run_until_idle()
        return self.wait_for(ask()) if self._asks_again else None


Call = Callable[[], Awaitable[Any]]
Around = Callable[[Call], Awaitable[Any]]


class _Around:
    """A port whose every call goes through a function."""

    def __init__(self, port: Any, around: Around) -> None:
        self._port = port
        self._around = around

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._port, method)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._around(functools.partial(target, *args, **kwargs))

        return call


def _around(ports: Ports, around: Around) -> Ports:
    return Ports(
        store=_Around(ports.store, around),
        blobs=_Around(ports.blobs, around),
        queue=_Around(ports.queue, around),
        steps=_Around(ports.steps, around),
        maps=_Around(ports.maps, around),
        timers=_Around(ports.timers, around),
        streams=_Around(ports.streams, around),
        signals=_Around(ports.signals, around),
        signal_timers=_Around(ports.signal_timers, around),
        clock=ports.clock,
        ids=ports.ids,
    )


class SlowEnvironment(Environment):
    """Port calls take some while each, so that those of one turn overlap and overtake another."""

    def __init__(self, seed: int) -> None:
        super().__init__(chance=0.5)
        self._delays = random.Random(seed)

    def _new_engine(self) -> Engine:
        return Engine(_around(self._ports, self._slowly), self._settings, registry, self._chance)

    async def _slowly(self, call: Call) -> Any:
        await self._pass()
        result = await call()
        await self._pass()
        return result

    async def _pass(self) -> None:
        for _ in range(self._delays.choice((0, 0, 1, 10, 100))):
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """Where a turn, an attempt of a dispatched step, or who numbers signals, freezes and thaws.

    It freezes at port call `at` of all turns, or of all of its kind, of the drive. `thaw` is "next"
    (when the one that took its message over is done), "end" (when the scenario is over), or a later
    call before which it thaws: of the turn that took its message over, or, for an attempt, of all
    that comes after. Thawed, it makes `calls` more calls and freezes for ever; None: it runs to its
    end.
    """

    at: int
    when: When
    thaw: Literal["next", "end"] | int
    calls: int | None = None
    what: Literal["turn", "attempt", "signals"] = "turn"


@dataclass(slots=True, eq=False)
class _Zombie:
    """A turn or an attempt that freezes. All its calls pass through `around`."""

    freeze: Freeze
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Any] | None = None
    made: int = 0
    made_after: int = 0
    gone: bool = False

    async def around(self, call: Call) -> Any:
        """Make the call, or be frozen in it."""
        if self.gone:
            raise asyncio.CancelledError
        if not self.stopped.is_set():
            self.made += 1
            if self.made < self.freeze.at:
                return await call()
            if self.freeze.when == "after":
                result = await call()
                await self._be_frozen()
                return result
        await self._be_frozen()
        self.made_after += 1
        limit = self.freeze.calls
        if limit is not None and self.made_after > limit:
            self.stopped.set()
            await asyncio.Event().wait()
        return await call()

    async def _be_frozen(self) -> None:
        if not self.thawed.is_set():
            self.stopped.set()
        await self.thawed.wait()

    async def thaw(self) -> None:
        """Let it go on until it ends or freezes again."""
        if self.task is None or self.thawed.is_set():
            return
        self.stopped.clear()
        self.thawed.set()
        await _either(self.task, self.stopped)


async def _either(task: asyncio.Task[Any], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


Play = Callable[[Engine], Coroutine[Any, Any, T]]


class FreezingEnvironment(Environment):
    """A turn or an attempt freezes in a port call, while its message is delivered again."""

    def __init__(self, freeze: Freeze) -> None:
        super().__init__(chance=0.5)
        self._freeze = freeze
        self._zombie = _Zombie(freeze)
        self._holding = True
        self._later_calls = 0

    @property
    def frozen(self) -> bool:
        """Whether one froze."""
        return self._zombie.task is not None

    @property
    def thawed(self) -> bool:
        """Whether it went on later."""
        return self._zombie.thawed.is_set()

    def settle(self) -> None:
        """The scenario is over: thaw what is frozen, and see how it ended."""
        if self._freeze.thaw == "end":
            self.wait_for(self._zombie.thaw())
            self.run_until_idle()
        task = self._zombie.task
        if task is not None and task.done() and (error := task.exception()) is not None:
            # It gives its message back, with a receipt that is worth nothing any more.
            assert isinstance(error, (Fenced, TransientError)), repr(error)

    def close(self) -> None:
        """Let everything go, also what is frozen for ever."""
        self._zombie.gone = True  # what it does to clean up comes to nothing
        if self._zombie.task is not None:
            self._zombie.task.cancel()
        super().close()

    def run_until_idle(self) -> None:
        """Take turns, and wait for messages that were given back."""
        super().run_until_idle()
        while (visible := self._next_visible()) is not None:
            self.clock.move_to(visible)
            super().run_until_idle()

    def _next_visible(self) -> Millis | None:
        queues = (self._local.queue, self._local.step_queue, self._local.signal_queue)
        times = [self.wait_for(queue.next_visible_at()) for queue in queues]
        return min((time for time in times if time is not None), default=None)

    async def _turn(self, message: Message, delivery: Delivery) -> TurnEnd:
        return await self._play("turn", lambda engine: _taken(engine, message, delivery))

    async def _make(self, attempt: StepAttempt, delivery: Delivery) -> AttemptEnd:
        return await self._play("attempt", lambda engine: _made(engine, attempt, delivery))

    async def _number(self, sent: Sequence[SignalSent], delivery: SignalDelivery) -> None:
        await self._play("signals", lambda engine: _numbered(engine, sent))

    async def _play(self, what: str, play: Play[T]) -> T:
        if not self.frozen and what == self._freeze.what:
            return await self._play_until_frozen(play)
        if not self.frozen or not self._holding:
            return await play(self._engine)
        try:
            return await play(self._engine_around(self._hold))
        finally:
            if what == self._freeze.what and self._freeze.thaw == "next":
                await self._zombie.thaw()
            if self._freeze.what == "turn":
                self._holding = False

    async def _play_until_frozen(self, play: Play[T]) -> T:
        task = asyncio.create_task(play(self._engine_around(self._zombie.around)))
        await _either(task, self._zombie.stopped)
        if task.done():
            return task.result()
        self._zombie.task = task
        # Its message becomes visible while it is frozen, so that its receipt is stale.
        self.clock.advance(VISIBILITY)
        raise TransientError("frozen")

    async def _hold(self, call: Call) -> Any:
        self._later_calls += 1
        if self._later_calls == self._freeze.thaw:
            await self._zombie.thaw()
        return await call()

    def _engine_around(self, around: Around) -> Engine:
        return Engine(_around(self._local.ports, around), self._settings, registry, self._chance)
