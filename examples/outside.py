"""A stand-in for everything outside of a run: a bank, a mailbox, a model provider, in one file.

Like a good provider it takes an idempotency key: a second request with the same key has no effect
and gets the first one's receipt. It counts both, requests and effects, so that a test can tell
"asked twice, done once" from "done twice".
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (kind TEXT, key TEXT);
CREATE TABLE IF NOT EXISTS effects (kind TEXT, key TEXT, what TEXT, PRIMARY KEY (kind, key));
CREATE TABLE IF NOT EXISTS outages (kind TEXT PRIMARY KEY, left INTEGER);
"""


class Outside:
    """The world, kept in the file at `path` (":memory:" for none). Any thread may use it."""

    def __init__(self, path: str | Path) -> None:
        # Autocommit: each request is durable by itself, whatever process makes it.
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = threading.Lock()
        self._database.executescript(_SCHEMA)

    def request(self, kind: str, key: str, what: str) -> str:
        """Have something done once per kind and key. Returns its receipt.

        Raises `ConnectionError` during an outage.
        """
        with self._lock:
            self._database.execute("INSERT INTO requests VALUES (?, ?)", (kind, key))
            taken = "UPDATE outages SET left = left - 1 WHERE kind = ? AND left > 0"
            if self._database.execute(taken, (kind,)).rowcount:
                raise ConnectionError(f"{kind}: nobody answers")
            self._database.execute(
                "INSERT INTO effects VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (kind, key, what)
            )
        return hashlib.sha256(f"{kind}|{key}".encode()).hexdigest()[:8]

    def fail(self, kind: str, times: int) -> None:
        """Have the next requests of a kind come to nothing."""
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO outages VALUES (?, ?)", (kind, times))

    def done(self) -> list[str]:
        """The kinds of all that was really done, in order."""
        with self._lock:
            query = "SELECT kind FROM effects ORDER BY rowid"
            return [kind for (kind,) in self._database.execute(query).fetchall()]

    def requests(self, kind: str) -> int:
        """How often something of this kind was asked for."""
        with self._lock:
            query = "SELECT count(*) FROM requests WHERE kind = ?"
            count: int = self._database.execute(query, (kind,)).fetchone()[0]
        return count

    def effects(self, kind: str) -> dict[str, str]:
        """What was really done of this kind, by key, in order."""
        with self._lock:
            query = "SELECT key, what FROM effects WHERE kind = ? ORDER BY rowid"
            return dict(self._database.execute(query, (kind,)).fetchall())

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_connected: list[Outside] = []


def connect(path: str | Path) -> Outside:
    """Make the world at `path` the one that `outside()` gives in this process."""
    return use(Outside(path))


def use(world: Outside) -> Outside:
    """Make this the world that `outside()` gives in this process; the one before is closed."""
    for before in _connected:
        before.close()
    _connected[:] = [world]
    return world


def outside() -> Outside:
    """The connected world, or else the one in the file that `EXAMPLES_OUTSIDE` names.

    An application would have its clients here instead.
    """
    if not _connected:
        if "EXAMPLES_OUTSIDE" not in os.environ:
            raise RuntimeError("nothing is connected: set EXAMPLES_OUTSIDE to the path of a file")
        connect(os.environ["EXAMPLES_OUTSIDE"])
    return _connected[0]
