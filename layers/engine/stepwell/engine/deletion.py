"""Deleting a run that has ended, in an order that a crash between any two writes leaves right.

    the log says so → the header becomes a tombstone → values → rows, the log's last

From the first of these on, whatever wakes the run goes on with it. The log decides between a
deletion and a retry: both have to be its next event. The tombstone, and an empty commit in the
place of each one, stay until no message of the run can be under way any more: starts, answers and
turns that come late find them and change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from stepwell.core.events import Commit, MapStarted, RunDeleted
from stepwell.core.map_layout import Layout
from stepwell.core.map_rows import TOP, ShardKey
from stepwell.core.messages import DeleteRun
from stepwell.core.records import REMEMBERED, RunHeader, RunStatus, tombstone
from stepwell.core.state import RunState
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Ports
from stepwell.engine.stream_deletion import end_subscriptions, erase_stream
from stepwell.engine.turn_context import TurnContext
from stepwell.engine.values import owner_of

_LOG = logging.getLogger("stepwell.engine")
_STATUS = {
    "RunCompleted": RunStatus.COMPLETED,
    "RunFailed": RunStatus.FAILED,
    "RunCancelled": RunStatus.CANCELLED,
    "RunContinued": RunStatus.CONTINUED,
}


def is_wanted(state: RunState, header: RunHeader, message: object) -> bool:
    """Whether a message asks for the deletion of the run as it stands, or it has begun.

    A retry that was accepted before comes first.
    """
    if state.status == "deleted":
        return True
    if header.retry is not None and header.retry.after == state.last:
        return False
    return isinstance(message, DeleteRun) and state.terminal and message.after == state.last


async def delete(turn: TurnContext, message: object, commits: Sequence[Commit]) -> None:
    """Delete the run, whose log is `commits`. Raises `Fenced` when it goes on instead."""
    state, journal = turn.state, turn.journal
    if state.status != "deleted":
        assert isinstance(message, DeleteRun)
        await end_subscriptions(turn.ports, turn.header, commits)
        journal.record(
            RunDeleted(at=journal.now(), request_id=message.request_id, actor=message.actor)
        )
        await journal.flush()
        _LOG.info("run %s is deleted, by request %s", turn.run_id, message.request_id)
    for alarm in state.alarms():
        await turn.ports.timers.cancel(turn.run_id, alarm.wait_id, alarm.arm)
    # By the log: the header may lag behind it.
    ended = replace(
        turn.header,
        last_event=state.last,
        status=_ended_as(commits),
        continued_to=None if state.continued is None else state.continued.next,
    )
    left = tombstone(ended, journal.now())
    if not await turn.ports.store.bury(left):
        raise Fenced(f"run {turn.run_id!r} goes on while it is deleted")
    await erase(turn.ports, left, commits)


def _ended_as(commits: Sequence[Commit]) -> RunStatus:
    """How a run ended, as its log says: somebody may have just asked for a retry on its header."""
    events = (event for commit in reversed(commits) for event in reversed(commit.events))
    return next(_STATUS[event.type] for event in events if event.type in _STATUS)


def shards_in(run_id: str, commits: Iterable[Commit]) -> list[ShardKey]:
    """The shards of all dispatched maps that a log tells of, with the rows at their top."""
    found: list[ShardKey] = []
    for commit in commits:
        for order, event in enumerate(commit.events, commit.first):
            if isinstance(event, MapStarted) and event.inputs is not None:
                layout = Layout(event.total, event.concurrency)
                key = ShardKey(run_id, event.map, order, TOP)
                found += [key, *(key._replace(shard=shard) for shard in range(layout.shards))]
    return found


async def erase(ports: Ports, left: RunHeader, commits: Sequence[Commit]) -> None:
    """Delete whatever is there of a run but its tombstone; `commits` are what its log still is.

    The log goes last, so while anything else is there it tells of it.
    """
    await erase_stream(ports, left, commits)
    shards = shards_in(left.run_id, commits)
    await ports.blobs.delete_all(owner_of(left.run_id))
    await ports.store.erase(left.run_id, left.kept_until or ports.clock.now() + REMEMBERED, shards)
