"""Beginning a fork: its first turn copies what the run it was forked from has left.

The copy is a function of that log, which only grows, and of the header: a turn that dies in between
is followed by one that goes on where it stopped. Large logs are copied in several commits.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from stepwell.core import events as e
from stepwell.core.decide import first_event
from stepwell.core.forking import copied, read_edits
from stepwell.core.records import is_reference
from stepwell.engine import map_values
from stepwell.engine.handing_on import put_recorded
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import ForkRefused


def is_behind(turn: TurnContext) -> bool:
    """Whether the run is a fork whose copy is not complete."""
    return turn.header.forked_from is not None and not turn.state.lives.forked


async def copy(turn: TurnContext) -> list[e.Event]:
    """Copy what is not copied yet, durably. The events.

    Raises `ForkRefused` when the run to be copied from was deleted meanwhile.
    """
    header, fork = turn.header, turn.header.forked_from
    assert fork is not None
    rows = await turn.ports.store.load(fork.run_id)
    source = [event for commit in rows.commits for event in commit.events]
    edits = None if fork.edits is None else await turn.values.get(fork.edits)
    try:
        events = copied(
            source,
            fork,
            turn.run_id,
            input=header.input,
            edits=read_edits(edits),
            at=header.created_at,
        )
    except IndexError:
        raise ForkRefused(
            turn.run_id, f"run {fork.run_id!r} was deleted before it was copied; nothing has begun"
        ) from None
    left = [await _own(turn, event) for event in events[turn.state.last :]]
    turn.inbox.update(await put_recorded(turn.ports, turn.values, turn.run_id, events))
    for event in left:
        turn.journal.record(event)
    await turn.journal.flush()
    turn.journal.loaded = turn.state.last  # code has been there, though in another run
    return left


async def refuse(turn: TurnContext) -> None:
    """Begin the log of a fork that cannot be copied, for its end to be written."""
    if turn.state.started is None:
        turn.journal.record(first_event(turn.header))


async def _own(turn: TurnContext, event: e.Event) -> e.Event:
    """The event with its large values as this run's own: the other run's go with it."""
    changes: dict[str, Any] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _VALUES and isinstance(value, str) and is_reference(value):
            changes[field.name] = await turn.values.own(value)
    event = replace(event, **changes) if changes else event
    return await map_values.owned(turn.values, event, _BLOCK)


#: Bytes of a block of a map that stay in its event.
_BLOCK = 256
_VALUES = frozenset({"input", "result", "payload", "context", "question"})
