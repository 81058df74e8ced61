"""One SQLite file, shared by several processes: store, blobs, queue and timers are tables of it.

Rules:

* A statement outside a transaction commits by itself. Where several must hold together they run
  inside `writing()`, which takes the write lock first, so no read in it can be overtaken.
* One connection per `Database`, behind a lock that a transaction holds to its end: any thread may
  use it, none sees another's half. It never waits for more than the lock and the disk, so it is
  used straight from the event loop. It must not cross a fork; that is refused.
* What may work later (locked, busy, disk full, I/O) is raised as `TransientError`.

With `synchronous="NORMAL"` a killed process loses nothing, while a power cut may take the last
commits (never the file); "FULL" waits for the disk at each commit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from stepwell.core.records import Millis
from stepwell.engine.ports import TransientError
from stepwell.errors import StepwellError, UsageError

#: What goes into a statement.
SqlValue = str | int | bytes | None
#: What comes out of one.
Row = tuple[Any, ...]

#: The version of the tables below; a file says in `user_version` which one it has.
SCHEMA_VERSION = 8

_MAKING = threading.Lock()
_OLDEST_SQLITE = (3, 35, 0)  # RETURNING

_TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)

# Each part of a key is a column of its own, so no id can reach into another's range, whatever it
# is made of. `recency` is minus the time of creation: "newest first, then by id" is then one
# ascending index. `size` is what the item weighs against the limits.
_VERSION_2 = """
CREATE TABLE runs (
    run_id TEXT NOT NULL PRIMARY KEY,
    workflow TEXT NOT NULL,
    status TEXT NOT NULL,
    attention TEXT,
    recency INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_time ON runs (recency, run_id);
CREATE INDEX runs_by_workflow ON runs (workflow, recency, run_id);
CREATE INDEX runs_by_status ON runs (status, recency, run_id);
CREATE INDEX runs_by_workflow_and_status ON runs (workflow, status, recency, run_id);
CREATE INDEX runs_by_attention ON runs (attention, recency, run_id) WHERE attention IS NOT NULL;

CREATE TABLE commits (
    run_id TEXT NOT NULL,
    first INTEGER NOT NULL,
    turn TEXT NOT NULL,
    number INTEGER NOT NULL,
    size INTEGER NOT NULL,
    events TEXT NOT NULL,
    PRIMARY KEY (run_id, first)
) WITHOUT ROWID;

CREATE TABLE hooks (
    run_id TEXT NOT NULL,
    hook_id TEXT NOT NULL,
    name TEXT NOT NULL,
    step TEXT,
    key_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    due_at INTEGER,
    schema TEXT,
    status TEXT NOT NULL,
    decision_id TEXT,
    payload TEXT,
    decided_at INTEGER,
    actor TEXT,
    size INTEGER NOT NULL,
    PRIMARY KEY (run_id, hook_id)
) WITHOUT ROWID;
CREATE INDEX hooks_pending ON hooks (created_at, run_id, hook_id) WHERE status = 'PENDING';
CREATE INDEX hooks_pending_by_run ON hooks (run_id, created_at, hook_id) WHERE status = 'PENDING';

CREATE TABLE checkpoints (
    run_id TEXT NOT NULL,
    step TEXT NOT NULL,
    last_event INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, step)
) WITHOUT ROWID;

CREATE TABLE signing_keys (
    place INTEGER NOT NULL PRIMARY KEY,
    key_id TEXT NOT NULL,
    secret BLOB NOT NULL
);

CREATE TABLE chunks (
    run_id TEXT NOT NULL,
    step TEXT NOT NULL,
    position INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    value TEXT,
    last_event INTEGER NOT NULL,
    PRIMARY KEY (run_id, step, position)
) WITHOUT ROWID;

CREATE TABLE blobs (
    sha256 TEXT NOT NULL PRIMARY KEY,
    data BLOB NOT NULL
);

