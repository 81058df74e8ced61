"""Runs as files: header, history, hooks and inbox of one, with its values in place.

The text is JSON of a version that it names. Taken into a deployment, a run that goes on is paused
there: whoever looks at a copy does not mean to do its steps a second time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

from stepwell.core.events import Commit, Event, dump_events, load_events
from stepwell.core.records import Attention, HookRow, InboxRow, Payload, RunHeader, is_reference
from stepwell.core.state import fold
from stepwell.engine import map_values
from stepwell.engine.handing_on import put_recorded
from stepwell.engine.headers import found_run
from stepwell.engine.ports import Ports
from stepwell.engine.values import Values
from stepwell.errors import RunExists

#: The version that is written; older ones are read.
FORMAT = 2
_VALUES = ("input", "result", "payload")
#: Events of one commit, when a run is taken in.
_COMMIT = 50
#: Bytes of a block of a map that stay in its event.
_BLOCK = 256
_TURN = "imported"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Archive:
    """One run. Files of the first version held no header and no hooks, others may hold no inbox."""

    run_id: str
    events: tuple[Event, ...]
    header: RunHeader | None = None
    hooks: tuple[HookRow, ...] = ()
    inbox: tuple[InboxRow, ...] = ()


# Compiled on first use: whoever imports this module need not ever read or write an archive.
@cache
def _header_type() -> TypeAdapter[RunHeader]:
    return TypeAdapter(RunHeader)


@cache
def _hooks_type() -> TypeAdapter[tuple[HookRow, ...]]:
    return TypeAdapter(tuple[HookRow, ...])


@cache
def _inbox_type() -> TypeAdapter[tuple[InboxRow, ...]]:
    return TypeAdapter(tuple[InboxRow, ...])


def dump_archive(archive: Archive) -> str:
    """A run as the text of a file, one event to a line."""
    assert archive.header is not None
    header = json.loads(_header_type().dump_json(archive.header, exclude_none=True))
    hooks = json.loads(_hooks_type().dump_json(archive.hooks))
    inbox = json.loads(_inbox_type().dump_json(archive.inbox, exclude_none=True))
    parts = [
        f'  "format": {FORMAT}',
        f'  "run_id": {json.dumps(archive.run_id)}',
        f'  "header": {json.dumps(header, ensure_ascii=False)}',
        f'  "hooks": {_lines(hooks)}',
        *([f'  "inbox": {_lines(inbox)}'] if inbox else []),
        f'  "events": {_lines(json.loads(dump_events(archive.events)))}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(items: Iterable[Any]) -> str:
    lines = ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in items)
    return f"[\n{lines}\n  ]" if lines else "[]"


def load_archive(text: str) -> Archive:
    """The run in a file's text. Raises `ValueError` on anything that is not one."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") not in (1, FORMAT):
        raise ValueError(f"not a run of format {FORMAT}")
    missing = [name for name in ("run_id", "events") if name not in data]
    if missing:
        raise ValueError(f"no {missing[0]!r} in it")
    events = load_events(json.dumps(data["events"]))
    if not events:
        raise ValueError("it has no events")
    if data["format"] == 1:
        return Archive(str(data["run_id"]), events)
    return Archive(
        run_id=str(data["run_id"]),
        events=events,
        header=_header_type().validate_python(data.get("header")),
        hooks=_hooks_type().validate_python(data.get("hooks", ())),
        inbox=_inbox_type().validate_python(data.get("inbox", ())),
    )


async def export_run(ports: Ports, values: Values, run_id: str) -> Archive:
    """A run of a deployment, its values in place. Raises `RunNotFound`, `BlobMissing`."""
    rows = await ports.store.load(run_id)
    header = found_run(rows.header, run_id)
    events = [event for commit in rows.commits for event in commit.events]
    return Archive(
        run_id=run_id,
        events=tuple(
            [await map_values.whole(values, await _with_values(values, each)) for each in events]
        ),
        header=await _with_values(values, header),
        hooks=tuple([await _with_values(values, hook) for hook in rows.hooks]),
        inbox=tuple([await _with_values(values, entry) for entry in rows.inbox]),
    )


async def _with_values(values: Values, record: T) -> T:
    changes: dict[str, Any] = {}
    for name in _VALUES:
        value: Payload | None = getattr(record, name, None)
        if value is not None and is_reference(value):
            changes[name] = await values.get(value)
    return replace(cast("Any", record), **changes) if changes else record


async def import_run(ports: Ports, values: Values, archive: Archive) -> None:
    """Take a run into a deployment. A crash in between is followed by doing it once more.

    Raises `RunExists` if another run has this id there, or this one has gone on since;
    `CorruptHistory` on a log that is none; `ValueError` on a file without a header.
    """
    if archive.header is None:
        raise ValueError("it has a history alone, which cannot be taken in")
    own = values.of(archive.run_id)
    state = fold(archive.events)
    header = await _as_stored(own, _imported(archive.header, state.last))
    standing = await ports.store.put_header(header)
    if standing != header:
        raise RunExists(archive.run_id)
    events = [
        await map_values.stored(own, await _as_stored(own, event), _BLOCK)
        for event in archive.events
    ]
    for entry in archive.inbox:
        await ports.store.put_inbox(await _as_stored(own, entry))
    # Of files that hold no inbox: entries that no event tells of are in none of these.
    await put_recorded(ports, values, archive.run_id, events)
    for number, first in enumerate(range(0, len(events), _COMMIT), 1):
        part = tuple(events[first : first + _COMMIT])
        commit = Commit(first=first + 1, turn=_TURN, number=number, events=part)
        if not await ports.store.append(archive.run_id, commit):
            raise RunExists(archive.run_id)
    for hook in archive.hooks:
        await ports.store.put_hook(await _as_stored(own, hook))


def _imported(header: RunHeader, last: int) -> RunHeader:
    """The header as it is put: kept for ever, and paused if the run has not ended."""
    header = replace(header, kept_until=None, last_event=last)
    if header.status.terminal:
        return header
    note = Attention(
        kind="PAUSED",
        reason="imported: resuming it does its steps here",
        since=header.updated_at,
        request_id=_TURN,
        before=header.note,
    )
    return replace(header, attention=note)


async def _as_stored(values: Values, record: T) -> T:
    changes: dict[str, Any] = {}
    for name in _VALUES:
        value: Payload | None = getattr(record, name, None)
        if value is not None and not is_reference(value):
            stored = await values.put(value, "an imported value")
            if stored != value:
                changes[name] = stored
    return replace(cast("Any", record), **changes) if changes else record
