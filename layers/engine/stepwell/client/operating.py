"""Operating runs: ending them, holding them, letting them go on, deleting them."""

from __future__ import annotations

from stepwell.authoring.guards import Chain, guard_change
from stepwell.core.durations import to_millis
from stepwell.core.records import GuardChange, RunStatus
from stepwell.engine.inboxes import Inboxes
from stepwell.engine.operating import Operating
from stepwell.errors import DurationLike


class OperatingCalls:
    """The part of a client that ends runs, holds them, lets them go on and deletes them."""

    _operating: Operating
    _inboxes: Inboxes

    async def cancel(
        self,
        run_id: str,
        reason: str | None = None,
        *,
        actor: str | None = None,
        wait: bool | DurationLike = False,
        force: bool = False,
    ) -> RunStatus:
        """Ask for a run to be cancelled; it ends cancelled unless it was ending already.

        The workflow gets `CancelledError` where it waits, so that its cleanup runs; a paused run
        goes on for that. With `force` the run ends without its code having a say: for one whose
        code is gone, or will not end. With `wait` (True, or how long at most) this returns when the
        run has ended. Returns its status by then: of a cancel and another end, one has won. Of a
        run that has gone on as a new one, the last link is cancelled, also if it goes on again
        meanwhile.

        Raises `RunNotFound`; `RunBlocked` when it waits for a run that cannot go on;
        `ResultTimeout` when the run has not ended in time: the cancel stands.
        """
        if not isinstance(wait, bool):
            to_millis(wait)  # a cancel that was asked for wrongly is not asked for
        header = await self._operating.cancel(run_id, reason, actor, force=force)
        if wait is False or header.status.terminal:
            return header.status
        return await self._operating.end(header, None if wait is True else wait, force=force)

    async def pause(
        self, run_id: str, reason: str | None = None, *, actor: str | None = None
    ) -> None:
        """Let a run begin nothing more until it is resumed; pausing it twice is pausing it once.

        Steps that are under way end and are recorded; answers and passed deadlines are recorded
        too, so deadlines go on. A cancel ends the pause. Raises `RunNotFound`, `RunEnded`.
        """
        await self._operating.pause(run_id, reason, actor)

    async def resume(
        self,
        run_id: str,
        *,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
        actor: str | None = None,
    ) -> None:
        """Let a paused run go on; one that is not paused, look again for input.

        The end of a pause wakes the run; a note that it had before, that it is blocked or stuck,
        stands again. Otherwise steps and workflows that raised `Suspend` look again, whether there
        is input or not; a run that waits for nothing of that kind goes on as it is.

        With guards, none being an empty list, the run's steps have these from here on; those before
        or after a step that are not given stay as the run has them. Raises `RunNotFound`,
        `RunEnded`, and `UsageError` on a guard that is not declared.
        """
        await self.go_on(run_id, guard_change(prepare_step, review_step, None), actor=actor)

    async def go_on(
        self, run_id: str, change: GuardChange | None, *, actor: str | None = None
    ) -> None:
        """As `resume`; guards by the names that a run keeps."""
        if not await self._operating.resume(run_id) or change is not None:
            await self._inboxes.resume(run_id, actor, change)

    async def retry(
        self,
        run_id: str,
        *,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
        actor: str | None = None,
    ) -> None:
        """Let a run that failed or was cancelled go on, as the same run; durable when it returns.

        What had succeeded stays and is not run again. What ended the run is done anew, and so is
        what the code asked for after that; steps that had not ended begin anew. The code may have
        been mended in between. Guards are as those of `resume`. Raises `RunNotFound`,
        `RunNotEnded`, `NotRetryable`, and `UsageError` on a guard that is not declared.
        """
        await self.begin_again(run_id, guard_change(prepare_step, review_step, None), actor=actor)

    async def begin_again(
        self, run_id: str, change: GuardChange | None, *, actor: str | None = None
    ) -> None:
        """As `retry`; guards by the names that a run keeps."""
        await self._operating.retry(run_id, actor, change)

    async def delete(self, run_id: str, *, actor: str | None = None) -> None:
        """Delete a run that has ended, with its history, its hooks, its output and its values.

        A worker does it; when this returns it will be done. What stays for 30 days is that there
        was such a run: until then its id and its idempotency key cannot be used again. Deleting it
        once more changes nothing. Runs that were forked from it, and its parent, keep what they
        have of it. Raises `RunNotFound`, `RunNotEnded`.
        """
        await self._operating.delete(run_id, actor)

    async def wake(self, run_id: str) -> None:
        """Have a run looked at again, as after a deployment of code that fits. Never harmful.

        A stuck run gets the message that could not be handled once more. Raises `RunNotFound`.
        """
        await self._operating.wake(run_id)
