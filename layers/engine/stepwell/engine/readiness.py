"""Making a run ready for its code, or leaving it: by what a turn finds it to be.

    unknown → its header is put, or the message is given back
    deleted, or to be deleted → nothing of it is left
    ended → reopened where a retry is wanted; else what its end leaves is made sure of
    forked, and not begun → begins with what it was forked from

Most runs are none of these and go on as they are. What a turn that died here left undone, the next
one does again: each part is a function of what was loaded and of the message.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from stepwell.core.events import Commit, Event
from stepwell.core.messages import ChildNoted, ChildReported, Message, StartRun
from stepwell.core.records import Attention, RetryRequest, RunHeader
from stepwell.core.reopening import wanted_retry
from stepwell.engine import continuing, control, deletion, forking, settle
from stepwell.engine.endings import Raised, TurnEnd
from stepwell.engine.headers import header_of
from stepwell.engine.ports import Ports, RunRows, TransientError
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import ForkRefused

_LOG = logging.getLogger("stepwell.engine")


class Ready(NamedTuple):
    """A run that goes on, with its log so far."""

    turn: TurnContext
    log: list[Event]


async def mark_stuck(ports: Ports, run_id: str, receive_count: int) -> None:
    """Mark a run whose message is delivered for the last time, before its log is read.

    The log may be what cannot be read. The mark goes when the turn ends well.
    """
    header = await ports.store.get_header(run_id)
    if header is None or header.status.terminal or header.paused:
        return  # turns of a paused run do not come to what may be at fault
    reason = (
        f"a message of this run was delivered {receive_count} times and no turn for it ended; "
        "see the log of the worker, mend the cause and wake the run. If the log shows no error, "
        "look for workflow code that goes on for ever without an await, a step that blocks, or "
        "a process that was ended for its memory or time"
    )
    now = ports.clock.now()
    # What a mark carries is a message that is to be found nowhere else.
    left = None if header.attention is None else header.attention.message
    attention = Attention(kind="STUCK", reason=reason, since=now, message=left)
    _LOG.error("run %s is stuck: %s", run_id, reason)
    await ports.store.update_header(replace(header, attention=attention, updated_at=now))


async def found(ports: Ports, message: Message, rows: RunRows) -> RunHeader | None:
    """The header of a run that is there, or begins with this message. None of a deleted one.

    Raises `TransientError` when the message came before the start that it is about.
    """
    header = rows.header
    if header is None and isinstance(message, ChildReported | ChildNoted):
        return None  # a parent has a header before its child: this one was deleted
    if header is None:
        if not isinstance(message, StartRun):
            raise TransientError(f"run {message.run_id!r} has no header yet")
        header = await ports.store.put_header(header_of(message))
    if header.deleted_at is None:
        return header
    # Also what somebody put who was late: nobody else knows of it.
    await deletion.erase(ports, header, rows.commits)
    return None


async def made_ready(
    turn: TurnContext, message: Message, commits: Sequence[Commit]
) -> Ready | TurnEnd:
    """The run as it goes on, or how its turn ended, for it does not."""
    if deletion.is_wanted(turn.state, turn.header, message):
        return await _delete(turn, message, commits)
    run = Ready(turn, [event for commit in commits for event in commit.events])
    if turn.state.terminal:
        request = wanted_retry(turn.state, turn.header, message)
        if request is None:
            return await _leave_ended(turn, message)
        run = await _reopen(run, request)
    if forking.is_behind(run.turn):
        return await _begin_fork(run)
    return run


async def _delete(turn: TurnContext, message: Message, commits: Sequence[Commit]) -> TurnEnd:
    if not turn.settled and turn.state.status != "deleted":
        await settle.tell_others(turn)
    await deletion.delete(turn, message, commits)
    return TurnEnd.DELETED


async def _leave_ended(turn: TurnContext, message: Message) -> TurnEnd:
    """Make sure of what a run leaves that has ended."""
    await settle.close_late(turn)
    if turn.state.continued is not None and turn.header.paused:
        await continuing.pause_next(turn)
    await settle.write_header(turn)
    if not turn.settled:
        await settle.tell_others(turn)
    if turn.state.continued is not None:
        await continuing.forward(turn, message)
    return TurnEnd.NOTHING


async def _reopen(run: Ready, request: RetryRequest) -> Ready:
    if not run.turn.settled:
        await settle.tell_others(run.turn)  # of this end, which the log forgets then
    turn, events = await control.reopen(run.turn, request)
    return Ready(turn, [*run.log, *events])


async def _begin_fork(run: Ready) -> Ready | TurnEnd:
    try:
        copied = await forking.copy(run.turn)
    except ForkRefused as error:
        await forking.refuse(run.turn)
        await settle.finish(run.turn, None, Raised(error), None)
        return TurnEnd.ENDED
    # What the copies say was begun, this run has not begun: its children are to be started.
    return Ready(replace(run.turn, settled=False), [*run.log, *copied])
