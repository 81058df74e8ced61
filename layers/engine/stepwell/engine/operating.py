"""What a caller asks of a run that is there: that it ends, pauses, goes on, or is tried again.

What takes effect by a message is sent before its row is written: whoever dies in between has sent a
message that is sufficient. A pause is one row and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from stepwell.core.ids import check_note
from stepwell.core.messages import CancelRun, DeleteRun, ResumeRun, RetryRun, Wake
from stepwell.core.records import Attention, GuardChange, RunHeader, RunStatus
from stepwell.core.signals import is_subscription
from stepwell.engine.control import send_kept
from stepwell.engine.headers import found_run, last_link
from stepwell.engine.polling import poll
from stepwell.engine.ports import Ports, TransientError
from stepwell.engine.retrying import ask_retry
from stepwell.errors import (
    DurationLike,
    NotRetryable,
    ResultTimeout,
    RunBlocked,
    RunEnded,
    RunNotEnded,
    RunNotFound,
    UsageError,
)

#: How often a note is written anew because the header went on meanwhile.
_ROUNDS = 5


class Operating:
    """The runs of one deployment, as those see them who look after them. See `Client`."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def _header(self, run_id: str) -> RunHeader:
        """The run, or that which goes on in its place."""
        return found_run(await last_link(self._ports, run_id), run_id)

    async def cancel(
        self, run_id: str, reason: str | None, actor: str | None, *, force: bool
    ) -> RunHeader:
        """Ask for a run to be cancelled. The run as it was found."""
        check_note("reason", reason)
        check_note("actor", actor)
        header = await self._header(run_id)
        await self._ports.queue.send(
            CancelRun(
                run_id=header.run_id,
                request_id=self._ports.ids.new_id(),
                reason=reason,
                actor=actor,
                force=force,
            )
        )
        await self._ports.store.request_cancel(header.run_id)
        return header

    async def end(
        self, asked: RunHeader, timeout: DurationLike | None, *, force: bool
    ) -> RunStatus:
        """Wait for a run to end, which was as `asked` when it was told to."""
        header = asked

        async def ended() -> bool:
            nonlocal header
            header = await self._header(asked.run_id)
            if header.status.terminal and header.continued_to is None:
                return True
            note = None if header.paused else header.attention
            if note is not None and not force and header.updated_at > asked.updated_at:
                raise RunBlocked(header.run_id, note.reason)
            return False

        if not await poll(ended, timeout):
            raise ResultTimeout(asked.run_id, f"has not ended within {timeout}; the cancel stands")
        return header.status

    async def pause(self, run_id: str, reason: str | None, actor: str | None) -> None:
        """Note on the header that the run is paused."""
        check_note("reason", reason)
        check_note("actor", actor)
        request_id = self._ports.ids.new_id()
        for _ in range(_ROUNDS):
            header = await self._header(run_id)
            if header.status.terminal:
                raise RunEnded(header.run_id, header.status, "fork it, or retry it if it failed")
            if header.paused:
                return
            now = self._ports.clock.now()
            note = Attention(
                kind="PAUSED",
                reason=reason or "paused",
                since=now,
                request_id=request_id,
                actor=actor,
                before=header.attention,
            )
            paused = replace(header, attention=note, updated_at=max(now, header.updated_at))
            if await self._ports.store.update_header(paused, over=header):
                return
        raise TransientError(f"run {run_id!r} goes on while it is to be paused")

    async def resume(self, run_id: str) -> bool:
        """Let a paused run go on. Whether it was paused."""
        for _ in range(_ROUNDS):
            header = await self._header(run_id)
            if header.status.terminal:
                raise RunEnded(header.run_id, header.status, "fork it, or retry it if it failed")
            if not header.paused:
                return False
            assert header.attention is not None
            await self._ports.queue.send(
                ResumeRun(
                    run_id=header.run_id,
                    request_id=self._ports.ids.new_id(),
                    pause=header.attention.request_id or "",
                )
            )
            await send_kept(self._ports, header.note)
            resumed = replace(header, attention=header.note)
            if await self._ports.store.update_header(resumed, over=header):
                return True
        raise TransientError(f"run {run_id!r} goes on while it is to be resumed")

    async def retry(
        self, run_id: str, actor: str | None, change: GuardChange | None = None
    ) -> None:
        """Ask for a run that has ended to go on."""
        check_note("actor", actor)
        header = found_run(await self._ports.store.get_header(run_id), run_id)
        if not header.status.terminal:
            raise RunNotEnded(run_id)
        _refuse_subscription(header)
        if header.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
            raise NotRetryable(run_id, header.status.value)
        message = RetryRun(
            run_id=run_id,
            request_id=self._ports.ids.new_id(),
            after=header.last_event,
            actor=actor,
            change=change,
        )
        await self._ports.queue.send(message)
        await ask_retry(self._ports, message)

    async def delete(self, run_id: str, actor: str | None) -> None:
        """Ask for a run that has ended to be deleted."""
        check_note("actor", actor)
        header = await self._ports.store.get_header(run_id)
        if header is None:
            raise RunNotFound(run_id)
        if not header.status.terminal:
            raise RunNotEnded(run_id)
        _refuse_subscription(header)
        await self._ports.queue.send(
            DeleteRun(
                run_id=run_id,
                request_id=self._ports.ids.new_id(),
                after=header.last_event,
                actor=actor,
            )
        )

    async def wake(self, run_id: str) -> None:
        """Have a run looked at again."""
        header = await self._ports.store.get_header(run_id)
        header = found_run(header, run_id)
        await self._ports.queue.send(Wake(run_id=run_id, cause=self._ports.ids.new_id()))
        # Second: should it fail again, the note about it is the last word on the header.
        await send_kept(self._ports, header.note)


def _refuse_subscription(header: RunHeader) -> None:
    """Raise `UsageError` for a run that is not begun anew, and not deleted, by itself."""
    if is_subscription(header.run_id) and header.parent is not None:
        raise UsageError(
            f"run {header.run_id!r} is a subscription: it goes with its stream run, "
            f"which is run {header.parent.run_id!r}"
        )
