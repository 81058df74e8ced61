"""Laws of what comes into a run: entries of its inbox, and requests to go on."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.core import events as e
from stepwell.core.records import InboxRow
from stepwell.core.state import RunState
from stepwell.testing.facts import RunFacts


def check_inbox(events: Sequence[e.Event]) -> None:
    """An entry is recorded once, and so is a request; a workflow that waits suspends not again."""
    seen: set[str] = set()
    suspended = False
    for number, event in enumerate(events, 1):
        identity = ""
        if isinstance(event, e.InboxReceived):
            identity = f"entry {event.entry!r}"
        elif isinstance(event, e.LookRequested | e.GuardsReplaced):
            identity = f"request {event.request_id!r}"
        elif isinstance(event, e.RunSuspended):
            assert not suspended, f"event {number}: the workflow is suspended already"
            suspended = True
        elif isinstance(event, e.RunRetried):
            suspended = False
        if identity:
            assert identity not in seen, f"event {number}: {identity} is recorded again"
            seen.add(identity)
            suspended = False


def check_entries(facts: RunFacts) -> None:
    """What the log has received stands in a row, and says the same."""
    rows = {row.entry_id: row for row in facts.rows.inbox}
    for number, event in enumerate(facts.events, 1):
        if isinstance(event, e.InboxReceived):
            row = rows.get(event.entry)
            said = None if row is None else (row.key, row.payload, row.actor)
            told = (event.key, event.payload, event.actor)
            assert said == told, f"event {number}: {event.entry!r} is {told}, its row: {said}"


def check_taken(state: RunState, rows: Sequence[InboxRow]) -> None:
    """A run that goes on has been told of all its entries."""
    left = [row.entry_id for row in rows if row.entry_id not in state.entries]
    assert state.terminal or not left, f"entries of the inbox that the log does not tell of: {left}"
