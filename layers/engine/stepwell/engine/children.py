"""Children: starting them, seeing how they ended, cancelling them; telling the parent.

`ChildStarted` holds all that a child begins from and is durable before it is sent for; so is
`ChildCancelRequested` before the child is asked to end. A turn that dies in between is followed by
one that does it again, which changes nothing: run id, header and request are functions of the
events. How a child ended stands in its header; the message about it only says where to look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from stepwell.core import events as e
from stepwell.core.commands import CancelChild, StartChild
from stepwell.core.failure import describe
from stepwell.core.ids import derived_seed
from stepwell.core.messages import CancelRun, ChildReported, Message, RetryRun, StartRun
from stepwell.core.parts import ChildState
from stepwell.core.records import ChildEnding, Parent, Payload, RunHeader, RunStatus
from stepwell.core.signals import run_id_of_child
from stepwell.engine.catalogue import Catalogue
from stepwell.engine.headers import last_link, start_from_turn
from stepwell.engine.ports import TransientError
from stepwell.engine.replay import Replay
from stepwell.engine.retrying import ask_retry
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import Failure, PayloadError, StartError

T = TypeVar("T")
#: Children that are started, looked at or cancelled at a time.
_AT_A_TIME = 16
_CLOSED = "its parent has ended"
_RETRYABLE = (RunStatus.FAILED, RunStatus.CANCELLED)
_ENDINGS: dict[RunStatus, ChildEnding] = {
    RunStatus.COMPLETED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "cancelled",
}


class _Prepared(NamedTuple):
    """What a child begins from, beside what its command says."""

    version: str
    input: Payload
    after: int | None = None


class Children:
    """Performs the commands about children of one turn."""

    def __init__(self, turn: TurnContext, replay: Replay) -> None:
        self._turn = turn
        self._replay = replay
        #: Ends of stream runs that were there already.
        self._over: list[e.ChildEnded] = []
        #: What is to be done now.
        self.ready: list[StartChild | CancelChild] = []

    def wanted(self, command: StartChild | CancelChild) -> bool:
        """Whether it is still to be done: the wait for a child has the id of its start."""
        pending = self._replay.pending.get(command.id)
        return pending is not None and pending.command is command

    async def perform(self) -> None:
        """Record what is ready, make it durable, send it on its way, then tell the code."""
        commands, self.ready = self.ready, []
        starts = [each for each in commands if isinstance(each, StartChild)]
        prepared = await _all(_prepare(self._turn, each) for each in starts)
        found = {each.id: how for each, how in zip(starts, prepared, strict=True)}
        recorded: list[e.ChildStarted | e.ChildCancelRequested | e.ChildEnded] = []
        for command in commands:
            if self.wanted(command):
                recorded.append(self._event(command, found.get(command.id)))
                self._turn.journal.record(recorded[-1])
        await self._turn.journal.flush()
        await _all(self._send(event) for event in recorded)
        for event in recorded:
            self._replay.feed(event)
        over, self._over = self._over, []
        for each in over:
            ended = replace(each, at=self._turn.journal.now())
            self._turn.journal.record(ended)
            self._replay.feed(ended)

    def _event(
        self, command: StartChild | CancelChild, prepared: _Prepared | Failure | None
    ) -> e.ChildStarted | e.ChildCancelRequested | e.ChildEnded:
        at = self._turn.journal.now()
        if isinstance(command, CancelChild):
            return e.ChildCancelRequested(
                at=at, child=command.child, name=command.name, reason=command.reason
            )
        generation = self._turn.state.lives.child_generation(command.id)
        name, stream_run = command.child.name, command.child.stream_run
        run_id = run_id_of_child(self._turn.run_id, command.id, generation, name, stream_run)
        if not isinstance(prepared, _Prepared):
            return e.ChildEnded(
                at=at, child=command.id, name=name, run_id=run_id, status="refused", error=prepared
            )
        options, guards = command.options, self._turn.state.guards
        return e.ChildStarted(
            at=at,
            child=command.id,
            name=name,
            run_id=run_id,
            digest=command.digest,
            version=prepared.version,
            input=prepared.input,
            after=prepared.after,
            on_parent_close=None if options.on_parent_close == "cancel" else "abandon",
            stream_run=stream_run,
            context=options.context,
            guards=guards if options.guards is None else options.guards.over(guards),
        )

    async def _send(self, event: e.ChildStarted | e.ChildCancelRequested | e.ChildEnded) -> None:
        child = self._turn.state.children[event.child]
        if isinstance(event, e.ChildStarted):
            standing = await _start(self._turn, child)
            ended = await _found_ended(self._turn, child, standing)
            if ended is not None:
                self._over.append(ended)
        elif isinstance(event, e.ChildCancelRequested):
            await _cancel(self._turn, child, child.reason)


async def _prepare(turn: TurnContext, command: StartChild) -> _Prepared | Failure:
    """What the child begins from, or why it cannot."""
    child, text, version = command.child, command.input, command.child.version
    depth, most = _depth(turn), turn.settings.limits.depth
    if depth > most:
        message = f"it would be {depth} levels below a run that nobody started, the limit is {most}"
        return Failure("stepwell.errors.ChildTooDeep", message)
    try:
        if version is None:
            start = await Catalogue(turn.ports).check_text(child.name, text)
            version, text = start.version, start.text
        kept = await turn.values.put(text, f"input of child {child.name!r}")
        return _Prepared(version, kept, await _ended_before(turn, command))
    except (StartError, PayloadError) as error:
        return describe(error)


async def _ended_before(turn: TurnContext, command: StartChild) -> int | None:
    """With which event the run of a child has ended that is to be retried with its parent."""
    name, stream_run = command.child.name, command.child.stream_run
    generation = turn.state.lives.child_generation(command.id)
    if stream_run is None or generation == 1:
        return None
    run_id = run_id_of_child(turn.run_id, command.id, generation, name, stream_run)
    header = await turn.ports.store.get_header(run_id)
    if header is None or header.parent != _link_of(turn, command.id):
        return None
    if not header.status.terminal and header.cancel_requested:
        raise TransientError(f"run {run_id!r} is being cancelled, and is to be retried then")
    return header.last_event if header.status in _RETRYABLE else None


def _depth(turn: TurnContext) -> int:
    parent = turn.header.parent
    return 1 if parent is None else parent.depth + 1


def _is_taken(turn: TurnContext, child: ChildState, header: RunHeader) -> bool:
    """Whether a child was to own a stream run that another run started."""
    return child.stream_run is not None and header.parent != _link(turn, child)


async def _found_ended(
    turn: TurnContext, child: ChildState, standing: RunHeader
) -> e.ChildEnded | None:
    """The end of a stream run that was there already: another run's, or that of an earlier life.

    Nobody will report it again.
    """
    return None if child.stream_run is None else await _ending(turn, child, standing)


def _refused(turn: TurnContext, child: ChildState) -> e.ChildEnded:
    message = f"stream run {child.stream_run!r} of {child.name!r} is that of another run"
    return e.ChildEnded(
        at=turn.journal.now(),
        child=child.id,
        name=child.name,
        run_id=child.run_id,
        status="refused",
        error=Failure("stepwell.errors.StreamRunTaken", message),
    )


async def _start(turn: TurnContext, child: ChildState) -> RunHeader:
    if child.after:
        request = f"{turn.run_id}/{child.id}/{child.order}"
        retry = RetryRun(run_id=child.run_id, request_id=request, after=child.after)
        await turn.ports.queue.send(retry)
        await ask_retry(turn.ports, retry)
        header = await turn.ports.store.get_header(child.run_id)
        if header is not None:
            return header
    message = StartRun(
        run_id=child.run_id,
        workflow=child.name,
        version=child.version,
        # Its own, so that it can do without its parent.
        input=await turn.values.of(child.run_id).own(child.input),
        input_digest=child.digest,
        seed=derived_seed(turn.header.seed, child.run_id),
        created_at=child.since,
        context=child.context,
        guards=child.guards,
        parent=_link(turn, child),
        stream_run=child.stream_run,
    )
    return await start_from_turn(turn.ports, message)


def _link(turn: TurnContext, child: ChildState) -> Parent:
    return _link_of(turn, child.id)


def _link_of(turn: TurnContext, child: str) -> Parent:
    return Parent(run_id=turn.run_id, child=child, depth=_depth(turn))


async def _cancel(turn: TurnContext, child: ChildState, reason: str | None) -> None:
    """Ask the last run of a child's chain to end. The request is the same each time."""
    header = await last_link(turn.ports, child.run_id)
    if header is None or header.status in _ENDINGS:
        return
    request = f"{turn.run_id}/{child.id}"
    await turn.ports.queue.send(CancelRun(run_id=header.run_id, request_id=request, reason=reason))
    await turn.ports.store.request_cancel(header.run_id)


