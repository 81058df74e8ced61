"""How a dispatched map is laid out: its items in shards, and the lanes that go through them. Pure.

The rows of a shard are a partition of their own, so that no partition has to take all that a large
map writes. With `max_concurrency` its lanes are dealt out to groups of at most 16; a group goes
through its shards one after the other, and each of its lanes from item to item.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Items of one shard, and lanes of one group, at most.
SHARD = 128
LANES = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a map of `total` items, of which at most `concurrency` run at a time."""

    total: int
    concurrency: int | None = None

    @property
    def groups(self) -> int:
        """How many groups of lanes there are; without a limit, one for each shard."""
        if self.concurrency is None:
            return self.shards
        return min(-(-self.concurrency // LANES), self.total)

    @property
    def size(self) -> int:
        """Items of a shard; the last one may have fewer."""
        if self.concurrency is None:
            return SHARD
        # Each group has a shard to begin with.
        return min(SHARD, -(-self.total // self.groups))

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return -(-self.total // self.size)

    def shard_of(self, index: int) -> int:
        """The shard that an item is in."""
        return index // self.size

    def items(self, shard: int) -> range:
        """The items of a shard, by index."""
        return range(shard * self.size, min((shard + 1) * self.size, self.total))

    def lanes(self, shard: int) -> int:
        """How many lanes go through a shard; 0 without a limit."""
        if self.concurrency is None:
            return 0
        dealt, more = divmod(self.concurrency, self.groups)
        return min(dealt + (shard % self.groups < more), len(self.items(shard)))

    def after(self, shard: int) -> int | None:
        """The shard that its group goes to when this one is through."""
        following = shard + self.groups
        return following if self.concurrency is not None and following < self.shards else None
