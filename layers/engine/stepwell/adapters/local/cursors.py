"""Cursors: where a list goes on, as opaque text. They outlive what is inserted or removed."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode

from pydantic import ConfigDict, TypeAdapter, ValidationError

_POSITION: TypeAdapter[tuple[str, int, tuple[str, ...]]] = TypeAdapter(
    tuple[str, int, tuple[str, ...]], config=ConfigDict(strict=True)
)

_LARGEST = 2**63 - 1


def write_cursor(kind: str, time: int, *ids: str) -> str:
    """The cursor of a list that goes on after this time and these ids."""
    return urlsafe_b64encode(_POSITION.dump_json((kind, time, ids))).rstrip(b"=").decode()


def read_cursor(cursor: str, kind: str, ids: int) -> tuple[int, tuple[str, ...]]:
    """Time and ids of a cursor. Raises `ValueError` unless it is one of this kind of list."""
    try:
        data = b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, time, names = _POSITION.validate_json(data)
    except (ValueError, ValidationError):
        raise ValueError("not a cursor") from None
    if found != kind or len(names) != ids or abs(time) > _LARGEST:
        raise ValueError(f"not a cursor of the list of {kind}")
    return time, names