-- Only the oldest message of a group has a `visible_at`: whoever stands behind it cannot come.
CREATE TABLE messages (
    place INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    body TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    visible_at INTEGER,
    receive_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX messages_by_group ON messages (run_id, place);
CREATE INDEX messages_by_time ON messages (visible_at, place) WHERE visible_at IS NOT NULL;

CREATE TABLE sent_bodies (
    run_id TEXT NOT NULL,
    sha256 BLOB NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (run_id, sha256)
) WITHOUT ROWID;
CREATE INDEX sent_bodies_by_time ON sent_bodies (until);

CREATE TABLE dead_letters (
    place INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,
    body TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    receive_count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    died_at INTEGER NOT NULL
);

CREATE TABLE timers (
    run_id TEXT NOT NULL,
    wait_id TEXT NOT NULL,
    arm INTEGER NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (run_id, wait_id, arm)
) WITHOUT ROWID;
CREATE INDEX timers_by_due ON timers (due);
"""

_VERSION_3 = """
CREATE TABLE steps (
    run_id TEXT NOT NULL,
    step TEXT NOT NULL,
    revision INTEGER NOT NULL,
    size INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, step)
) WITHOUT ROWID;

CREATE TABLE step_messages (
    place INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    visible_at INTEGER NOT NULL,
    receive_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX step_messages_by_time ON step_messages (visible_at, place);

CREATE TABLE step_dead_letters (
    place INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    receive_count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    died_at INTEGER NOT NULL
);

CREATE TABLE definitions (
    workflow TEXT NOT NULL,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (workflow, digest)
) WITHOUT ROWID;

CREATE TABLE current_definitions (
    workflow TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL,
    version_order TEXT NOT NULL,
    published_at INTEGER NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;

ALTER TABLE checkpoints ADD COLUMN expires_at INTEGER;
CREATE INDEX checkpoints_by_expiry ON checkpoints (expires_at) WHERE expires_at IS NOT NULL;
"""

# `due` is `RunHeader.due`. A dead letter is taken when its run was told of it; those of an older
# file count as taken, for whoever looked after it has seen to them by other means.
_VERSION_4 = """
ALTER TABLE runs ADD COLUMN due INTEGER;
UPDATE runs SET due = (
    SELECT min(CASE json_extract(value, '$.kind')
        WHEN 'step' THEN json_extract(value, '$.since') + 3600000
        ELSE json_extract(value, '$.until') END)
    FROM json_each(body, '$.waiting') WHERE json_extract(value, '$.kind') <> 'hook')
WHERE status = 'SUSPENDED' AND attention IS NULL;
UPDATE runs SET due = json_extract(body, '$.updated_at') + 3600000
WHERE status = 'SUSPENDED' AND attention IS NULL AND json_array_length(body, '$.waiting') = 0;
CREATE INDEX runs_by_due ON runs (due, run_id) WHERE due IS NOT NULL;
CREATE INDEX hooks_by_deadline ON hooks (expires_at, run_id, hook_id)
WHERE status = 'PENDING' AND expires_at IS NOT NULL;

ALTER TABLE dead_letters ADD COLUMN taken_at INTEGER;
UPDATE dead_letters SET taken_at = died_at;
CREATE INDEX dead_letters_not_taken ON dead_letters (place) WHERE taken_at IS NULL;
ALTER TABLE step_dead_letters ADD COLUMN taken_at INTEGER;
UPDATE step_dead_letters SET taken_at = died_at;
CREATE INDEX step_dead_letters_not_taken ON step_dead_letters (place) WHERE taken_at IS NULL;
"""

_VERSION_5 = """
CREATE TABLE inbox (
    run_id TEXT NOT NULL,
    entry_id TEXT NOT NULL,
    size INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, entry_id)
) WITHOUT ROWID;
ALTER TABLE hooks ADD COLUMN question TEXT;
"""

_VERSION_6 = """
CREATE TABLE map_shards (
    run_id TEXT NOT NULL,
    map TEXT NOT NULL,
    map_order INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, map, map_order, shard)
) WITHOUT ROWID;

