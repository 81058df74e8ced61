"""What the other process of a test does: `python other_process.py <deed> <file> [arguments]`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

from stepwell.adapters.local.clock import SkippingClock
from stepwell.adapters.local.database import Database
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.core.records import Decision, HookStatus
from stepwell.errors import UsageError
from tests.contract.given import START, cause, commit


def _open(path: str) -> LocalPorts:
    return open_ports(path, clock=SkippingClock(START))


def _say(*words: object) -> None:
    print(*words, flush=True)


def open_file(path: str) -> None:
    """Open the file once everybody is ready to."""
    _say("ready")
    sys.stdin.readline()
    with Database(path):
        _say("opened")


def fork(path: str) -> None:
    """Open the file and use it in a child; say how that ended."""
    _say("ready")
    sys.stdin.readline()
    with Database(path) as database:
        child = os.fork()
        if child == 0:
            try:
                database.query("SELECT 1")
            except UsageError:
                os._exit(7)
            os._exit(1)
        _say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


async def append(path: str) -> None:
    """Append for ever; say each number once it stands."""
    with _open(path) as local:
        for first in count(1):
            if await local.store.append("run", commit(first, fill=3000)):
                _say(first)


async def decide(path: str, who: str) -> None:
    """Decide a hundred hooks; say who decided each."""
    with _open(path) as local:
        _say("ready")
        sys.stdin.readline()
        for n in range(100):
            decision = Decision(
                status=HookStatus.RECEIVED, decision_id=f"{who}-{n}", decided_at=START
            )
            row = await local.store.decide_hook("run", f"h{n}", decision)
            assert row is not None
            _say(row.decision_id)


def _handle(folder: Path, group: str, number: str) -> None:
    """Write the number to the group's log, alone in the group."""
    lock = folder / group
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    with (folder / f"{group}.log").open("a") as log:
        log.write(f"{number}\n")
    lock.unlink()


async def pull(path: str, folder: str) -> None:
    """Receive until nothing is left; say each message; fail when a group is open elsewhere."""
    with _open(path) as local:
        _say("ready")
        sys.stdin.readline()
        while await local.queue.depth():
            delivery = await local.queue.receive()
            if delivery is None:
                continue
            group, number = cause(delivery).split("-")
            _handle(Path(folder), group, number)
            assert await local.queue.delete(delivery)
            _say(cause(delivery))


async def fire(path: str) -> None:
    """Fire what is due; say how much it was."""
    with _open(path) as local:
        _say("ready")
        sys.stdin.readline()
        _say(await local.timers.fire_due(local.queue))


DEEDS: dict[str, Callable[..., Coroutine[Any, Any, None] | None]] = {
    "append": append,
    "decide": decide,
    "fire": fire,
    "fork": fork,
    "open_file": open_file,
    "pull": pull,
}


if __name__ == "__main__":
    work = DEEDS[sys.argv[1]](*sys.argv[2:])
    if work is not None:
        asyncio.run(work)
