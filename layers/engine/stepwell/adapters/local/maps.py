"""Rows of dispatched maps in the file. As strict as DynamoDB about their size."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from pydantic import TypeAdapter

from stepwell.adapters.local.database import Database, SqlValue
from stepwell.core.map_rows import ItemEnd, ItemRow, ShardKey, ShardRow
from stepwell.core.records import Millis
from stepwell.engine.ports import ItemTooLarge, TransientError

T = TypeVar("T")

_SHARD: TypeAdapter[ShardRow] = TypeAdapter(ShardRow)
_ITEM: TypeAdapter[ItemRow] = TypeAdapter(ItemRow)
_OF = "run_id = ? AND map = ? AND map_order = ? AND shard = ?"

_PUT_SHARD = """
INSERT INTO map_shards (body, run_id, map, map_order, shard) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run_id, map, map_order, shard) DO NOTHING
"""

_PUT_ITEM = """
INSERT INTO map_items (revision, body, run_id, map, map_order, shard, member)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, map, map_order, shard, member) DO NOTHING
"""

_REPLACE_ITEM = f"""
UPDATE map_items SET revision = ?, body = ? WHERE {_OF} AND member = ? AND revision = ?
"""  # noqa: S608


class SqliteMaps:
    """Implements the `Maps` port."""

    def __init__(self, database: Database, *, item_limit: int = 400 * 1024) -> None:
        self._database = database
        self._item_limit = item_limit

    async def put_shard(self, row: ShardRow) -> ShardRow:
        """Put if absent. Returns the row that stands: this one, or the one already there."""
        body = self._body(row.key, _SHARD.dump_json(row))
        if self._database.change(_PUT_SHARD, body, *row.key):
            return row
        return _standing(self._shard(row.key), row.key)

    async def get_shard(self, key: ShardKey) -> ShardRow | None:
        """One shard, or the row at the top."""
        return self._shard(key)

    async def finish(
        self, key: ShardKey, member: int, end: ItemEnd, *, lane: int | None, at: Millis
    ) -> ShardRow | None:
        """Note that a member has its outcome. The row as it is then, None if there is none."""
        with self._database.writing():
            row = self._shard(key)
            if row is None or (lane is not None and row.lanes[lane] != member):
                return row
            lanes, following = list(row.lanes), row.following
            if lane is not None:
                lanes[lane], following = following, following + 1
            one = frozenset({member})
            changed = replace(
                row,
                lanes=tuple(lanes),
                following=following,
                done=row.done | one,
                failed=row.failed | (one if end == "failed" else frozenset()),
                handed=row.handed | (one if end == "handed" else frozenset()),
                touched=at,
            )
            self._replace(changed)
        return changed

    async def count(self, key: ShardKey, end: ItemEnd, *, at: Millis) -> ShardRow | None:
        """Count an outcome in the row at the top. The row as it is then, None if there is none."""
        with self._database.writing():
            row = self._shard(key)
            if row is None:
                return None
            changed = replace(
                row,
                failures=row.failures + (end == "failed"),
                completions=row.completions + (end == "completed"),
                hand_overs=row.hand_overs + (end == "handed"),
                touched=at,
            )
            self._replace(changed)
        return changed

    async def cancel_shard(self, key: ShardKey) -> None:
        """Note that nobody waits for a shard any more. Nothing happens if it is not there."""
        with self._database.writing():
            row = self._shard(key)
            if row is not None:
                self._replace(replace(row, cancelled=True))

    async def erase_shard(self, key: ShardKey) -> None:
        """Delete the rows of a shard of a run that was deleted. Harmless when repeated."""
        with self._database.writing():
            for table in ("map_items", "map_shards"):
                self._database.change(f"DELETE FROM {table} WHERE {_OF}", *key)  # noqa: S608

    async def put_item(self, row: ItemRow) -> ItemRow:
        """Put revision n, only if revision n - 1 stands (nothing for 1). Returns what stands."""
        body = self._body(row.key, _ITEM.dump_json(row))
        names = (*row.key, row.index)
        if row.revision == 1:
            put = self._database.change(_PUT_ITEM, row.revision, body, *names)
        else:
            put = self._database.change(_REPLACE_ITEM, row.revision, body, *names, row.revision - 1)
        return row if put else _standing(self._item(row.key, row.index), row.key)

    async def get_item(self, key: ShardKey, index: int) -> ItemRow | None:
        """One item."""
        return self._item(key, index)

    async def get_items(self, key: ShardKey) -> tuple[ItemRow, ...]:
        """The items of a shard that have a row, by index."""
        sql = f"SELECT body FROM map_items WHERE {_OF} ORDER BY member"  # noqa: S608
        return tuple(_ITEM.validate_json(body) for (body,) in self._database.query(sql, *key))

    def _shard(self, key: ShardKey) -> ShardRow | None:
        sql = f"SELECT body FROM map_shards WHERE {_OF}"  # noqa: S608
        rows = self._database.query(sql, *key)
        return _SHARD.validate_json(rows[0][0]) if rows else None

    def _item(self, key: ShardKey, index: int) -> ItemRow | None:
        sql = f"SELECT body FROM map_items WHERE {_OF} AND member = ?"  # noqa: S608
        rows = self._database.query(sql, *key, index)
        return _ITEM.validate_json(rows[0][0]) if rows else None

    def _replace(self, row: ShardRow) -> None:
        body = self._body(row.key, _SHARD.dump_json(row))
        values: tuple[SqlValue, ...] = (body, *row.key)
        self._database.change(f"UPDATE map_shards SET body = ? WHERE {_OF}", *values)  # noqa: S608

    def _body(self, key: ShardKey, body: bytes) -> str:
        if len(body) > self._item_limit:
            name = f"a row of map {key.map!r} of run {key.run_id!r}"
            raise ItemTooLarge(name, len(body), self._item_limit)
        return body.decode()


def _standing(row: T | None, key: ShardKey) -> T:
    if row is None:
        raise TransientError(f"rows of map {key.map!r} of run {key.run_id!r} were deleted")
    return row
