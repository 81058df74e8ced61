"""Store calls, counted by name on their way to the real store."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from stepwell.engine.ports import Store


class CountingStore:
    """A store that counts. Reads and writes are told apart by name."""

    def __init__(self, store: Store) -> None:
        self.calls: Counter[str] = Counter()
        self._store = store

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._store, name)

    @property
    def writes(self) -> int:
        """Calls that write."""
        reading = ("load", "get_", "list_")
        return sum(n for name, n in self.calls.items() if not name.startswith(reading))


def counted(store: Store) -> tuple[CountingStore, Store]:
    """A counting store, and the same as the port it stands for."""
    counting = CountingStore(store)
    return counting, cast("Store", counting)
