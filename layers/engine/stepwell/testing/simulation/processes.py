"""Processes of a simulation: each takes one piece of work at a time, and may die, freeze or lag.

Every port call of a process stops before it is made and waits for a verdict. So a simulation
decides in which order the calls of all processes are made, and what becomes of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from stepwell.core.records import Millis
from stepwell.engine.ports import Clock, Ids, Ports, RunRows, TransientError
from stepwell.engine.turn import Engine
from stepwell.testing.crashes import Crash

#: Ports whose calls reach the outside.
_OUTSIDE = frozenset(
    {
        *("store", "blobs", "queue", "steps", "maps", "timers"),
        *("streams", "signals", "signal_timers"),
    }
)
#: What calls change, and what they read as `"?…"`. A crash before one that only reads is one after
#: the call before it.
_TOUCHES: dict[str, frozenset[str]] = {
    name: frozenset(touched.split())
    for name, touched in {
        "store.load": "?header ?log ?hooks ?steps ?inbox",
        "store.get_header": "?header",
        "store.put_header": "header",
        "store.update_header": "header",
        "store.request_cancel": "header",
        "store.bury": "header",
        "store.erase": "log hooks steps inbox checkpoints chunks",
        "store.expired_runs": "?header",
        "store.append": "log",
        "store.trim": "log hooks steps",
        "store.get_hook": "?hooks",
        "store.put_hook": "hooks",
        "store.decide_hook": "hooks",
        "store.list_hooks": "?hooks",
        "store.get_step": "?steps",
        "store.put_step": "steps",
        "store.put_inbox": "inbox",
        "store.get_checkpoint": "?checkpoints",
        "store.put_checkpoint": "checkpoints",
        "store.expire_checkpoint": "checkpoints",
        "store.get_chunks": "?chunks",
        "store.put_chunk": "chunks",
        "store.list_runs": "?header",
        "store.get_definition": "?definitions",
        "store.list_definitions": "?definitions",
        "store.publish": "definitions",
        "store.overdue_runs": "?header",
        "store.overdue_hooks": "?hooks",
        "blobs.get": "?blobs",
        "blobs.put": "",
        "blobs.delete_all": "blobs",
        "queue.send": "messages",
        "queue.send_all": "messages",
        "m.delete": "messages",
        "m.give_back": "messages",
        "steps.send": "attempts",
        "s.delete": "attempts",
        "s.give_back": "attempts",
        "steps.send_items": "attempts",
        "maps.put_shard": "maps",
        "maps.get_shard": "?maps",
        "maps.finish": "maps",
        "maps.count": "maps",
        "maps.cancel_shard": "maps",
        "maps.erase_shard": "maps",
        "maps.put_item": "maps",
        "maps.get_item": "?maps",
        "maps.get_items": "?maps",
        "timers.start": "schedules",
        "timers.cancel": "schedules",
        "signals.send": "signals",
        "g.delete": "signals",
        "g.give_back": "signals",
        "signal_timers.schedule": "schedules",
        "signal_timers.cancel": "schedules",
        "streams.head": "?heads",
        "streams.append": "batches",
        "streams.move_head": "heads",
        "streams.read": "?batches",
        "streams.find": "?numbers",
        "streams.remember": "numbers",
        "streams.subscribe": "subscriptions",
        "streams.subscriptions": "?subscriptions",
        "streams.erase": "heads batches numbers subscriptions",
    }.items()
}


class Verdict(StrEnum):
    """What becomes of a port call."""

    DONE = "done"
    #: It is refused for now, and was not made.
    THROTTLED = "throttled"
    #: It is made, and nobody learns of it.
    REPLY_LOST = "reply lost"
    #: It is answered from an index that shows nothing yet.
    STALE = "stale"
    #: It is refused for good, as by a missing permission.
    DENIED = "denied"
    #: The process dies before it, or after it.
    DIES_BEFORE = "dies before"
    DIES_AFTER = "dies after"


class Denied(Exception):
    """A port that is not allowed to work, as AWS's own error would be."""


@dataclass(slots=True, eq=False)
class PortCall:
    """A call that waits for its verdict. `asked` tells calls of one name apart."""

    name: str
    asked: str
    verdict: asyncio.Future[Verdict]

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return any(not each.startswith("?") for each in self.touches)

    @property
    def may_lag(self) -> bool:
        """Whether it reads an index, to find runs."""
        return self.name.startswith("store.overdue_")

    @property
    def touches(self) -> frozenset[str]:
        """What it changes, and what it reads as `"?…"`."""
        return _TOUCHES[self.name]