CREATE TABLE map_items (
    run_id TEXT NOT NULL,
    map TEXT NOT NULL,
    map_order INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    member INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, map, map_order, shard, member)
) WITHOUT ROWID;
"""

# `kept_until` is that of the header. A deleted run has a status that no list asks for.
_VERSION_7 = """
ALTER TABLE runs ADD COLUMN kept_until INTEGER;
CREATE INDEX runs_by_expiry ON runs (kept_until, run_id) WHERE kept_until IS NOT NULL;
"""

_VERSION_8 = """
CREATE TABLE stream_heads (
    stream TEXT NOT NULL,
    stream_run TEXT NOT NULL,
    last INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    counts TEXT,
    PRIMARY KEY (stream, stream_run)
) WITHOUT ROWID;

CREATE TABLE signal_batches (
    stream TEXT NOT NULL,
    stream_run TEXT NOT NULL,
    first INTEGER NOT NULL,
    batch_id TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (stream, stream_run, first)
) WITHOUT ROWID;

CREATE TABLE signal_numbers (
    stream TEXT NOT NULL,
    stream_run TEXT NOT NULL,
    signal_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (stream, stream_run, signal_id)
) WITHOUT ROWID;
CREATE INDEX signal_numbers_by_time ON signal_numbers (until);

CREATE TABLE subscriptions (
    stream TEXT NOT NULL,
    stream_run TEXT NOT NULL,
    step TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (stream, stream_run, step)
) WITHOUT ROWID;

