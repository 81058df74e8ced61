"""All local ports over one file, made at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepwell.adapters.local.blobs import SqliteBlobs
from stepwell.adapters.local.clock import SystemClock, SystemIds
from stepwell.adapters.local.database import Database
from stepwell.adapters.local.maps import SqliteMaps
from stepwell.adapters.local.queue import SqliteQueue
from stepwell.adapters.local.signal_queue import SqliteSignalQueue, SqliteSignalTimers
from stepwell.adapters.local.step_queue import SqliteStepQueue
from stepwell.adapters.local.store import SqliteStore
from stepwell.adapters.local.streams import SqliteStreams
from stepwell.adapters.local.timers import SqliteTimers
from stepwell.core.records import Millis
from stepwell.engine.ports import Clock, Ids, Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPorts:
    """The local adapters by their own types, and as the `Ports` that the engine sees."""

    database: Database
    store: SqliteStore
    blobs: SqliteBlobs
    queue: SqliteQueue
    step_queue: SqliteStepQueue
    timers: SqliteTimers
    signal_queue: SqliteSignalQueue
    signal_timers: SqliteSignalTimers
    ports: Ports

    def __enter__(self) -> LocalPorts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.database.close()


def open_ports(
    path: str | Path,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    visibility: Millis = 150_000,
    max_receive_count: int = 10,
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
    busy_timeout: Millis = 5_000,
) -> LocalPorts:
    """Open the file at `path` (":memory:" for none); by default on the machine's own clock."""
    clock = clock or SystemClock()
    ids = ids or SystemIds()
    database = Database(path, synchronous=synchronous, busy_timeout=busy_timeout)
    store = SqliteStore(database, clock)
    blobs = SqliteBlobs(database)
    queue = SqliteQueue(
        database, clock, ids, visibility=visibility, max_receive_count=max_receive_count
    )
    step_queue = SqliteStepQueue(
        database, clock, ids, visibility=visibility, max_receive_count=max_receive_count
    )
    timers = SqliteTimers(database, clock)
    signal_queue = SqliteSignalQueue(
        database, clock, ids, visibility=visibility, max_receive_count=max_receive_count
    )
    signal_timers = SqliteSignalTimers(database, clock)
    return LocalPorts(
        database=database,
        store=store,
        blobs=blobs,
        queue=queue,
        step_queue=step_queue,
        timers=timers,
        signal_queue=signal_queue,
        signal_timers=signal_timers,
        ports=Ports(
            store=store,
            blobs=blobs,
            queue=queue,
            steps=step_queue,
            maps=SqliteMaps(database),
            timers=timers,
            streams=SqliteStreams(database, clock),
            signals=signal_queue,
            signal_timers=signal_timers,
            clock=clock,
            ids=ids,
        ),
    )