@dataclass(slots=True, eq=False)
class Process:
    """One process. `learned` is all that it has been told by its ports in its present work."""

    name: str
    loop: asyncio.AbstractEventLoop
    calls: list[PortCall] = field(default_factory=list)
    learned: list[tuple[str, str]] = field(default_factory=list)
    #: All that it reaches the outside by, and the engine that it has made with that.
    outside: Ports | None = None
    engine: Engine | None = None
    work: asyncio.Task[None] | None = None
    what: str = ""
    #: When it is ended from outside, as a function that takes too long is.
    ends_at: Millis | None = None
    frozen: bool = False
    dead: bool = False

    @property
    def busy(self) -> bool:
        """Whether it has work."""
        return self.work is not None and not self.work.done()

    @property
    def label(self) -> str:
        """What it is at, in one name."""
        return f"{self.name} {self.what}"

    def begin(self, what: str, work: Coroutine[Any, Any, None], ends_at: Millis | None) -> None:
        """Take up work. What it has in memory from earlier work, it keeps."""
        assert not self.busy
        self.what, self.ends_at = what, ends_at
        self.learned.clear()
        self.work = self.loop.create_task(work)

    def die(self) -> None:
        """End for good, whatever it is at. Nothing comes from it any more."""
        self.dead = True
        for call in self.calls:
            if not call.verdict.done():
                call.verdict.set_exception(Crash())
        if self.work is not None:
            self.work.cancel()
        self.calls.clear()

    def ports(self, ports: Ports, *, clock: Clock, ids: Ids, paged: bool = False) -> Ports:
        """Ports whose calls wait for their verdicts. With `paged`, a load is no snapshot."""
        gated: dict[str, Any] = {
            each.name: _Gate(getattr(ports, each.name), each.name, self)
            for each in fields(ports)
            if each.name in _OUTSIDE
        }
        if paged:
            gated["store"] = _Paged(gated["store"])
        return Ports(**gated, clock=clock, ids=ids)

    async def call(self, name: str, make: Callable[[], Any], asked: str = "") -> Any:
        """Make a call when its verdict comes. Who asked may be gone by then: it is made anyway."""
        if self.dead:
            raise Crash
        work = self.loop.create_task(self._call(name, make, asked))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(_forget)
            raise

    async def _call(self, name: str, make: Callable[[], Any], asked: str) -> Any:
        call = PortCall(name, asked, self.loop.create_future())
        self.calls.append(call)
        try:
            verdict = await call.verdict
        finally:
            if call in self.calls:
                self.calls.remove(call)
        if verdict is Verdict.THROTTLED:
            self.learned.append((name, verdict))
            raise TransientError(f"{name}: throttled")
        if verdict is Verdict.DENIED:
            self.learned.append((name, verdict))
            raise Denied(f"{name}: not allowed")
        if verdict is Verdict.DIES_BEFORE:
            self.die()
            raise Crash
        result = () if verdict is Verdict.STALE else await make()
        if verdict is Verdict.DIES_AFTER:
            self.die()
        if self.dead:
            raise Crash
        self.learned.append((name, repr(result)))
        if verdict is Verdict.REPLY_LOST:
            raise TransientError(f"{name}: the reply is lost")
        return result


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class _Gate:
    """A port whose calls go through a process."""

    def __init__(self, port: Any, name: str, process: Process) -> None:
        self._port = port
        self._name = name
        self._process = process

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._port, method)
        name = f"{self._name}.{method}"

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._process.call(
                name, lambda: target(*args, **kwargs), repr((args, kwargs))
            )

        return call


class _Paged:
    """A store that reads a run as a paginated query does: others write between the pages."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, method: str) -> Any:
        return getattr(self._store, method)

    async def load(self, run_id: str) -> RunRows:
        """Header and steps and half of the log, then the rest of it, then the hooks."""
        first: RunRows = await self._store.load(run_id)
        half = len(first.commits) // 2
        second: RunRows = await self._store.load(run_id)
        third: RunRows = await self._store.load(run_id)
        commits = (*first.commits[:half], *second.commits[half:])
        return RunRows(header=first.header, commits=commits, hooks=third.hooks, steps=first.steps)
