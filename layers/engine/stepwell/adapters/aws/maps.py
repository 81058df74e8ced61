"""Rows of dispatched maps in the table. Each write is one item with its condition."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pynamodb.attributes import (
    BooleanAttribute,
    ListAttribute,
    MapAttribute,
    NumberAttribute,
    NumberSetAttribute,
    UnicodeAttribute,
)

from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.items import RawItem, TableItem, fields, item_size, raw
from stepwell.adapters.aws.keys import SHARD_ROW, item_key, items_after, map_key
from stepwell.adapters.aws.table import Table
from stepwell.core.map_rows import ItemEnd, ItemRow, ShardKey, ShardRow
from stepwell.core.records import Millis
from stepwell.engine.ports import ItemTooLarge, TransientError

_ITEM_LIMIT = 400 * 1024


class ShardItem(TableItem):
    """One shard of a map, or the row at its top."""

    members = NumberAttribute()
    touched = NumberAttribute()
    lanes: ListAttribute[Any] = ListAttribute(null=True)
    following = NumberAttribute(null=True)
    end = NumberAttribute(null=True)
    inputs = UnicodeAttribute(null=True)
    done = NumberSetAttribute(null=True)
    failed = NumberSetAttribute(null=True)
    handed = NumberSetAttribute(null=True)
    failures = NumberAttribute(null=True)
    completions = NumberAttribute(null=True)
    hand_overs = NumberAttribute(null=True)
    cancelled = BooleanAttribute(null=True)


class MapItemItem(TableItem):
    """One item of a map; its index is in the key."""

    index = NumberAttribute()
    revision = NumberAttribute()
    status = UnicodeAttribute()
    attempt = NumberAttribute()
    result = UnicodeAttribute(null=True)
    error: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    reason = UnicodeAttribute(null=True)
    events = UnicodeAttribute(null=True)


_COUNTERS = {
    "failed": ShardItem.failures,
    "completed": ShardItem.completions,
    "handed": ShardItem.hand_overs,
}


class DynamoMaps:
    """Implements the `Maps` port on the one table."""

    def __init__(self, table: Table, clients: Clients) -> None:
        self._table = table
        self._clients = clients

    async def put_shard(self, row: ShardRow) -> ShardRow:
        """Put if absent. Returns the row that stands: this one, or the one already there."""
        return await self._clients.call(self._put_shard, row)

    async def get_shard(self, key: ShardKey) -> ShardRow | None:
        """One shard, or the row at the top."""
        return await self._clients.call(self._shard, key)

    async def finish(
        self, key: ShardKey, member: int, end: ItemEnd, *, lane: int | None, at: Millis
    ) -> ShardRow | None:
        """Note that a member has its outcome. The row as it is then, None if there is none."""
        return await self._clients.call(self._finish, key, member, end, lane, at)

    async def count(self, key: ShardKey, end: ItemEnd, *, at: Millis) -> ShardRow | None:
        """Count an outcome in the row at the top. The row as it is then, None if there is none."""
        return await self._clients.call(self._count, key, end, at)

    async def cancel_shard(self, key: ShardKey) -> None:
        """Note that nobody waits for a shard any more. Nothing happens if it is not there."""
        await self._clients.call(
            self._table.update,
            map_key(key),
            SHARD_ROW,
            [ShardItem.cancelled.set(True)],
            ShardItem.pk.exists(),
        )

    async def erase_shard(self, key: ShardKey) -> None:
        """Delete the rows of a shard of a run that was deleted. Harmless when repeated."""
        await self._clients.call(self._table.erase, map_key(key))

    async def put_item(self, row: ItemRow) -> ItemRow:
        """Put revision n, only if revision n - 1 stands (nothing for 1). Returns what stands."""
        return await self._clients.call(self._put_item, row)

    async def get_item(self, key: ShardKey, index: int) -> ItemRow | None:
        """One item."""
        return await self._clients.call(self._item, key, index)

    async def get_items(self, key: ShardKey) -> tuple[ItemRow, ...]:
        """The items of a shard that have a row, by index; every page of them."""
        return await self._clients.call(self._items, key)

    # What follows blocks: `Clients.call` runs it in a thread.

    def _put_shard(self, row: ShardRow) -> ShardRow:
        item = _shard_item(row)
        _check_size(row.key, item)
        if self._table.put(item, ShardItem.pk.does_not_exist()):
            return row
        found = self._shard(row.key)
        if found is None:
            raise _deleted(row.key)
        return found

    def _shard(self, key: ShardKey) -> ShardRow | None:
        item = self._table.get(map_key(key), SHARD_ROW)
        return _read_shard(key, item) if item else None

    def _finish(
        self, key: ShardKey, member: int, end: ItemEnd, lane: int | None, at: Millis
    ) -> ShardRow | None:
        actions = [ShardItem.touched.set(at), ShardItem.done.add({member})]
        if end == "failed":
            actions.append(ShardItem.failed.add({member}))
        elif end == "handed":
            actions.append(ShardItem.handed.add({member}))
        condition = ShardItem.pk.exists()
        if lane is not None:
            actions.append(ShardItem.lanes[lane].set(ShardItem.following))
            actions.append(ShardItem.following.set(ShardItem.following + 1))
            condition &= ShardItem.lanes[lane] == member
        changed = self._table.change(map_key(key), SHARD_ROW, actions, condition)
        return self._shard(key) if changed is None else _read_shard(key, changed)

    def _count(self, key: ShardKey, end: ItemEnd, at: Millis) -> ShardRow | None:
        actions = [ShardItem.touched.set(at), _COUNTERS[end].add(1)]
        changed = self._table.change(map_key(key), SHARD_ROW, actions, ShardItem.pk.exists())
        return None if changed is None else _read_shard(key, changed)

    def _put_item(self, row: ItemRow) -> ItemRow:
        item = _item_item(row)
        _check_size(row.key, item)
        first = row.revision == 1
        before = MapItemItem.revision == row.revision - 1
        if self._table.put(item, MapItemItem.pk.does_not_exist() if first else before):
            return row
        found = self._item(row.key, row.index)
        if found is None:
            raise _deleted(row.key)
        return found

    def _item(self, key: ShardKey, index: int) -> ItemRow | None:
        item = self._table.get(map_key(key), item_key(index))
        return _read_item(key, item) if item else None

    def _items(self, key: ShardKey) -> tuple[ItemRow, ...]:
        found = self._table.query(map_key(key), MapItemItem.sk > items_after())
        return tuple(_read_item(key, item) for item in found)


# Compiled on first use: most workers never see a map.
@cache
def _shard_type() -> TypeAdapter[ShardRow]:
    return TypeAdapter(ShardRow)


@cache
def _item_type() -> TypeAdapter[ItemRow]:
    return TypeAdapter(ItemRow)


def _shard_item(row: ShardRow) -> RawItem:
    values = _shard_type().dump_python(row, mode="python", exclude_defaults=True)
    for name in ("done", "failed", "handed"):
        if name in values:
            values[name] = set(values[name])
    if "lanes" in values:
        values["lanes"] = list(values["lanes"])
    del values["key"]
    return raw(ShardItem(map_key(row.key), SHARD_ROW, **values))


def _read_shard(key: ShardKey, item: RawItem) -> ShardRow:
    return _shard_type().validate_python({"key": key, **fields(ShardItem.from_raw_data(item))})


def _item_item(row: ItemRow) -> RawItem:
    values = _item_type().dump_python(row, mode="json", exclude_none=True)
    del values["key"]
    return raw(MapItemItem(map_key(row.key), item_key(row.index), **values))


def _read_item(key: ShardKey, item: RawItem) -> ItemRow:
    return _item_type().validate_python({"key": key, **fields(MapItemItem.from_raw_data(item))})


def _check_size(key: ShardKey, item: RawItem) -> None:
    size = item_size(item)
    if size > _ITEM_LIMIT:
        raise ItemTooLarge(f"a row of map {key.map!r} of run {key.run_id!r}", size, _ITEM_LIMIT)


def _deleted(key: ShardKey) -> TransientError:
    return TransientError(f"rows of map {key.map!r} of run {key.run_id!r} were deleted")
