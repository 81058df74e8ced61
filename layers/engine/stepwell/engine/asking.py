"""Asking: how code comes to want something, waits for it, is told of it, or wants it no more."""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn

from stepwell.core import events as e
from stepwell.core.commands import Command, RunStep
from stepwell.core.ids import is_keyed_step
from stepwell.core.records import Payload
from stepwell.engine.past import Past
from stepwell.engine.pending import Pending, kind_of
from stepwell.engine.primitives import Primitives
from stepwell.engine.redo import Trail
from stepwell.engine.refusing import Refusing
from stepwell.engine.reopened import Reopened
from stepwell.errors import Suspended

#: How often code may ask for something after its pass is over before it is stopped for good.
LATE_LIMIT = 1_000
_STEP_ENDS = (e.StepCompleted, e.StepFailed)


class Asking(Refusing, Reopened):
    """The part of a replay that all that code can ask for has in common."""

    #: Commands that were asked for, and those not waited for any more, since last taken.
    fresh: list[Command]
    withdrawn: list[Command]
    #: In the order of asking, for those who compare passes; steps with their input's digest.
    _asked: dict[str, str | None]
    #: Outcomes of steps with a key that the code has not asked for yet.
    _early: dict[str, e.Event]
    #: How often code has asked after the end of its pass.
    _late: int
    _past: Past
    _primitives: Primitives
    _texts: Mapping[Payload, str]
    _trail: Trail
    #: What all ids begin with, apart from those of handlings one after the other.
    _scope: str

    @abstractmethod
    def _deliver(self, event: e.Event) -> None:
        """Tell the code an outcome that it asks for only now."""

    def _ask(self, command: Command, *, fits: bool = False) -> None:
        """Note that the code asks for a command. Raises `Suspended` when the pass is over.

        It `fits` if it is known to be recorded as what it is.
        """
        self._asked[command.id] = command.digest if type(command) is RunStep else None
        if self._past.outcomes:
            self._past.ask(command.id)
        if fits:
            return
        kind = self._kind(command.id)
        if kind is not None and kind != kind_of(command):
            self._refuse(f"{kind} {command.id!r}", command, f"{kind_of(command)} {command.id!r}")

    def _keyed_id(self, identity: str) -> str:
        """The id that a key gives, among those of this code."""
        return f"{self._scope}/{identity}" if self._scope else identity

    async def _come_late(self) -> NoReturn:
        """The pass is over: end the code that asks, also if it asks again and again."""
        self._late += 1
        if self._late > LATE_LIMIT:
            await self.loop.create_future()  # never done: back to who unwinds
        raise Suspended

    async def _wait_for(self, command: Command) -> Any:
        future: asyncio.Future[Any] = asyncio.Future(loop=self.loop)
        self.pending[command.id] = Pending(command, future, scope=self.loop.scope())
        self.fresh.append(command)
        if self._early:
            self._tell_early(command.id)
        try:
            return await future
        except asyncio.CancelledError:
            self._withdraw(command)
            raise

    def _withdraw(self, command: Command) -> None:
        pending = self.pending.pop(command.id, None)
        if pending is not None and not self._over:
            self.withdrawn.append(command)
            if pending.future is not None:
                pending.future.cancel()  # whoever looks at it without waiting for it is told

    def _make(self, primitive: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
        caller = sys._getframe(3)  # past this, the context's method and the author's word for it
        self._primitives.add(primitive, name, caller.f_code, caller.f_lineno)
        return primitive

    def note(self, primitive: Coroutine[Any, Any, Any]) -> None:
        """A primitive was called and is to be awaited: `_make` has noted it already."""

    def _tell_early(self, identity: str) -> None:
        early = self._early.pop(identity, None)
        if early is not None:
            self._deliver(early)

    def _take(self, identity: str, event: e.Event) -> Pending | None:
        """Who waits for an outcome; None when it was withdrawn: recorded, not delivered."""
        pending = self.pending.pop(identity, None)
        if pending is not None:
            if self._lives.retried and self._is_superseded(pending.command, event):
                self.pending[identity] = pending
                return None
        elif identity not in self._asked:
            keyed = isinstance(event, _STEP_ENDS) and is_keyed_step(identity)
            if keyed or identity in self._lives.kept:
                # Code may ask for keys in another order than before, and so may mended code.
                self._early[identity] = event
            else:
                first = next(iter(self._early), identity)  # it is what the code missed before
                told = self._early.get(first, event)
                self._block_over(f"{told.type} of {first!r}", first)
        return pending
