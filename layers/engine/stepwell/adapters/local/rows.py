"""Rows of runs and hooks, as the tables hold them, and back."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter

from pydantic import TypeAdapter

from stepwell.adapters.local.database import Row
from stepwell.core.records import HookRow, HookStatus, RunHeader

_HEADER: TypeAdapter[RunHeader] = TypeAdapter(RunHeader)

#: A hook has a column for each of its fields, in their order.
HOOK_FIELDS = tuple(field.name for field in fields(HookRow))
HOOK_COLUMNS = ", ".join(HOOK_FIELDS)
#: The values of a hook's columns.
hook_values = attrgetter(*HOOK_FIELDS)


def dump_header(header: RunHeader) -> bytes:
    """A header as the body of its row."""
    return _HEADER.dump_json(header, exclude_none=True)


def read_header(body: str, cancel_requested: int) -> RunHeader:
    """The header that a row holds; its flag is the column, which can be set without the body."""
    header = _HEADER.validate_json(body)
    if header.cancel_requested == bool(cancel_requested):
        return header
    return replace(header, cancel_requested=bool(cancel_requested))


def read_hook(row: Row) -> HookRow:
    """The hook that a row of `HOOK_COLUMNS` holds."""
    values = dict(zip(HOOK_FIELDS, row, strict=True))
    values["status"] = HookStatus(values["status"])
    return HookRow(**values)
