"""Deleting a stream run: what goes with the run that owns it.

Its subscriptions are runs. They have to have ended before anything of it goes; then each is deleted
as any run is, by a message, before the rows of the stream run go, and the owner's log last. That
log names them, so whoever begins the deletion again finds them.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepwell.core.events import ChildStarted, Commit
from stepwell.core.messages import CancelRun, DeleteRun
from stepwell.core.records import RunHeader
from stepwell.core.signals import StreamKey, is_subscription
from stepwell.engine.ports import Ports, TransientError


async def end_subscriptions(ports: Ports, owner: RunHeader, commits: Iterable[Commit]) -> None:
    """Make sure that no subscription of a stream run goes on. Raises `TransientError` if one does.

    They were cancelled when their owner ended; now they end without their code having a say.
    """
    left = [
        header
        for run_id in _subscriptions(owner, commits)
        if (header := await ports.store.get_header(run_id)) and not header.status.terminal
    ]
    if not left:
        return
    for header in left:
        request = f"{owner.run_id}/deleted"
        reason = "its stream run is deleted"
        await ports.queue.send(
            CancelRun(run_id=header.run_id, request_id=request, reason=reason, force=True)
        )
    raise TransientError(f"run {owner.run_id!r}: {len(left)} of its subscriptions have not ended")


async def erase_stream(ports: Ports, owner: RunHeader, commits: Iterable[Commit]) -> None:
    """Delete what a deleted run owned as a stream run, if it did. Repeatable."""
    if owner.stream_run is None or is_subscription(owner.run_id):
        return
    for run_id in _subscriptions(owner, commits):
        header = await ports.store.get_header(run_id)
        if header is not None and header.deleted_at is None:
            await ports.queue.send(
                DeleteRun(
                    run_id=run_id, request_id=f"{owner.run_id}/deleted", after=header.last_event
                )
            )
    await ports.streams.erase(StreamKey(owner.workflow, owner.stream_run))


def _subscriptions(owner: RunHeader, commits: Iterable[Commit]) -> list[str]:
    """The runs of all subscriptions that a log tells of, in every life of their owner."""
    if owner.stream_run is None or is_subscription(owner.run_id):
        return []
    found = {
        event.run_id: None
        for commit in commits
        for event in commit.events
        if isinstance(event, ChildStarted) and is_subscription(event.run_id)
    }
    return list(found)
