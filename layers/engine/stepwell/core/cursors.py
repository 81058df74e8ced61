"""Pages of lists: where one ends, as opaque text that outlives what is inserted or removed."""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass

from pydantic import ConfigDict, TypeAdapter, ValidationError

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item stands in a list: its time, then its ids."""

    time: int
    ids: tuple[str, ...]


_TEXT: TypeAdapter[tuple[str, int, tuple[str, ...]]] = TypeAdapter(
    tuple[str, int, tuple[str, ...]], config=ConfigDict(strict=True, defer_build=True)
)


def write_cursor(kind: str, place: Place) -> str:
    """The cursor of a list that goes on after a place; fit for a URL."""
    data = _TEXT.dump_json((kind, place.time, place.ids))
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def read_cursor(cursor: str, kind: str, ids: int) -> Place:
    """The place. Raises `ValueError` unless it is a cursor of this kind of list."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found, time, names = _TEXT.validate_json(b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, ValidationError):
        raise ValueError("not a cursor") from None
    if found != kind or len(names) != ids or abs(time) > _LARGEST:
        raise ValueError(f"not a cursor of the list of {kind}")
    return Place(time, names)


def check_limit(limit: int) -> None:
    """Raise `ValueError` for a page of no items: it would have no end to go on from."""
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
