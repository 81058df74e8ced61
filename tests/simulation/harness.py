"""An environment with worse luck than any real one: crashes, duplicates, frozen turns.

It reaches into `Environment`, at the two places where a turn is taken; no other test has to.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.client import Client, Resumed, RunHandle
from stepwell.core.ids import run_id_for
from stepwell.core.messages import Message
from stepwell.core.payload import codec
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Delivery, Ports, TransientError
from stepwell.engine.turn import Engine, TurnEnd
from stepwell.testing import Environment
from stepwell.testing.crashes import Crash, Crasher

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

    def step(self) -> bool:
        """Take one turn; after a crash, prepare the next one."""
        crashes = self.crashes
        worked = super().step()
        if self.crashes > crashes:
            self._next_crash()
        return worked


class RepeatingEnvironment(Environment):
    """Each message is delivered twice: a process dies after its turn, before it acknowledges."""

    def __init__(self) -> None:
        super().__init__(chance=0.5)
        self.seen: list[tuple[Message, Delivery]] = []

    async def _turn(self, message: Message, delivery: Delivery) -> TurnEnd:
        end = await super()._turn(message, delivery)
        if delivery.receive_count == 1:
            self.seen.append((message, delivery))
            raise Crash
        return end

    def deliver_again(self, seen: Sequence[tuple[Message, Delivery]]) -> list[TurnEnd]:
        """Deliver messages that were done with long ago."""
        return [
            self.wait_for(_taken(self._engine, message, delivery)) for message, delivery in seen
        ]


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


# -- frozen turns ----------------------------------------------------------------------------------

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
        timers=_Around(ports.timers, around),
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
    """Where a turn freezes, and when it thaws.

    It freezes at port call `at` of the drive. `thaw` is "next" (when the turn that took its message
    over is done), "end" (when the scenario is over), or the call of that other turn before which it
    thaws. Thawed, it makes `calls` more calls and freezes for ever; None: it runs to its end.
    """

    at: int
    when: When
    thaw: Literal["next", "end"] | int
    calls: int | None = None


@dataclass(slots=True, eq=False)
class _Zombie:
    """A turn that freezes. All its calls pass through `around`."""

    freeze: Freeze
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Task[TurnEnd] | None = None
    made: int = 0
    made_after: int = 0

    async def around(self, call: Call) -> Any:
        """Make the call, or be frozen in it."""
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
        if self.turn is None or self.thawed.is_set():
            return
        self.stopped.clear()
        self.thawed.set()
        await _either(self.turn, self.stopped)


async def _either(turn: asyncio.Task[Any], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({turn, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


class FreezingEnvironment(Environment):
    """One turn freezes in the middle of a port call, while its message is delivered again."""

    def __init__(self, freeze: Freeze) -> None:
        super().__init__(chance=0.5)
        self._zombie = _Zombie(freeze)
        self._holder_calls: int | None = None

    @property
    def frozen(self) -> bool:
        """Whether a turn froze."""
        return self._zombie.turn is not None

    @property
    def thawed(self) -> bool:
        """Whether it went on later."""
        return self._zombie.thawed.is_set()

    def settle(self) -> None:
        """The scenario is over: thaw what is frozen, and see how it ended."""
        if self._zombie.freeze.thaw == "end":
            self.wait_for(self._zombie.thaw())
            self.run_until_idle()
        turn = self._zombie.turn
        if turn is not None and turn.done() and (error := turn.exception()) is not None:
            # It gives its message back, with a receipt that is worth nothing any more.
            assert isinstance(error, (Fenced, TransientError)), repr(error)

    def close(self) -> None:
        """Let everything go, also what is frozen for ever."""
        if self._zombie.turn is not None:
            self._zombie.turn.cancel()
        super().close()

    def run_until_idle(self) -> None:
        """Take turns, and wait for messages that were given back."""
        super().run_until_idle()
        while (visible := self.wait_for(self._local.queue.next_visible_at())) is not None:
            self.clock.move_to(visible)
            super().run_until_idle()

    async def _turn(self, message: Message, delivery: Delivery) -> TurnEnd:
        if self._zombie.turn is None:
            return await self._freezing_turn(message, delivery)
        if self._holder_calls is None:
            self._holder_calls = 0
            try:
                return await _taken(self._engine_around(self._hold), message, delivery)
            finally:
                if self._zombie.freeze.thaw == "next":
                    await self._zombie.thaw()
        return await super()._turn(message, delivery)

    async def _freezing_turn(self, message: Message, delivery: Delivery) -> TurnEnd:
        engine = self._engine_around(self._zombie.around)
        turn = asyncio.create_task(_taken(engine, message, delivery))
        await _either(turn, self._zombie.stopped)
        if turn.done():
            return turn.result()
        self._zombie.turn = turn
        # Its message becomes visible while it is frozen, so that its receipt is stale.
        self.clock.advance(VISIBILITY)
        raise Fenced("frozen")

    async def _hold(self, call: Call) -> Any:
        assert self._holder_calls is not None
        self._holder_calls += 1
        if self._holder_calls == self._zombie.freeze.thaw:
            await self._zombie.thaw()
        return await call()

    def _engine_around(self, around: Around) -> Engine:
        return Engine(_around(self._local.ports, around), self._settings, registry, self._chance)
