"""Lists over the indexes: their shards merged by time, and the rows themselves then read.

An index holds keys only, in the order of `created_at`. Entries of one time come in any order, so
all of them are read and sorted by id before any is handed out. Lists may lag, decisions never
come here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from stepwell.adapters.aws.cursors import Place
from stepwell.adapters.aws.keys import SHARDS, shard_key
from stepwell.adapters.aws.table import RawItem, Table, TableItem

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """One list: which groups of which index, in which direction, and what its rows are.

    `keep` says whether a row belongs to the list: an index may lag behind it.
    """

    index: str
    groups: Sequence[str]
    newest_first: bool
    read: Callable[[RawItem], T]
    place: Callable[[T], Place]
    keep: Callable[[T], bool]


def read_list(
    table: Table, listing: Listing[T], *, after: Place | None, limit: int
) -> tuple[list[T], bool]:
    """At most `limit` rows that follow a place, and whether there are more."""

    def rank(place: Place) -> tuple[int, tuple[str, ...]]:
        return (-place.time if listing.newest_first else place.time, place.ids)

    found: list[T] = []
    for items in _batches(table, _entries(table, listing, after, limit + 1), limit + 1):
        rows = [row for row in map(listing.read, items) if listing.keep(row)]
        rows.sort(key=lambda row: rank(listing.place(row)))
        found += [row for row in rows if not after or rank(listing.place(row)) > rank(after)]
        if len(found) > limit:
            break
    return found[:limit], len(found) > limit


def _entries(
    table: Table, listing: Listing[T], after: Place | None, page: int
) -> Iterator[RawItem]:
    """The entries of all groups and shards, by time."""
    since = None
    if after is not None:
        time = TableItem.created_at
        since = time <= after.time if listing.newest_first else time >= after.time
    shards = (
        table.query(
            shard_key(group, shard),
            since,
            index=listing.index,
            forward=not listing.newest_first,
            page=page,
        )
        for group in listing.groups
        for shard in range(SHARDS)
    )
    return heapq.merge(*shards, key=_time, reverse=listing.newest_first)


def _batches(table: Table, entries: Iterable[RawItem], size: int) -> Iterator[list[RawItem]]:
    """The items of `size` entries or more at once; those of one time are never apart."""
    keys: dict[tuple[str, str], None] = {}  # a run that changed meanwhile may be there twice
    for _, same_time in groupby(entries, _time):
        keys |= dict.fromkeys((entry["pk"]["S"], entry["sk"]["S"]) for entry in same_time)
        if len(keys) >= size:
            yield table.get_many(list(keys))
            keys = {}
    yield table.get_many(list(keys))


def _time(entry: RawItem) -> int:
    return int(entry["created_at"]["N"])