async def endings(turn: TurnContext, message: Message) -> list[e.ChildEnded]:
    """Which open children have ended, as their headers say.

    The child that a message names is looked at. After a turn that may have left things undone all
    are, and what that turn may not have sent is sent again.
    """
    if not turn.settled:
        return [
            ended
            for ended in await _all(_look_again(turn, c) for c in turn.state.open_children())
            if ended is not None
        ]
    child = turn.state.children.get(message.child) if isinstance(message, ChildReported) else None
    if child is None or not child.open:
        return []
    ended = await _ending(turn, child, await _reporting(turn, message, child))
    return [] if ended is None else [ended]


async def _reporting(turn: TurnContext, message: Message, child: ChildState) -> RunHeader | None:
    """The header of the run that reports, if it is the child's; else of the last one known.

    After a retry that started the child anew, the run of the life before may report late.
    """
    if isinstance(message, ChildReported):
        first = turn.state.lives.child_generation(child.id) == 1
        header = await turn.ports.store.get_header(message.child_run)
        ours = header is not None and header.parent == _link(turn, child)
        if header is not None and ours and (first or header.run_id == child.run_id):
            return header
    return await last_link(turn.ports, child.run_id)


async def _look_again(turn: TurnContext, child: ChildState) -> e.ChildEnded | None:
    header = await last_link(turn.ports, child.run_id)
    ended = await _ending(turn, child, header)
    if ended is not None:
        return ended
    if header is None or header.last_event == child.after:
        await _start(turn, child)
    if child.status == "cancelling":
        await _cancel(turn, child, child.reason)
    return None


