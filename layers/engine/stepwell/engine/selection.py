"""Picking runs out of a list by their tags and attributes, which no index holds.

Runs are looked at, newest first, until enough are found or so many have been looked at; then the
page ends, with a cursor to go on from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from stepwell.core.attributes import Scalar, attribute_texts, read_attributes
from stepwell.core.records import RunHeader
from stepwell.engine.ports import Page
from stepwell.errors import UsageError

#: Pages that are read for one.
_PAGES = 20

#: Reads a page of at most so many runs, from a cursor on.
Read = Callable[[int, str | None], Awaitable[Page[RunHeader]]]


def listed(tags: Sequence[str]) -> Sequence[str]:
    """The tags. Raises `UsageError` on text alone, which would be taken for its letters."""
    if isinstance(tags, str):
        raise UsageError(f"tags: give a list of tags, such as [{tags!r}]")
    return tags


class Selection:
    """Which runs are wanted: those with all of these tags and attributes."""

    def __init__(self, tags: Sequence[str], attributes: Mapping[str, Scalar]) -> None:
        self._tags = frozenset(listed(tags))
        self._attributes = attribute_texts(attributes)

    @property
    def all(self) -> bool:
        """Whether every run is wanted."""
        return not self._tags and not self._attributes

    def wants(self, header: RunHeader) -> bool:
        """Whether a run is one of them."""
        if not self._tags <= set(header.tags):
            return False
        has = read_attributes(header.attributes or "{}")
        return all(has.get(name) == text for name, text in self._attributes.items())

    async def page(self, read: Read, limit: int, cursor: str | None) -> Page[RunHeader]:
        """At most `limit` of them that follow a cursor."""
        found: list[RunHeader] = []
        for _ in range(_PAGES):
            page = await read(limit - len(found), cursor)
            found += filter(self.wants, page.items)
            cursor = page.cursor
            if cursor is None or len(found) >= limit:
                break
        return Page(items=tuple(found), cursor=cursor)
