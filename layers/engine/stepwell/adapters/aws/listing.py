"""Lists over the indexes: their shards merged by time, and the rows themselves then read.

An index holds little but keys, in the order of a time. Entries of one time come in any order, so
all of them are read and sorted by id before any is handed out. A list whose rows are picked by what
its index does not tell ends its page after so many of them, found or not. Lists may lag, decisions
never come here.
"""

from __future__ import annotations

import heapq
import logging
import math
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
_TIMES = {
    "runs": TableItem.created_at,
    "wanted": TableItem.wanted_at,
    "expiring": TableItem.kept_until,
}
#: Entries in 4 KB or so: a query for fewer costs as much.
_FEWEST = 25
#: What one BatchGetItem takes.
_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """One list: which groups of which index, in which direction, and what its rows are.

    The time of a row's place is the one that the index sorts by; `least` are ids below all others.
    `keep` says whether a row belongs to the list: an index may lag behind it, or tell too little.
    """

    index: Literal["runs", "wanted", "expiring"]
    groups: Sequence[str]
    newest_first: bool
    read: Callable[[RawItem], T]
    place: Callable[[T], Place]
    least: tuple[str, ...]
    keep: Callable[[T], bool]

    def past(self, time: int) -> Place:
        """The place that follows all rows of a time."""
        return Place(time - 1 if self.newest_first else time + 1, self.least)


def read_list(
    table: Table,
    listing: Listing[T],
    *,
    after: Place | None = None,
    before: int | None = None,
    limit: int,
    look_at: float = math.inf,
) -> tuple[list[T], Place | None]:
    """At most `limit` rows that follow a place, and the place to go on from; None at the end.

    They are fewer also when `look_at` entries have been looked at. Oldest first, the list may end
    `before` a time; it has no use for both.
    """

    def rank(place: Place) -> tuple[int, tuple[str, ...]]:
        return (-place.time if listing.newest_first else place.time, place.ids)

    found: list[T] = []
    looked = 0
    time = _TIMES[listing.index]
    within = None if before is None else time < before
    if after is not None:
        within = time <= after.time if listing.newest_first else time >= after.time
    entries = _entries(table, listing, within, max(limit + 1, _FEWEST))
    for keys, end in _batches(entries, _time_of(listing), limit + 1):
        rows = [row for row in readable(table.get_many(keys), listing.read) if listing.keep(row)]
        rows.sort(key=lambda row: rank(listing.place(row)))
        found += [row for row in rows if not after or rank(listing.place(row)) > rank(after)]
        if len(found) > limit:
            return found[:limit], listing.place(found[limit - 1])
        looked += len(keys)
        if looked >= look_at and end is not None:
            return found, listing.past(end)
    return found, None


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
    entries: Iterable[RawItem], time: Callable[[RawItem], int], size: int
) -> Iterator[tuple[list[tuple[str, str]], int | None]]:
    """The keys of `size` entries or more at once, and the last time of these; None at the end.

    Entries of one time are never apart. Who needs more after a batch gets larger ones.
    """
    keys: dict[tuple[str, str], None] = {}  # a run that changed meanwhile may be there twice
    for end, same_time in groupby(entries, time):
        keys |= dict.fromkeys((entry["pk"]["S"], entry["sk"]["S"]) for entry in same_time)
        if len(keys) >= size:
            yield list(keys), end
            keys = {}
            size = max(size, min(2 * size, _MOST))
    yield list(keys), None


def _time_of(listing: Listing[T]) -> Callable[[RawItem], int]:
    name = _TIMES[listing.index].attr_name
    return lambda entry: int(entry[name]["N"])