CREATE TABLE signal_messages (
    place INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    body TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    receive_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX signal_messages_by_owner ON signal_messages (owner, place);

CREATE TABLE signal_holds (
    owner TEXT NOT NULL PRIMARY KEY,
    receipt TEXT NOT NULL,
    held_until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sent_signals (
    owner TEXT NOT NULL,
    signal_id TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (owner, signal_id)
) WITHOUT ROWID;
CREATE INDEX sent_signals_by_time ON sent_signals (until);

CREATE TABLE signal_dead_letters (
    place INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,
    body TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    receive_count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    died_at INTEGER NOT NULL,
    taken_at INTEGER
);

CREATE TABLE signal_timers (
    place INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    signal_id TEXT NOT NULL,
    due INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (owner, signal_id)
);
CREATE INDEX signal_timers_by_due ON signal_timers (due);
"""

# What each version that a file can have needs to become the present one; 0 is a new file.
_UPGRADES = {
    0: _VERSION_2 + _VERSION_3 + _VERSION_4 + _VERSION_5 + _VERSION_6 + _VERSION_7 + _VERSION_8,
    2: _VERSION_3 + _VERSION_4 + _VERSION_5 + _VERSION_6 + _VERSION_7 + _VERSION_8,
    3: _VERSION_4 + _VERSION_5 + _VERSION_6 + _VERSION_7 + _VERSION_8,
    4: _VERSION_5 + _VERSION_6 + _VERSION_7 + _VERSION_8,
    5: _VERSION_6 + _VERSION_7 + _VERSION_8,
    6: _VERSION_7 + _VERSION_8,
    7: _VERSION_8,
}


class SchemaMismatch(StepwellError):
    """The file was made by a newer Stepwell, or by something else. It was left as it is."""


class Database:
    """A connection to the file at `path`, or to ":memory:".

    File and folder are made if absent, for their owner alone.

    `busy_timeout` is how long a statement waits for another process before it gives up.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        busy_timeout: Millis = 5_000,
    ) -> None:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise UsageError(f"SQLite 3.35 or newer is needed, this is {sqlite3.sqlite_version}")
        self.path = str(path)
        self._lock = threading.RLock()
        self._process = os.getpid()
        try:
            self._connection = _open(self.path, synchronous, busy_timeout)
        except sqlite3.Error as error:
            _fail(error, self.path)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; what was in memory is gone. Closing twice is harmless."""
        with self._lock:
            self._connection.close()

    def change(self, sql: str, *values: SqlValue) -> int:
        """Run one writing statement. Returns how many rows it changed."""
        try:
            with self._lock:
                return self._own().execute(sql, values).rowcount
        except sqlite3.Error as error:
            _fail(error, self.path)

    def query(self, sql: str, *values: SqlValue) -> list[Row]:
        """All rows that a statement gives, `RETURNING` ones included."""
        try:
            with self._lock:
                return self._own().execute(sql, values).fetchall()
        except sqlite3.Error as error:
            _fail(error, self.path)

    def page(self, limit: int, sql: str, *values: SqlValue) -> tuple[list[Row], bool]:
        """At least one row, then more while their first columns add up to at most `limit`.

        Also says whether rows were left out.
        """
        rows: list[Row] = []
        size = 0
        try:
            with self._lock:
                for row in self._own().execute(sql, values):
                    size += row[0]
                    if rows and size > limit:
                        return rows, True
                    rows.append(row)
        except sqlite3.Error as error:
            _fail(error, self.path)
        return rows, False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All statements inside see the same moment."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All statements inside take effect together, or none. May be nested in itself."""
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._lock:
            if self._own().in_transaction:
                yield
                return
            try:
                self.change(begin)
                yield
                self.change("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if not self._connection.in_transaction:
            return
        try:
            self._connection.rollback()
        except sqlite3.Error:
            # A transaction left open would swallow every later write: fail loudly instead.
            self._connection.close()

    def _own(self) -> sqlite3.Connection:
        if os.getpid() != self._process:
            raise UsageError("a Database cannot cross a fork: open it in the process that uses it")
        return self._connection

    def _prepare(self) -> None:
        """Make the tables of a new file, add those that an older one lacks.

        What is not ours is left alone.
        """
        if self.path == ":memory:" and hasattr(self._connection, "deserialize"):
            with closing(sqlite3.connect(":memory:")) as empty:
                empty.deserialize(_empty())
                empty.backup(self._connection)  # itself, it would write more slowly ever after
        if self._version() == SCHEMA_VERSION:
            return
        with self.writing():
            version = self._version()
            if version == SCHEMA_VERSION:  # another process was faster
                return
            foreign = version == 0 and self.query("SELECT 1 FROM sqlite_master LIMIT 1")
            if foreign or version not in _UPGRADES:
                raise SchemaMismatch(
                    f"{self.path!r} has schema version {version}, this Stepwell knows"
                    f" {SCHEMA_VERSION}: use the Stepwell that made it, or another file"
                )
            for statement in _UPGRADES[version].split(";\n"):
                self.change(statement)
            self.change(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _version(self) -> int:
        version: int = self.query("PRAGMA user_version")[0][0]
        return version


@cache
def _empty() -> bytes:
    """A database with tables and no rows: copying it is ten times as fast as making it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(_UPGRADES[0])
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection.serialize()


def _open(path: str, synchronous: str, busy_timeout: Millis) -> sqlite3.Connection:
    if path != ":memory:":
        _make_private(Path(path))
    connection = sqlite3.connect(
        path,
        timeout=busy_timeout / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        _enter_wal(connection, attempts=max(1, busy_timeout // 10))
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA cache_size = -16000")
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: Path) -> None:
    """Make a new file, and its folder, for their owner alone: the file holds the signing key.

    SQLite gives the files that it puts beside it the same mode. What is there is left as it is.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Closing a file lets go of all locks that this process has on it: none may have any yet.
    with _MAKING, suppress(OSError):  # why it cannot be made, SQLite says when it opens it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _enter_wal(connection: sqlite3.Connection, attempts: int) -> None:
    """Switch to WAL. SQLite does not wait for others here (it could deadlock), so we do."""
    for attempt in range(1, attempts + 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == attempts:
                raise
            time.sleep(0.01)


def _fail(error: sqlite3.Error, path: str) -> NoReturn:
    """Raise it as `TransientError` if the same statement may work later, else as it is."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _TRANSIENT:
        raise TransientError(f"SQLite, file {path!r}: {error}") from error
    if code == sqlite3.SQLITE_NOTADB:
        raise SchemaMismatch(f"{path!r} is not an SQLite file") from error
    raise error
