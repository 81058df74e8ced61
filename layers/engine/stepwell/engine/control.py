"""What others want of a run besides its going on: that it pauses, goes on again, or ends at once.

A pause is a note on the header. Turns of a paused run record what was decided outside, so that no
message is lost, and do nothing else. A cancel ends a pause: its cleanup has to run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from pydantic import ValidationError

from stepwell.core import events as e
from stepwell.core.decide import decided_event, guards_replaced
from stepwell.core.messages import CancelRun, Message, ResumeRun, load_message
from stepwell.core.parts import Alarm
from stepwell.core.records import Attention, HookStatus, Millis, RetryRequest, RunHeader
from stepwell.core.reopening import reopened
from stepwell.engine import settle
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Ports
from stepwell.engine.turn_context import TurnContext

_LOG = logging.getLogger("stepwell.engine")


async def reopen(turn: TurnContext, request: RetryRequest) -> tuple[TurnContext, list[e.Event]]:
    """Begin the next life of a run: its row first, for attempts and answers look at that."""
    header = turn.header
    if header.retry != request:
        header = reopened(header, request, turn.ports.clock.now())
        await _put(turn, header, reopens=True)
    at = turn.journal.now()
    events: list[e.Event] = [
        e.RunRetried(at=at, request_id=request.request_id, actor=request.actor),
        *_closed_late(turn, at),
    ]
    if request.change is not None:
        events.append(guards_replaced(turn.state, request, request.change, at))
    for event in events:
        turn.journal.record(event)
    return replace(turn, header=header, settled=False), events


def _closed_late(turn: TurnContext, at: Millis) -> Iterator[e.Event]:
    """Of rows that were closed after the end, unknown to the log; right after the retry."""
    for row in turn.rows.values():
        closed = row.status is HookStatus.CLOSED and row.hook_id not in turn.state.hooks
        event = decided_event(turn.state, row, at) if closed else None
        if event is not None:
            yield event


def stays_paused(turn: TurnContext, message: Message) -> bool:
    """Whether the run is paused, and neither this message nor a cancel ends that."""
    return turn.header.paused and not (
        turn.state.cancel is not None or _resumes(message, turn.header)
    )


async def hold(turn: TurnContext, before: Alarm | None) -> None:
    """Leave a paused run as it is: what was decided is recorded, and the note stays.

    What is due by now waits for the end of the pause: no timer is set for it.
    """
    await turn.journal.flush()
    await settle.set_alarm(turn, before, turn.state.next_alarm(after=turn.time))
    await settle.write_header(turn, turn.header.attention, last_event=settle.sent_until(turn))


async def lift(turn: TurnContext) -> TurnContext:
    """End the pause of a run: what its note covered is sent again, and stands again."""
    covered = turn.header.note
    await send_kept(turn.ports, covered)
    header = replace(turn.header, attention=covered)
    await _put(turn, header)
    return replace(turn, header=header)


async def send_kept(ports: Ports, note: Attention | None) -> None:
    """Send the message that a note keeps, if it keeps one."""
    if note is not None and note.message is not None:
        with suppress(ValidationError):  # what is no message of ours was in the way, no more
            await ports.queue.send(load_message(note.message))


def _resumes(message: Message, header: RunHeader) -> bool:
    note = header.attention
    return isinstance(message, ResumeRun) and note is not None and note.request_id == message.pause


async def _put(turn: TurnContext, header: RunHeader, *, reopens: bool = False) -> None:
    store = turn.ports.store
    if not await store.update_header(header, over=turn.header, reopens=reopens):
        raise Fenced(f"the header of run {turn.run_id!r} is further on, or was marked meanwhile")


def is_forced(message: Message) -> bool:
    """Whether a message ends its run without its code."""
    return isinstance(message, CancelRun) and message.force
