"""Fan-out on the replay: maps, and steps that were submitted. Pure, as the replay is.

A map asks for all of its items at once, each as a step of its own, and waits until a board of
their outcomes has its verdict; what is left then is withdrawn. How many items run at a time is
kept by whoever performs them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from stepwell.authoring.context import SAGA, SagaContext, Submitted
from stepwell.core import events as e
from stepwell.core.commands import Command, DispatchedItems, RunStep, StartMap
from stepwell.core.definitions import StepDefinition
from stepwell.core.fan_out import Board, ItemStatus, MapOptions
from stepwell.core.ids import item_id, keyed_step
from stepwell.core.map_outcomes import ItemEnded
from stepwell.core.parts import StepState
from stepwell.core.payload import digest
from stepwell.core.records import Payload
from stepwell.engine.asking import Asking
from stepwell.engine.keyed import KeyedStep
from stepwell.engine.pending import Pending
from stepwell.engine.remarks import Remarks
from stepwell.errors import StepBlocked, StepFailed, StepInterrupted, StepTimeout, Suspended

#: What a step's failure is, by what ended its last attempt.
FAILED = {
    "error": StepFailed,
    "timeout": StepTimeout,
    "interrupted": StepInterrupted,
    "guard": StepBlocked,
}
_ENDED = frozenset({"completed", "failed", "cancelled"})
#: The digest of a step that is known by its name alone.
NO_INPUT = digest("")


def kept(
    known: StepState | None,
    digest: str,
    definition: StepDefinition,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Payload | None:
    """What to keep of a call whose step may still be made."""
    if known is not None and known.status in _ENDED and known.digest == digest:
        return None
    return definition.arguments.kept(args, kwargs)


class FanOut(Asking):
    """The part of a replay that asks for steps otherwise than by waiting for each at once."""

    remarks: Remarks
    _keyed: dict[str, KeyedStep]

    def map(
        self,
        definition: StepDefinition,
        items: Sequence[Any],
        keys: Sequence[str] | None,
        options: MapOptions,
    ) -> Coroutine[Any, Any, Any]:
        """Run a step over items."""
        return self._make(self._map(definition, items, keys, options), f"{definition.name}.map")

    async def _map(
        self,
        definition: StepDefinition,
        items: Sequence[Any],
        keys: Sequence[str] | None,
        options: MapOptions,
    ) -> Any:
        if self._over:
            await self._come_late()
        identity = self.loop.scope().identify(f"{definition.name}*")
        board: Board[Any] = Board(options, len(items))
        ids = [item_id(identity, each) for each in keys or map(str, range(len(items)))]
        if definition.dispatch == "worker" and definition.colour != "stream":
            return await self._dispatched_map(
                definition, identity, items, ids, board=board, options=options
            )
        if board.verdict is None:
            command = StartMap(identity, definition.name, len(items), options.max_concurrency)
            try:
                self._begin_map(command)
                ended = self._begin_items(definition, command, ids, items, board)
                await ended
            finally:
                for each in ids:
                    self._drop(each)
                self._drop(identity)
        return board.result(identity, definition.name)

    async def _dispatched_map(
        self,
        definition: StepDefinition,
        identity: str,
        items: Sequence[Any],
        ids: Sequence[str],
        *,
        board: Board[Any],
        options: MapOptions,
    ) -> Any:
        if board.verdict is not None:
            return board.result(identity, definition.name)
        digests = [self._digest(definition, (item,), {}) for item in items]
        names = [each.removeprefix(item_id(identity, "")) for each in ids]
        found = digest(json.dumps([names, digests]))
        snapshot = self.remarks.snapshot
        texts: Sequence[Payload | None] = ()
        if identity not in self._state.maps:
            texts = [definition.arguments.kept((item,), {}) for item in items]
        dispatched = DispatchedItems(definition, items, names, found, options, snapshot, texts)
        most = options.max_concurrency
        command = StartMap(identity, definition.name, len(items), most, dispatched)
        try:
            future = self._begin_map(command)
            saga = self._saga_around(definition)
            if saga is not None:
                saga.begins_items(ids, definition, items, future)
            outcomes: Sequence[tuple[ItemStatus, Any]] = await future
        finally:
            for each in [each for each in self.pending if each.startswith(item_id(identity, ""))]:
                self._drop(each)
            self._drop(identity)
        for index, (status, outcome) in enumerate(outcomes):
            if status != "cancelled":
                board.put(index, status, outcome)
        return board.result(identity, definition.name)

    def _begin_map(self, command: StartMap) -> asyncio.Future[Any]:
        future = self.loop.create_future()
        self._ask_for(command, future)
        for event in self._past.items.pop(command.id, ()):
            self._adopt(event)
        known = self._state.maps.get(command.id)
        if known is not None and known.total != command.total:
            self._refuse(
                f"map {command.id!r} of {known.total} items",
                command,
                f"map {command.id!r} of {command.total} items",
            )
        wanted = None if command.dispatched is None else command.dispatched.digest
        if known is not None and known.started.digest != wanted:
            self._refuse(
                f"map {command.id!r} of items {known.started.digest}",
                command,
                f"map {command.id!r} of items {wanted} (they, or where they are made, have changed)",
            )
        return future

    def _begin_items(
        self,
        definition: StepDefinition,
        command: StartMap,
        ids: Sequence[str],
        items: Sequence[Any],
        board: Board[Any],
    ) -> asyncio.Future[None]:
        """Ask for all items. The future is done when the board has its verdict."""
        ended = self.loop.create_future()

        def take(index: int, future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return  # it is not waited for any more
            error = future.exception()
            if error is None:
                board.complete(index, future.result())
            else:
                assert isinstance(error, Exception)
                board.fail(index, error)
            if board.verdict is not None and not ended.done():
                ended.set_result(None)

        for index, (item, each) in enumerate(zip(items, ids, strict=True)):
            future = self._begin_step(each, definition, (item,), {}, command.id)
            future.add_done_callback(partial(take, index))
        return ended

    def submit(
        self,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str | None = None,
    ) -> Submitted:
        """Ask for a step at once, and go on."""
        if self._over:
            raise Suspended
        if key is None:
            identity = self.loop.scope().identify(definition.name)
            future = self._begin_step(identity, definition, args, kwargs)
            return SubmittedStep(self._make, definition.name, future, partial(self._drop, identity))
        call = self._begin_keyed(definition, args, kwargs, key)
        future = call.join()

        def drop() -> None:
            call.leave(future)
            if call.abandon():
                self._withdraw(call.command)

        return SubmittedStep(self._make, definition.name, future, drop)

    def _begin_keyed(
        self, definition: StepDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str
    ) -> KeyedStep:
        """Ask for a step with a key, or join the call that did. Raises `KeyConflict`."""
        command = self._command(
            self._keyed_id(keyed_step(definition.name, key)), definition, args, kwargs
        )
        call = self._keyed.get(key)
        if call is None:
            self._ask(command)
            self._check_input(command)
            call = self._keyed[key] = KeyedStep(key, command, self.loop)
            self.pending[command.id] = Pending(command, call.future, None, self.loop.scope())
            self.fresh.append(command)
            self._join_saga(command, call.future)
            self._tell_early(command.id)
        else:
            call.check(definition.name, command.digest)
        return call

    def _begin_step(
        self,
        identity: str,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        map_id: str | None = None,
    ) -> asyncio.Future[Any]:
        """Ask for a step under an id; the future is told its outcome."""
        command = self._command(identity, definition, args, kwargs, map_id)
        future = self.loop.create_future()
        self._ask_for(command, future)
        self._check_input(command)
        self._join_saga(command, future)
        return future

    def _join_saga(self, command: RunStep, future: asyncio.Future[Any]) -> None:
        """Let the saga that the code is in know of a step that can be undone."""
        saga = self._saga_around(command.step)
        if saga is not None:
            saga.begins(command.id, command.step, command.args, command.kwargs, future)

    def _saga_around(self, definition: StepDefinition) -> SagaContext | None:
        if definition.compensate is None:
            return None
        return self.saga if self.blocking else SAGA.get()

    def _command(
        self,
        identity: str,
        definition: StepDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        map_id: str | None = None,
    ) -> RunStep:
        found = self._digest(definition, args, kwargs)
        text = kept(self._state.steps.get(identity), found, definition, args, kwargs)
        snapshot = self.remarks.snapshot
        return RunStep(identity, found, definition, args, kwargs, snapshot, map_id, text)

    @staticmethod
    def _digest(
        definition: StepDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str:
        by_name = definition.identity == "name"
        return NO_INPUT if by_name else definition.arguments.digest(args, kwargs)

    def _adopt(self, event: e.StepStarted) -> None:
        """An item of a dispatched map that the run has taken over is a step from here on."""
        of = event.step.partition("#")[0]
        pending = self.pending.get(of)
        if (
            pending is None
            or event.step in self.pending
            or not isinstance(pending.command, StartMap)
        ):
            return
        items = pending.command.dispatched
        if items is not None:
            command = RunStep(event.step, event.digest, items.step, (), {}, items.context, of)
            self._ask(command)
            self.pending[event.step] = Pending(command)
            self.fresh.append(command)

    def _check_input(self, command: RunStep) -> None:
        known = self._state.steps.get(command.id)
        other = known is not None and known.digest != command.digest
        if (
            other and command.id not in self._state.lives.kept
        ):  # what an earlier life left is let be
            assert known is not None
            self._refuse_input(known.digest, command)

    def _ask_for(self, command: Command, future: asyncio.Future[Any]) -> None:
        self._ask(command)
        self.pending[command.id] = Pending(command, future, None, self.loop.scope())
        self.fresh.append(command)
        if self._early:
            self._tell_early(command.id)

    def _drop(self, identity: str) -> None:
        """Wait for a command no more; nothing happens if it has its outcome."""
        pending = self.pending.get(identity)
        if pending is not None:
            self._withdraw(pending.command)


def outcome_of(
    command: StartMap, ended: ItemEnded, texts: Mapping[Payload, str]
) -> tuple[ItemStatus, Any]:
    """What an item came to: its value or its error. Raises `PayloadError`."""
    assert command.dispatched is not None
    step = command.dispatched.step
    if ended.result is not None:
        return "completed", step.result.decode(texts.get(ended.result, ended.result))
    if ended.error is None:
        return "cancelled", None
    identity = item_id(command.id, ended.item)
    return "failed", FAILED[ended.reason](identity, step.name, ended.attempt, ended.error)


class SubmittedStep(Submitted):
    """A step that was asked for and not awaited."""

    def __init__(
        self,
        make: Callable[[Coroutine[Any, Any, Any], str], Coroutine[Any, Any, Any]],
        name: str,
        future: asyncio.Future[Any],
        drop: Callable[[], None],
    ) -> None:
        self._note = make
        self._name = name
        self._future = future
        self._drop = drop
        future.add_done_callback(_take)

    @property
    def done(self) -> bool:
        """Whether it has an outcome, or was cancelled."""
        return self._future.done()

    def cancel(self) -> None:
        """Wait for it no more."""
        if self._future.cancel():
            self._drop()

    def outcome(self) -> Coroutine[Any, Any, Any]:
        """Wait for its result."""
        return self._note(self._outcome(), f"result of {self._name}")

    async def _outcome(self) -> Any:
        if not self._future.done():
            waiter = self._future.get_loop().create_future()

            def wake(_: asyncio.Future[Any]) -> None:
                if not waiter.done():
                    waiter.set_result(None)

            # Not the future itself: whoever waits may be cancelled, and the step shall go on.
            self._future.add_done_callback(wake)
            await waiter
        return self._future.result()


def _take(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # taken, so that asyncio does not report it as lost
