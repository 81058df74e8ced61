"""Rows of dispatched maps: what a shard has come to, and what an item has.

An item's outcome is put once; then its shard is told of it, in one change that may be repeated. Who
completes a shard tells the top in the same way, a row of the same kind whose members are shards. A
map of one shard has no other top than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from stepwell.core.map_layout import Layout
from stepwell.core.records import Millis, Payload
from stepwell.errors import Failure

#: The number of the row above all shards.
TOP = -1

#: What an item can come to. "handed": its run goes on with it as with any dispatched step.
ItemEnd = Literal["completed", "failed", "handed"]


class ShardKey(NamedTuple):
    """One shard of a map; `order` is the number of the event that started the map."""

    run_id: str
    map: str
    order: int
    shard: int


def top_of(run_id: str, map: str, order: int, layout: Layout) -> ShardKey:
    """The row that says whether the whole map is through."""
    return ShardKey(run_id, map, order, 0 if layout.shards == 1 else TOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRow:
    """One shard. `members` are so many; those in `done` have an outcome, which `failed` and
    `handed` tell apart.

    `lanes` says which member each lane holds; `following` is the next one to be taken, from
    `end` on there is none. `inputs` are those of all members, where they have to be looked up.
    `failures`, `completions` and `hand_overs` count members of the whole map, in the row at the
    top; they may count one twice, and never leave one out. `touched` is when it last changed.
    """

    key: ShardKey
    members: int
    touched: Millis
    lanes: tuple[int, ...] = ()
    following: int = 0
    end: int = 0
    inputs: Payload | None = None
    done: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    handed: frozenset[int] = frozenset()
    failures: int = 0
    completions: int = 0
    hand_overs: int = 0
    cancelled: bool = False

    @property
    def through(self) -> bool:
        """Whether all members have an outcome."""
        return len(self.done) >= self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow:
    """One item. Revision n stands only on revision n - 1, so the outcome that came first stands.

    `started` is the claim of an attempt that is made at most once. `events` are what the run is to
    record of an item that is handed over to it, as JSON.
    """

    key: ShardKey
    index: int
    revision: int
    status: ItemEnd | Literal["started"]
    attempt: int
    result: Payload | None = None
    error: Failure | None = None
    reason: str | None = None
    events: str | None = None
