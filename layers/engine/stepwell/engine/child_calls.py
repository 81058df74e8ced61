"""Other runs in a replay: children, and the one that goes on. Pure, as `engine.replay`.

A child is started, and from then on known by its id; its end is told to all who wait for it, then
or later. Who waits alone for a child and stops waiting leaves nobody who could: the child is
cancelled. That is a command like any other, under the child's id with a mark before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from stepwell.authoring.children import ChildHandle, ChildStatus
from stepwell.core import events as e
from stepwell.core.commands import AwaitChild, CancelChild, StartChild
from stepwell.core.definitions import ChildDefinition, ChildOptions
from stepwell.core.ids import check_note, keyed
from stepwell.core.records import OnParentClose, Payload
from stepwell.core.signals import run_id_of_child
from stepwell.engine.asking import Asking
from stepwell.engine.endings import Continues
from stepwell.engine.loop import ReplayTask
from stepwell.engine.past import ChildEvent
from stepwell.engine.pending import Pending
from stepwell.engine.remarks import Remarks
from stepwell.errors import (
    ChildCancelled,
    ChildError,
    ChildFailed,
    ChildNotFound,
    ChildNotStarted,
    ChildTooDeep,
    Continued,
    Failure,
    NonDeterminismError,
    PayloadError,
    StreamRunTaken,
    Suspended,
    UsageError,
)

#: Why a child is cancelled whose parent does not wait any more.
LEFT = "its parent does not wait for it any more"
#: What a child was refused for, and what its parent is told then.
_REFUSED: Mapping[str, type[ChildNotStarted]] = {
    "stepwell.errors.ChildTooDeep": ChildTooDeep,
    "stepwell.errors.StreamRunTaken": StreamRunTaken,
}


@dataclass(slots=True)
class ChildCall:
    """A child that the code asked for."""

    id: str
    run_id: str
    child: ChildDefinition
    on_parent_close: OnParentClose
    ended: e.ChildEnded | None = None
    value: Any = None
    waiters: list[asyncio.Future[None]] = field(default_factory=list)


def cancel_id(child: str) -> str:
    """The id of the cancel of a child. No other id begins so."""
    return f"!{child}"


class ChildCalls(Asking):
    """The part of a replay that is about other runs."""

    _children: dict[str, ChildCall]
    _main: ReplayTask
    remarks: Remarks
    _cancel_told: bool
    #: Whether the workflow was told before the event of it: it wished to go on as a new run.
    _cancel_told_early: bool

    def child(
        self,
        child: ChildDefinition,
        input: Payload,
        digest: str,
        options: ChildOptions,
        *,
        wait: bool,
    ) -> Coroutine[Any, Any, Any]:
        """Start a child; its result, or its handle."""
        asked = self._start_child(child, input, digest, options, wait=wait)
        return self._make(asked, "start_child")

    async def _start_child(
        self,
        child: ChildDefinition,
        input: Payload,
        digest: str,
        options: ChildOptions,
        *,
        wait: bool,
    ) -> Any:
        if self._over:
            await self._come_late()
        name, key = child.name, options.key
        identity = (
            self.loop.scope().identify(name) if key is None else self._keyed_id(keyed(name, key))
        )
        if key is not None and identity in self._asked:
            raise UsageError(f"child {name!r}: key {key!r} is used twice in this run")
        command = StartChild(identity, digest, child, input, options)
        self._ask(command)
        known = self._state.children.get(identity)
        if known is not None and known.order and known.digest != digest:
            self._refuse(
                f"child {identity!r} with input {known.digest}",
                command,
                f"child {identity!r} with input {digest}",
            )
        run_id, closing = self._child_run(identity, child), options.on_parent_close
        call = ChildCall(identity, run_id, child, closing)
        self._children[identity] = call
        if not self._recall(call):
            await self._wait_for(command)
        if wait or call.ended is not None:  # it could not be started
            return await self._end_of(call, alone=True)
        return ChildHandle(self, identity, call.run_id, name)

    def _recall(self, call: ChildCall) -> bool:
        """Tell at once what came of a child before the code began again. Whether it was started."""
        events = self._past.children.pop(call.id, [])
        for event in events:
            if isinstance(event, e.ChildCancelRequested):
                self._asked[cancel_id(call.id)] = None
            elif isinstance(event, e.ChildEnded) and self._take_value(call, event):
                call.ended = event
        return bool(events)

    def _is_kept(self, event: ChildEvent) -> bool:
        """Whether it is about a child that the code has not asked for since it began again."""
        kept = event.child in self._past.known and event.child not in self._children
        if kept:
            self._past.keep(event)
        return kept

    def _child_run(self, identity: str, child: ChildDefinition) -> str:
        known = self._state.children.get(identity)
        if known is not None and known.order:
            return known.run_id
        generation = self._state.lives.child_generation(identity)
        return run_id_of_child(self.run_id, identity, generation, child.name, child.stream_run)

    def child_result(self, child: str) -> Coroutine[Any, Any, Any]:
        """Wait for the end of a child."""
        return self._make(self._end_of(self._children[child], alone=False), "ChildHandle.result")

    async def _end_of(self, call: ChildCall, *, alone: bool) -> Any:
        if self._over:
            await self._come_late()
        if call.ended is None:
            await self._wait_for_end(call, alone=alone)
        assert call.ended is not None
        error = _error(call.ended)
        if error is not None:
            raise error
        return call.value

    async def _wait_for_end(self, call: ChildCall, *, alone: bool) -> None:
        ended: asyncio.Future[None] = asyncio.Future(loop=self.loop)
        call.waiters.append(ended)
        command = AwaitChild(call.id)
        if len(call.waiters) == 1:
            self.pending[call.id] = Pending(command, scope=self.loop.scope())
            self.fresh.append(command)
        try:
            await ended
        except asyncio.CancelledError:
            if call.ended is None:
                call.waiters.remove(ended)
                if not call.waiters:
                    self._withdraw(command)
                if alone:
                    self._leave(call)
            raise

    def _leave(self, call: ChildCall) -> None:
        """Nobody can wait for it any more, or ask for its cancel."""
        if not self._over and call.on_parent_close == "cancel":
            command = CancelChild(cancel_id(call.id), call.id, call.child.name, LEFT)
            self._ask(command)
            self.pending[command.id] = Pending(command)
            self.fresh.append(command)

    def cancel_child(self, child: str, reason: str | None) -> Coroutine[Any, Any, None]:
        """Ask for a child to be cancelled. Raises `UsageError` on a reason that is too long."""
        check_note("reason", reason)
        return self._make(self._cancel_child(self._children[child], reason), "ChildHandle.cancel")

    async def _cancel_child(self, call: ChildCall, reason: str | None) -> None:
        if self._over:
            await self._come_late()
        command = CancelChild(cancel_id(call.id), call.id, call.child.name, reason)
        if call.ended is None and command.id not in self._asked:
            self._ask(command)
            await self._wait_for(command)

    def child_status(self, child: str) -> ChildStatus:
        """What the code has been told of a child."""
        ended = self._children[child].ended
        return "running" if ended is None else ended.status

    def _child_started(self, event: e.ChildStarted, _: Any) -> None:
        if self._is_kept(event):
            return
        pending = self._take(event.child, event)
        call = self._children.get(event.child)
        if pending is not None and pending.future is not None:
            pending.future.set_result(None)
        elif call is not None:  # it was started, and who asked for it had gone
            self._leave(call)

    def _child_cancel_requested(self, event: e.ChildCancelRequested, _: Any) -> None:
        if self._is_kept(event):
            return
        pending = self._take(cancel_id(event.child), event)
        if pending is not None and pending.future is not None:
            pending.future.set_result(None)

    def _child_ended(self, event: e.ChildEnded, _: Any) -> None:
        if self._is_kept(event):
            return
        pending = self._take(event.child, event)
        call = self._children.get(event.child)
        if call is None or not self._take_value(call, event):
            return
        call.ended = event
        if event.result is None:
            self._trail.failed(event.child, None if pending is None else pending.scope)
        if pending is not None and pending.future is not None:  # it could not be started
            pending.future.set_result(None)
        waiters, call.waiters = call.waiters, []
        for ended in waiters:
            if not ended.done():  # it was cancelled just now
                ended.set_result(None)
        cancel = self.pending.pop(cancel_id(event.child), None)
        if cancel is not None and cancel.future is not None:
            cancel.future.set_result(None)

    def _take_value(self, call: ChildCall, event: e.ChildEnded) -> bool:
        """Decode a result, once for all who wait. Whether it could be."""
        if event.result is None:
            return True
        try:
            call.value = call.child.result.decode(self._texts.get(event.result, event.result))
        except PayloadError as error:
            self._block(
                NonDeterminismError(
                    recorded=f"a result of child {event.child!r}",
                    asked=f"a result that fits its type now: {error.reason}",
                    where=f"workflow {call.child.name!r}",
                )
            )
            return False
        return True

    def _cancel_requested(self, event: e.CancelRequested, _: Any) -> None:
        self._cancel_told = True
        self._trail.cancelled(self._main.scope)
        if not self._cancel_told_early:
            self._main.cancel(_why_cancelled(event))

    def continue_as_new(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NoReturn:
        """End the pass: the run goes on as a new one. Unless it was cancelled: then it is told."""
        if self._over:
            raise Suspended
        if self.stream_run is not None:
            raise UsageError(
                "continue_as_new: a stream run and its steps keep their names and go on by "
                "themselves; keep what has to go on with save_checkpoint"
            )
        arguments = self._workflow.arguments
        text, input_digest = arguments.encode(args, kwargs), arguments.digest(args, kwargs)
        cancel = self._state.cancel
        if cancel is not None and not self._cancel_told:
            if self.blocking or asyncio.current_task(self.loop) is self._main:
                self._cancel_told = self._cancel_told_early = True
            raise asyncio.CancelledError(_why_cancelled(cancel))
        snapshot = self.remarks.snapshot
        context = None if snapshot is None else snapshot.text
        self.outcome = Continues(text, input_digest, context)
        self._over = True
        raise Continued


def _why_cancelled(event: e.CancelRequested) -> str:
    return event.reason or "the run was cancelled"


def _error(event: e.ChildEnded) -> ChildError | None:
    """The error that a child's end is to who waits for it. A new one for each of them."""
    about = (event.child, event.name, event.run_id)
    if event.status == "completed":
        return None
    if event.status == "cancelled":
        return ChildCancelled(*about, event.reason)
    if event.status == "missing":
        return ChildNotFound(*about)
    failure = event.error or Failure("", "")
    if event.status == "failed":
        return ChildFailed(*about, failure)
    return _REFUSED.get(failure.type, ChildNotStarted)(*about, failure)
