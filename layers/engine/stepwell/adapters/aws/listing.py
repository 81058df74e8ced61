"""Lists over the indexes: their shards merged by time, and the rows themselves then read.

An index holds little but keys, in the order of a time. Entries of one time come in any order, so
all of them are read and sorted by id before any is handed out. Lists may lag, decisions never
come here.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Literal, TypeVar

from pynamodb.expressions.condition import Condition

from stepwell.adapters.aws.items import RawItem, TableItem
from stepwell.adapters.aws.keys import SHARDS, shard_key
from stepwell.adapters.aws.table import Table
from stepwell.core.cursors import Place

T = TypeVar("T")

_LOG = logging.getLogger("stepwell.aws")

#: By which time each index sorts.
_TIMES = {"runs": TableItem.created_at, "wanted": TableItem.wanted_at}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """One list: which groups of which index, in which direction, and what its rows are.

    The time of a row's place is the one that the index sorts by. `keep` says whether a row belongs
    to the list: an index may lag behind it.
    """

    index: Literal["runs", "wanted"]
    groups: Sequence[str]
    newest_first: bool
    read: Callable[[RawItem], T]
    place: Callable[[T], Place]
    keep: Callable[[T], bool]


def read_list(
    table: Table,
    listing: Listing[T],
    *,
    after: Place | None = None,
    before: int | None = None,
    limit: int,
) -> tuple[list[T], bool]:
    """At most `limit` rows that follow a place, and whether there are more.

    Oldest first, the list may end `before` a time; it has no use for both.
    """

    def rank(place: Place) -> tuple[int, tuple[str, ...]]:
        return (-place.time if listing.newest_first else place.time, place.ids)

    found: list[T] = []
    time = _TIMES[listing.index]
    within = None if before is None else time < before
    if after is not None:
        within = time <= after.time if listing.newest_first else time >= after.time
    entries = _entries(table, listing, within, limit + 1)
    for items in _batches(table, entries, _time_of(listing), limit + 1):
        rows = [row for row in readable(items, listing.read) if listing.keep(row)]
        rows.sort(key=lambda row: rank(listing.place(row)))
        found += [row for row in rows if not after or rank(listing.place(row)) > rank(after)]
        if len(found) > limit:
            break
    return found[:limit], len(found) > limit


def readable(items: Iterable[RawItem], read: Callable[[RawItem], T]) -> Iterator[T]:
    """The rows of items, without those that this version cannot read: the others go on."""
    for item in items:
        try:
            yield read(item)
        except (KeyError, TypeError, ValueError) as error:
            # Without its text, which quotes the row.
            where = f"{item['pk']['S']} {item['sk']['S']}"
            _LOG.error("row %s is left out of a list: %s", where, type(error).__name__)


def _entries(
    table: Table, listing: Listing[T], within: Condition | None, page: int
) -> Iterator[RawItem]:
    """The entries of all groups and shards, by time."""
    shards = (
        table.query(
            shard_key(group, shard),
            within,
            index=listing.index,
            forward=not listing.newest_first,
            page=page,
        )
        for group in listing.groups
        for shard in range(SHARDS)
    )
    return heapq.merge(*shards, key=_time_of(listing), reverse=listing.newest_first)


def _batches(
    table: Table, entries: Iterable[RawItem], time: Callable[[RawItem], int], size: int
) -> Iterator[list[RawItem]]:
    """The items of `size` entries or more at once; those of one time are never apart."""
    keys: dict[tuple[str, str], None] = {}  # a run that changed meanwhile may be there twice
    for _, same_time in groupby(entries, time):
        keys |= dict.fromkeys((entry["pk"]["S"], entry["sk"]["S"]) for entry in same_time)
        if len(keys) >= size:
            yield table.get_many(list(keys))
            keys = {}
    yield table.get_many(list(keys))


def _time_of(listing: Listing[T]) -> Callable[[RawItem], int]:
    name = _TIMES[listing.index].attr_name
    return lambda entry: int(entry[name]["N"])
