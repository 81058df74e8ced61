"""The sweep: what sees to runs that no message will wake any more.

Two things leave a run behind. A message that could not be handled became a dead letter: what it
promised is made true, as far as rows can tell, and its run is marked STUCK, with the message on the
mark, so that waking the run sends it again. Or a message got lost on its way: whoever waits for
longer than it can take is woken, and the turn finds out what came of it.

Nothing here decides for a run. All of it may be done twice, late, or by several at once; a call
that is cut short is simply made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import ValidationError

from stepwell.core.decide import answer, entry_of
from stepwell.core.messages import (
    CancelRun,
    DeleteRun,
    HookDecided,
    InboxPut,
    Message,
    RetryRun,
    StartRun,
    StepMessage,
    TimerDue,
    Wake,
)
from stepwell.core.records import Attention, Millis, RunHeader
from stepwell.engine.headers import header_of
from stepwell.engine.ports import Ports, TransientError
from stepwell.engine.retrying import ask_retry

_LOG = logging.getLogger("stepwell.engine")
#: How late a wake-up may be without anything being wrong: a scheduler's minute, time in the queues.
GRACE: Millis = 120_000
#: The longest reason that a mark carries, in characters.
LONGEST_REASON = 1_000
#: Bytes of a body that a mark carries; longer ones are to be found with the dead letters alone.
_LONGEST_ON_MARK = 32_768
_ROUNDS = 3
_RUNS = 500
#: Runs whose deletion is asked for in one sweep.
_EXPIRED = 200
#: After how long a deletion that failed is asked for again.
_DELETED_AGAIN: Millis = 86_400_000
#: More than runs, for some may be of runs that are stuck, and these are not woken.
_HOOKS = 2_000
#: What is left of the time when nobody else is woken.
_RESERVE: Millis = 10_000
_MINUTE: Millis = 60_000
#: A wait that is overdue by so many minutes, or more, is not seen to in each of them.
_SELDOM = 8
_MOST_SELDOM = 64


@dataclass(slots=True)
class Found:
    """What a sweep found: the longest that a wait is overdue, and how many runs were woken.

    It is added to while the sweep goes on.
    """

    oldest: Millis = 0
    woken: int = 0


class Sweep:
    """Sees to the runs of one deployment. It holds no data of any run."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def wake_overdue(self, time_left: Callable[[], Millis]) -> Found:
        """Wake the runs that should have been woken long ago, as far as the time allows.

        To be called about once a minute. A lost message is rare, so this is a net. A wait may also
        be overdue since the workers cannot keep up, and then wake-ups in every minute would make
        that worse: the longer it has been overdue, the more seldom its run is woken. Runs that are
        marked STUCK are not: they would only fail again.
        """
        now = self._ports.clock.now()
        found = Found()
        woken: set[str] = set()
        for header in await self._ports.store.overdue_runs(now - GRACE, _RUNS):
            if time_left() < _RESERVE:
                break
            found.oldest = max(found.oldest, now - (header.due or now))
            if _run_is_to_be_woken(header, now):
                await self._wake(header.run_id, now, woken)
        for row in await self._ports.store.overdue_hooks(now - GRACE, _HOOKS):
            if time_left() < _RESERVE:
                break
            late = now - (row.expires_at or now)
            if await self._may_wake(row.run_id):
                found.oldest = max(found.oldest, late)
                if _is_time(late):
                    await self._wake(row.run_id, now, woken)
        found.woken = len(woken)
        if woken:
            _LOG.warning(
                "%d runs were woken for overdue waits, the oldest since %d ms",
                found.woken,
                found.oldest,
                extra={"run_ids": sorted(woken)[:20]},
            )
        return found

    async def delete_expired(self, time_left: Callable[[], Millis]) -> int:
        """Have ended runs deleted that were kept for as long as their end said. Returns how many.

        At most `_EXPIRED` at a time: the others wait for the next sweep. One that was retried in
        the meantime is not deleted, for its end is another one then.
        """
        now = self._ports.clock.now()
        deleted = 0
        for header in await self._ports.store.expired_runs(now, _EXPIRED):
            if time_left() < _RESERVE:
                break
            await self._ports.queue.send(
                DeleteRun(
                    run_id=header.run_id,
                    request_id=f"expired at minute {now // _MINUTE}",
                    after=header.last_event,
                )
            )
            deleted += 1
        return deleted

    async def take_dead_letter(
        self, run_id: str, message: Message | StepMessage | None, *, reason: str, body: str
    ) -> bool:
        """Make true what a message promised and mark its run. Whether the run is marked.

        `message` is what the `body` says, None when nobody here can read it. `reason` says why it
        is a dead letter and what to do. A run that has ended, or is not there, needs no mark; one
        that has ended is woken once, for other runs may not have been told. What code
        does not fit stays BLOCKED, for publishing code wakes these, and carries the message.
        """
        await self._make_true(message)
        if not isinstance(message, Wake):
            await self._have_others_told(run_id)
        return await self._mark(run_id, reason[:LONGEST_REASON], body)

    async def send_timer(self, timer: TimerDue) -> bool:
        """Send a timer that never got into the run queue. Whether it is due, and so was sent.

        One that is not due is none of ours: timers are sent when they are.
        """
        if timer.due > self._ports.clock.now():
            return False
        await self._ports.queue.send(timer)
        return True

    async def _make_true(self, message: Message | StepMessage | None) -> None:
        """Write the row that a message is sufficient for, where its sender may not have."""
        store = self._ports.store
        match message:
            case StartRun():
                await store.put_header(header_of(message))
            case HookDecided():
                await store.decide_hook(message.run_id, message.hook_id, answer(message))
            case CancelRun():
                await store.request_cancel(message.run_id)
            case RetryRun():
                await ask_retry(self._ports, message)
            case InboxPut():
                await store.put_inbox(entry_of(message))
            case DeleteRun():
                await self._have_deleted_again(message)
            case _:  # the others are about rows that were there before them
                pass

    async def _have_deleted_again(self, message: DeleteRun) -> None:
        """See to a deletion that was accepted, and failed: as one of a run whose time will be over.

        Not at once, and not each minute: it may fail as often as it is asked for.
        """
        header = await self._ports.store.get_header(message.run_id)
        if header is None or header.deleted_at is not None or header.last_event != message.after:
            return
        again = self._ports.clock.now() + _DELETED_AGAIN
        await self._ports.store.update_header(replace(header, kept_until=again), over=header)

    async def _have_others_told(self, run_id: str) -> None:
        """Wake a run that has ended: its children, parent or successor may count on that."""
        header = await self._ports.store.get_header(run_id)
        if header is not None and header.status.terminal and header.deleted_at is None:
            await self._ports.queue.send(Wake(run_id=run_id, cause="a dead letter"))

    async def _mark(self, run_id: str, reason: str, body: str) -> bool:
        now = self._ports.clock.now()
        kept = body if len(body.encode()) <= _LONGEST_ON_MARK else None
        for _ in range(_ROUNDS):
            header = await self._ports.store.get_header(run_id)
            if header is None or header.status.terminal:
                _LOG.info("run %s has ended or is not there: nothing to mark", run_id)
                return False
            # One that stands says more: the engine wrote it while the cause was at hand.
            note = header.note or Attention(kind="STUCK", reason=reason, since=now)
            marked = header.noted(replace(note, message=kept or note.message))
            marked = replace(marked, updated_at=now)
            # A turn may be going on, and its word on the header is the last one.
            if await self._ports.store.update_header(marked, over=header):
                return True
        raise TransientError(f"run {run_id!r} goes on while it is marked")

    async def _may_wake(self, run_id: str) -> bool:
        """Not what is stuck: it would fail at every sweep."""
        try:
            header = await self._ports.store.get_header(run_id)
        except ValidationError:  # of this row alone; the turn of whoever wakes it tells
            _LOG.error("the header of run %s cannot be read", run_id)
            return False
        return header is not None and (header.note is None or header.note.kind != "STUCK")

    async def _wake(self, run_id: str, now: Millis, woken: set[str]) -> None:
        if run_id not in woken:
            cause = f"overdue at minute {now // _MINUTE}"
            await self._ports.queue.send(Wake(run_id=run_id, cause=cause))
            woken.add(run_id)


def reason_of(message: Message | StepMessage | None, queue: str) -> str:
    """Why a message that came to its end in a queue is a dead letter, for the mark on its run."""
    if message is None:
        return (
            f"a message in {queue} cannot be read by this version; deploy one that can, "
            "and wake the run"
        )
    return (
        f"a message ({message.type}) was delivered too often and its work never ended; "
        "see the log, mend the cause and wake the run"
    )


def _run_is_to_be_woken(header: RunHeader, now: Millis) -> bool:
    times = [
        wait.until for wait in header.waiting if wait.kind != "hook" and wait.until is not None
    ]
    if times and now - min(times) > GRACE:
        return _is_time(now - min(times))
    # Nothing says that the message is lost: it may wait in a queue behind very many others, and the
    # turn would send it once more. So twice at first, then again in every 64 minutes.
    return (now - (header.due or now)) // _MINUTE % _MOST_SELDOM in (2, 3)


def _is_time(late: Millis) -> bool:
    """Whether a wait that is so late is to be seen to: four times while its lateness doubles."""
    minutes = late // _MINUTE
    if minutes < _SELDOM:
        return True
    return minutes % min(1 << (minutes.bit_length() - 3), _MOST_SELDOM) == 0
