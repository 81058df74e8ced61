"""The law of a fork: it begins with a function of the log that it was forked from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from stepwell.core.events import Event, MapEnded, MapStarted, RunForked
from stepwell.core.forking import copied, editable
from stepwell.core.records import Fork, is_reference, reference_key
from stepwell.testing.facts import RunFacts


def check_forks(found: Mapping[str, RunFacts]) -> None:
    """Of each fork whose original is there still: its copies say what the original says.

    What an edit stands for is left out, and whose a large value is.
    """
    for facts in found.values():
        header = facts.rows.header
        if header is None or header.deleted_at is not None or header.forked_from is None:
            continue
        source = found.get(header.forked_from.run_id)
        if source is not None and source.events:
            _check_copy(facts, header.forked_from, source)


def _check_copy(facts: RunFacts, fork: Fork, source: RunFacts) -> None:
    where = f"run {facts.run_id!r}, forked from {fork.run_id!r} at event {fork.event}"
    asked = RunForked(at=0, source=fork.run_id, event=fork.event, actor=fork.actor)
    ends = [n for n, each in enumerate(facts.events) if _is(each, asked)]
    if not ends:
        return  # it is not copied yet, or could not be
    assert len(ends) == 1, f"{where}: it was copied {len(ends)} times"
    history = facts.history[: ends[0] + 1]
    first: Any = history[0]
    expected = copied(
        source.history, fork, facts.run_id, input=first.input, edits={}, at=history[-1].at
    )
    edited = fork.edits is not None
    said, told = ([_bare(each, edited) for each in log] for log in (history, expected))
    assert said == told, f"{where}: it begins with {said}, and should with {told}"


def _is(event: Event, asked: RunForked) -> bool:
    return isinstance(event, RunForked) and replace(event, at=0) == asked


def _bare(event: Event, edited: bool) -> Event:
    changes: dict[str, Any] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, str) and is_reference(value):
            changes[field.name] = reference_key(value).rpartition("/")[2]
    if edited and editable(event):
        changes |= {name: "" for name in ("result", "payload") if hasattr(event, name)}
    if isinstance(event, MapStarted | MapEnded):
        # Their blocks are cut at another size.
        changes |= {name: () for name in ("inputs", "outcomes") if hasattr(event, name)}
    return replace(event, **changes) if changes else event