async def _ending(
    turn: TurnContext, child: ChildState, header: RunHeader | None
) -> e.ChildEnded | None:
    if header is not None and header.deleted_at is not None:
        return e.ChildEnded(
            at=turn.time, child=child.id, name=child.name, run_id=header.run_id, status="missing"
        )
    if header is None:
        # The turn that recorded the start had sent for the child before it wrote its own header.
        if child.order > turn.header.last_event:
            return None
        return e.ChildEnded(
            at=turn.time, child=child.id, name=child.name, run_id=child.run_id, status="missing"
        )
    if _is_taken(turn, child, header):
        return _refused(turn, child)
    ending = _ENDINGS.get(header.status)
    if ending is None or (child.after and header.last_event <= child.after):
        return None
    return e.ChildEnded(
        at=header.updated_at,
        child=child.id,
        name=child.name,
        run_id=header.run_id,
        status=ending,
        result=None if header.result is None else await turn.values.own(header.result),
        error=header.error,
        reason=await _reason(turn, header) if ending == "cancelled" else None,
    )


async def _reason(turn: TurnContext, header: RunHeader) -> str | None:
    rows = await turn.ports.store.load(header.run_id)
    last = rows.commits[-1].events[-1] if rows.commits else None
    return last.reason if isinstance(last, e.RunCancelled) else None


async def close(turn: TurnContext) -> None:
    """Cancel the open children of a run that has ended, but for those that are to go on."""
    left = [each for each in turn.state.open_children() if each.on_parent_close == "cancel"]
    await _all(_cancel(turn, child, child.reason or _CLOSED) for child in left)


async def report(turn: TurnContext) -> None:
    """Tell the parent, if there is one, that this run has ended."""
    parent = turn.header.parent
    if parent is not None:
        await turn.ports.queue.send(
            ChildReported(
                run_id=parent.run_id,
                child=parent.child,
                child_run=turn.run_id,
                last_event=turn.state.last,
            )
        )


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Make all calls, a few at a time; none goes on when this raises."""
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(call: Coroutine[Any, Any, T]) -> T:
        async with gate:
            return await call

    ended = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
    found: list[T] = []
    for each in ended:
        if isinstance(each, BaseException):
            raise each
        found.append(each)
    return found
