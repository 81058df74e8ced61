"""The port of dispatched maps: their shards and items, in partitions of their own."""

from __future__ import annotations

from typing import Protocol

from stepwell.core.map_rows import ItemEnd, ItemRow, ShardKey, ShardRow
from stepwell.core.records import Millis


class Maps(Protocol):
    """Rows of dispatched maps. Reads are strongly consistent."""

    async def put_shard(self, row: ShardRow) -> ShardRow:
        """Put if absent. Returns the row that stands: this one, or the one already there."""

    async def get_shard(self, key: ShardKey) -> ShardRow | None:
        """One shard, or the row at the top."""

    async def finish(
        self, key: ShardKey, member: int, end: ItemEnd, *, lane: int | None, at: Millis
    ) -> ShardRow | None:
        """Note that a member has its outcome. The row as it is then, None if there is none.

        With a lane, its next member is taken in the same change, which is made only if the lane
        still holds this one; else the row that stands is returned. Repeated, it changes nothing.
        """

    async def count(self, key: ShardKey, end: ItemEnd, *, at: Millis) -> ShardRow | None:
        """Count an outcome in the row at the top. The row as it is then, None if there is none."""

    async def cancel_shard(self, key: ShardKey) -> None:
        """Note that nobody waits for a shard any more. Nothing happens if it is not there."""

    async def erase_shard(self, key: ShardKey) -> None:
        """Delete the rows of a shard of a run that was deleted. Harmless when repeated."""

    async def put_item(self, row: ItemRow) -> ItemRow:
        """Put revision n, only if revision n - 1 stands (nothing for 1). Returns what stands.

        That is an equal row also when an own write lost its reply.
        """

    async def get_item(self, key: ShardKey, index: int) -> ItemRow | None:
        """One item."""

    async def get_items(self, key: ShardKey) -> tuple[ItemRow, ...]:
        """The items of a shard that have a row, by index; every page of them."""
