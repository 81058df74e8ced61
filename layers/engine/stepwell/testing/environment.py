"""A whole deployment in a test: an in-memory store and a clock that skips.

    with Environment() as env:
        run = env.start(refund, "order-1")
        env.run_until_idle()
        [hook] = env.hooks()
        env.advance("2h")
        env.resume_hook(hook.token, {"approved": True})
        assert env.result(run) == "refunded"

Nothing happens by itself: messages are worked off by `run_until_idle`, time moves by `advance`.
Everything else is the real engine over the real local adapters. One seed gives one history.

Leaving the context checks that every run obeys the laws of `stepwell.testing.laws`: that its replay
takes the way it took, that nothing it waits for is lost, that what callers were told is true.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

from pydantic import ValidationError

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.signal_queue import SignalDelivery
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import Registry, registry
from stepwell.client import InboxEntry, OutputChunk, PendingHook, Recorded, Resumed, RunHandle
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.durations import to_millis
from stepwell.core.messages import (
    Message,
    SignalSent,
    StepMessage,
    load_attempt,
    load_message,
    load_signal,
)
from stepwell.core.payload import Sizes
from stepwell.core.records import Millis, RunHeader
from stepwell.core.tokens import Keyring
from stepwell.engine.attempt import AttemptEnd, StepBusy
from stepwell.engine.endings import TurnEnd
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Delivery, TransientError
from stepwell.engine.sequencing import Sequencer
from stepwell.engine.settings import Limits, Settings
from stepwell.engine.turn import Engine
from stepwell.errors import DurationLike
from stepwell.testing.crashes import Crash, Crasher
from stepwell.testing.facts import RunFacts, streams_of
from stepwell.testing.laws import check_deployment
from stepwell.testing.local_facts import (
    all_local_facts,
    attempts_under_way,
    local_facts,
    local_streams,
)
from stepwell.testing.promises import Promises, PromisingClient

P = ParamSpec("P")
R = TypeVar("R")

_START = datetime(2030, 1, 1, tzinfo=UTC)
_MAX_RECEIVES = 10
_KEYRING = Keyring({"k1": b"only for tests, not a secret" * 2})


class Environment:
    """A deployment of one process, driven by hand.

    `path` keeps it in a file instead of memory; `seed` fixes ids and jitter, `chance` in [0, 1) is
    what every jitter draws instead. `turns` lists how each turn so far left its run, `crashes` how
    many of them were crashed on purpose. `promises` holds what callers were told through `client`.

    Leaving it as a context manager calls `check`, unless an exception passes through, or
    `unchecked` gives a reason why the laws do not hold, as in a test that tampers with rows.
    """

    def __init__(
        self,
        *,
        path: str | Path = ":memory:",
        start: datetime = _START,
        seed: int | str = 0,
        chance: float | None = None,
        registry: Registry = registry,
        sizes: Sizes | None = None,
        limits: Limits | None = None,
        turn_time: Millis = 90_000,
        guard_time: Millis = 60_000,
        unchecked: str | None = None,
    ) -> None:
        self.clock = SkippingClock(int(start.timestamp() * 1000))
        self.turns: list[TurnEnd] = []
        self.crashes = 0
        self._ids = SeededIds(seed)
        draw = random.Random(seed).random
        self._chance = draw if chance is None else lambda: chance
        self._registry = registry
        self._local: LocalPorts = open_ports(path, clock=self.clock, ids=self._ids)
        self._crasher = Crasher()
        self._ports = self._crasher.wrap(self._local.ports)
        self._settings = Settings(
            keyring=_KEYRING,
            sizes=sizes or Sizes(),
            limits=limits or Limits(),
            turn_time=turn_time,
            guard_time=guard_time,
            step_grace=200,
        )
        self._engine = self._new_engine()
        self._runner = asyncio.Runner()
        self._unchecked = unchecked
        self.promises = Promises()
        #: The client that this environment uses, for what it does not offer itself.
        self.client = PromisingClient(self._local.ports, self._settings, self.promises)

    def _new_engine(self) -> Engine:
        return Engine(self._ports, self._settings, self._registry, self._chance)

    def close(self) -> None:
        """Let everything go."""
        self._engine.close()
        self._runner.close()
        self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and self._unchecked is None:
                self.check()
        finally:
            self.close()

    def check(self) -> None:
        """Check all laws on all runs, and what callers were told. `AssertionError` says which is
        broken.

        The laws of rest are left out for runs that have messages to be worked on, and replays for
        those of workflows that are not registered.
        """
        lists, facts = self.wait_for(all_local_facts(self._local))
        keys = {*streams_of(facts), *self.promises.signals}
        streams = self.wait_for(local_streams(self._local, keys))
        check_deployment(lists, facts, self.workflow, self.promises, streams)

    def facts(self, run_id: str) -> RunFacts:
        """All that can be seen of a run, as the laws are held against it."""
        return self.wait_for(local_facts(self._local, run_id))

    def workflow(self, name: str) -> WorkflowDefinition | None:
        """The workflow that is registered by a name."""
        return self._registry.workflow(name)

    @overload
    def start(
        self,
        workflow: Workflow[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RunHandle[R]: ...
    @overload
    def start(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]: ...
    def start(self, workflow: Workflow[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start a run; nothing of it happens before `run_until_idle`."""
        return self.wait_for(self.client.start(workflow, *args, **kwargs))

    def run(self, workflow: Workflow[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start a run, work until idle and return its result."""
        handle = self.start(workflow, *args, **kwargs)
        self.run_until_idle()
        return self.result(handle)

    def result(self, run: RunHandle[R]) -> R:
        """The result of a run that has ended; raises as `Client.result` does, at once."""
        return self.wait_for(run.result(timeout=0))

    def get(self, run: RunHandle[Any]) -> RunHeader:
        """The run as it stands."""
        return self.wait_for(run.get())

    def history(self, run: RunHandle[Any]) -> tuple[Recorded, ...]:
        """The run's events."""
        return self.wait_for(run.history())

    def hooks(self, run: RunHandle[Any] | None = None) -> tuple[PendingHook, ...]:
        """Hooks that wait for an answer, with their tokens."""
        run_id = None if run is None else run.id
        return self.wait_for(self.client.list_hooks(run_id=run_id, limit=200)).items

    def resume_hook(self, token: str, payload: Any = None, *, actor: str | None = None) -> Resumed:
        """Answer a hook, then work until idle."""
        resumed = self.wait_for(self.client.resume_hook(token, payload, actor=actor))
        self.run_until_idle()
        return resumed

    def put_inbox(
        self, run: RunHandle[Any], key: str, value: Any = None, *, entry_id: str | None = None
    ) -> InboxEntry:
        """Send something to a run, then work until idle."""
        entry = self.wait_for(self.client.put_inbox(run.id, key, value, entry_id=entry_id))
        self.run_until_idle()
        return entry

    def cancel(self, run: RunHandle[Any], reason: str | None = None) -> None:
        """Cancel a run, then work until idle."""
        self.wait_for(self.client.cancel(run.id, reason))
        self.run_until_idle()

    def pause(self, run: RunHandle[Any], reason: str | None = None) -> None:
        """Pause a run, then work until idle."""
        self.wait_for(self.client.pause(run.id, reason))
        self.run_until_idle()

    def resume(self, run: RunHandle[Any]) -> None:
        """Resume a run, then work until idle."""
        self.wait_for(self.client.resume(run.id))
        self.run_until_idle()

    def retry(self, run: RunHandle[Any]) -> None:
        """Retry a run that has ended, then work until idle."""
        self.wait_for(self.client.retry(run.id))
        self.run_until_idle()

    def output(self, run: RunHandle[Any], step: str, *, after: int = 0) -> list[OutputChunk]:
        """What a step has put out so far."""

        async def collect() -> list[OutputChunk]:
            chunks = self.client.output(run.id, step, after=after, follow=False)
            return [chunk async for chunk in chunks]

        return self.wait_for(collect())

    def run_until_idle(self) -> None:
        """Take all turns that can be taken without time passing."""
        while self.take_turn():
            pass

    def take_turn(self) -> bool:
        """Fire due timers and take one turn, or make one attempt of a dispatched step.

        Whether there was one to take.
        """
        return self.wait_for(self._take_turn())

    async def _take_turn(self) -> bool:
        await self._local.timers.fire_due(self._local.queue)
        await self._local.signal_timers.fire_due(self._local.signal_queue)
        signals = await self._local.signal_queue.receive()
        if signals is not None:
            await self._sequence(signals)
            return True
        delivery = await self._local.queue.receive()
        if delivery is not None:
            await self._work(delivery)
            return True
        delivery = await self._local.step_queue.receive()
        if delivery is not None:
            await self._attempt(delivery)
        return delivery is not None

    async def _work(self, delivery: Delivery) -> None:
        queue = self._local.queue
        try:
            message = load_message(delivery.body)
        except ValidationError as error:
            await queue.reject(delivery, f"not a message: {error}")
            return
        try:
            self.turns.append(await self._turn(message, delivery))
        except Crash:
            self._replace_engine()
            await queue.give_back(delivery)
        except (TransientError, Fenced):
            await queue.give_back(delivery, delay=1_000)
        else:
            await queue.delete(delivery)

    async def _sequence(self, delivery: SignalDelivery) -> None:
        queue = self._local.signal_queue
        sent = [load_signal(message.body) for message in delivery.messages]
        try:
            await self._number(sent, delivery)
        except Crash:
            self._replace_engine()
            await queue.give_back(delivery)
        except TransientError:
            await queue.give_back(delivery, delay=1_000)
        else:
            await queue.delete(delivery)

    async def _number(self, sent: Sequence[SignalSent], delivery: SignalDelivery) -> None:
        del delivery
        with self._crasher.armed():
            await Sequencer(self._ports, self._registry.stream_step).take(sent)

    async def _attempt(self, delivery: Delivery) -> None:
        queue = self._local.step_queue
        try:
            await self._make(load_attempt(delivery.body), delivery)
        except Crash:
            self._replace_engine()
            await queue.give_back(delivery)
        except StepBusy as busy:
            await queue.give_back(delivery, delay=max(busy.until - self.clock.now(), 1_000))
        except TransientError:
            await queue.give_back(delivery, delay=1_000)
        else:
            await queue.delete(delivery)

    async def _make(self, attempt: StepMessage, delivery: Delivery) -> AttemptEnd:
        with self._crasher.armed():
            return await self._engine.run_attempt(
                attempt, message_id=delivery.message_id, receive_count=delivery.receive_count
            )

    def _replace_engine(self) -> None:
        """The process is gone with all it held; another one takes its place."""
        self.crashes += 1
        self._engine.close()
        self._engine = self._new_engine()

    async def _turn(self, message: Message, delivery: Delivery) -> TurnEnd:
        with self._crasher.armed():
            return await self._engine.take_turn(
                message,
                message_id=delivery.message_id,
                receive_count=delivery.receive_count,
                last=delivery.receive_count >= _MAX_RECEIVES,
            )

    def advance(self, duration: DurationLike) -> None:
        """Let time pass: from one due timer to the next, working until idle at each."""
        self.advance_to(self.clock.now() + to_millis(duration))

    def advance_to(self, time: Millis) -> None:
        """Let time pass until a time, in milliseconds since the epoch."""
        self.run_until_idle()
        while (due := self._next()) is not None and due <= time:
            self.clock.move_to(due)
            self.run_until_idle()
        self.clock.move_to(time)
        self.run_until_idle()

    def advance_to_next(self) -> bool:
        """Let time pass until something comes due, and work until idle. Whether there was anything.

        What comes due is a timer, or a message that is held back.
        """
        due = self._next()
        if due is not None:
            self.clock.move_to(due)
            self.run_until_idle()
        return due is not None

    def next_timer(self, run: RunHandle[Any]) -> Millis | None:
        """When the run's next timer is due, None if it has none."""
        return self.wait_for(self._local.timers.next_due(run.id))

    def attempts(self, run: RunHandle[Any]) -> frozenset[int]:
        """Dispatched attempts that are sent or being made, by the number of their event."""
        return self.wait_for(attempts_under_way(self._local, run.id))

    def _next(self) -> Millis | None:
        async def soonest() -> Millis | None:
            times = [
                await self._local.timers.next_due(),
                await self._local.queue.next_visible_at(),
                await self._local.step_queue.next_visible_at(),
                await self._local.signal_queue.next_visible_at(),
                await self._local.signal_timers.next_due(),
            ]
            return min((time for time in times if time is not None), default=None)

        return self.wait_for(soonest())

    def run_to_end(self, run: RunHandle[R]) -> R:
        """Work, letting time pass as far as timers ask for it, until the run ends or only waits
        for an answer."""
        self.run_until_idle()
        while not self.get(run).status.terminal and self.advance_to_next():
            pass
        return self.result(run)

    def crash_at(self, call: int, when: Literal["before", "after"] = "before") -> None:
        """Let the process die at the n-th port call of the turns from here on, once.

        "before": the call is never made; "after": it took effect, and its reply is lost.
        """
        self._crasher.crash_at(call, when)

    @property
    def port_calls(self) -> list[str]:
        """The port calls of all turns since the last `crash_at`, by name."""
        return self._crasher.calls

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine of the client or the store to its end."""
        # Not `Runner.run`: it sets a signal handler for each, which takes longer than most of them.
        return self._runner.get_loop().run_until_complete(work)
