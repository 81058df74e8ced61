"""Whether a run rests: it has ended, or only somebody outside or a time far off can bring it on.

Its children count, and so does the run that goes on in its place: what they wait for, it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.client import Client, PendingHook
from stepwell.core.events import HookNotifyFailed
from stepwell.core.records import Millis, RunHeader, RunStatus, Wait
from stepwell.core.state import RunState, fold
from stepwell.engine.headers import last_link
from stepwell.engine.ports import Ports
from stepwell.engine.progress import goes_on_elsewhere


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands: the hooks that it has open, those of them that nobody was told of.

    `header` is that of the last run of its chain, None while there is none.
    """

    header: RunHeader | None
    hooks: tuple[PendingHook, ...]
    unnotified: tuple[HookNotifyFailed, ...]
    rests: bool


@dataclass(frozen=True, slots=True)
class _Log:
    last_event: int
    state: RunState
    unnotified: tuple[HookNotifyFailed, ...]
    children: dict[str, str]


class Watcher:
    """Looks at runs. It remembers what it read of each log last."""

    def __init__(self, client: Client, ports: Ports) -> None:
        self._client = client
        self._ports = ports
        self._logs: dict[str, _Log] = {}

    async def look(self, run_id: str, patience: Millis) -> Standing:
        """How a run stands. One that goes on by itself within `patience` does not rest."""
        hooks = await self._open_hooks(run_id)
        header = await last_link(self._ports, run_id)
        if header is None or header.status is RunStatus.CONTINUED:
            return Standing(header, hooks, (), rests=False)
        if header.run_id != run_id:
            return await self.look(header.run_id, patience)
        if header.status.terminal:
            return Standing(header, hooks, (), rests=True)
        log = await self._log(header)
        children = [
            await self.look(log.children[wait.id], patience)
            for wait in header.waiting
            if wait.kind == "child" and wait.id in log.children
        ]
        rests = await self._rests_alone(header, hooks, log, patience) and all(
            # One that has ended is about to wake its parent.
            each.rests and not (each.header is not None and each.header.status.terminal)
            for each in children
        )
        return Standing(
            header,
            (*hooks, *(hook for each in children for hook in each.hooks)),
            (*log.unnotified, *(failed for each in children for failed in each.unnotified)),
            rests=header.attention is not None or rests,
        )

    async def _rests_alone(
        self, header: RunHeader, hooks: tuple[PendingHook, ...], log: _Log, patience: Millis
    ) -> bool:
        # What items of a map wait for stands beside it, but for those that are made elsewhere.
        waits = [wait for wait in header.waiting if wait.kind != "map"]
        if not waits or header.cancel_requested:
            return False
        end = self._ports.clock.now() + patience
        expiries = {hook.hook_id: hook.expires_at for hook in hooks}
        if not all(_waits_beyond(wait, expiries, end) for wait in waits):
            return False
        if any(failed.due <= end for failed in log.unnotified):
            return False
        return not await goes_on_elsewhere(self._ports.maps, header.run_id, log.state)

    async def _log(self, header: RunHeader) -> _Log:
        known = self._logs.get(header.run_id)
        if known is not None and known.last_event == header.last_event:
            return known
        rows = await self._ports.store.load(header.run_id)
        events = [event for commit in rows.commits for event in commit.events]
        state = fold(events)
        failures = {each.hook: each for each in events if isinstance(each, HookNotifyFailed)}
        log = _Log(
            header.last_event,
            state,
            tuple(
                each for each in failures.values() if state.hooks[each.hook].status == "notifying"
            ),
            {child.id: child.run_id for child in state.open_children()},
        )
        self._logs[header.run_id] = log
        return log

    async def _open_hooks(self, run_id: str) -> tuple[PendingHook, ...]:
        hooks: list[PendingHook] = []
        cursor: str | None = None
        while True:
            page = await self._client.list_hooks(run_id=run_id, limit=200, cursor=cursor)
            hooks += page.items
            cursor = page.cursor
            if cursor is None:
                return tuple(hooks)


def _waits_beyond(wait: Wait, expiries: dict[str, Millis | None], end: Millis) -> bool:
    """Whether nothing ends a wait by itself before a time; children are looked at on their own."""
    if wait.kind == "step":
        return False  # it is being worked on, as an inline one would be
    if wait.kind == "hook" and wait.id not in expiries:
        return False  # it is decided: the turn that takes the decision comes
    due = expiries[wait.id] if wait.kind == "hook" else wait.until
    return due is None or due > end
