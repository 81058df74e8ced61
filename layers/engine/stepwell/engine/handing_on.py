"""What a run's inbox holds, handed on to the run that goes on in its place.

Harmless when repeated: entries keep their ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stepwell.core import events as e
from stepwell.core.decide import entry_of
from stepwell.core.messages import InboxPut
from stepwell.core.records import InboxRow
from stepwell.core.state import RunState
from stepwell.engine.ports import Ports
from stepwell.engine.values import Values


async def hand_on(
    ports: Ports, values: Values, rows: Iterable[InboxRow], state: RunState, run_id: str
) -> None:
    """Put the latest entry of each key that the run has seen, and all that it has not.

    Before the other run is started: its first turn finds the rows.
    """
    by_time = sorted(rows, key=lambda row: (row.sent_at, row.entry_id))
    latest = {row.key: row.entry_id for row in by_time if row.entry_id in state.entries}
    for row in by_time:
        if row.entry_id not in state.entries or latest[row.key] == row.entry_id:
            payload = await values.of(run_id).own(row.payload)
            await ports.store.put_inbox(replace(row, run_id=run_id, payload=payload))


async def put_recorded(
    ports: Ports, values: Values, run_id: str, events: Iterable[e.Event]
) -> dict[str, InboxRow]:
    """Put the entries that a log tells of which came from elsewhere; the rows by entry id.

    Before that log: a run has rows of all that it has recorded. They are ordered as it has them.
    """
    found: dict[str, InboxRow] = {}
    sent_at = 0
    for event in events:
        if isinstance(event, e.InboxReceived):
            sent_at = max(event.at, sent_at + 1)
            row = InboxRow(
                run_id=run_id,
                entry_id=event.entry,
                key=event.key,
                payload=await values.of(run_id).own(event.payload),
                sent_at=sent_at,
                actor=event.actor,
            )
            found[event.entry] = await ports.store.put_inbox(row)
    return found


async def forward_entry(ports: Ports, values: Values, message: InboxPut, run_id: str) -> None:
    """Pass on an entry that came for a run after it had gone on as another one."""
    payload = await values.of(run_id).own(message.payload)
    message = message.model_copy(update={"run_id": run_id, "payload": payload})
    await ports.store.put_inbox(entry_of(message))
    await ports.queue.send(message)
