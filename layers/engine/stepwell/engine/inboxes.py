"""Inboxes from outside: an entry is sent to its run, then put as a row; rows never change.

A caller who dies in between has sent a message that is sufficient: the turn puts the row. Two puts
under one entry id are one entry, and the row says which of them it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stepwell.authoring.checkpoints import checkpoint_type
from stepwell.core.decide import entry_of
from stepwell.core.ids import check_key, check_note
from stepwell.core.messages import InboxPut, LookAgain
from stepwell.core.payload import codec
from stepwell.core.records import GuardChange, InboxRow, Millis, RunHeader
from stepwell.engine.handing_on import put_recorded
from stepwell.engine.headers import found_run, last_link
from stepwell.engine.ports import Ports, RunRows
from stepwell.engine.values import Values
from stepwell.errors import EntryConflict, RunEnded, RunNotFound


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """An entry of a run's inbox. `event` is the number of the event that recorded it, None so far.

    The latest entry of a key that was recorded is what the run sees under it.
    """

    run_id: str
    entry_id: str
    key: str
    value: Any
    sent_at: Millis
    actor: str | None = None
    event: int | None = None


class Inboxes:
    """The inboxes of one deployment, as those see them who send. See `Client`."""

    def __init__(self, ports: Ports, values: Values) -> None:
        self._ports = ports
        self._values = values
        self._last: Millis = 0

    def _next(self) -> Millis:
        """The time of the next entry: what one sender sends in turn, is ordered so."""
        self._last = max(self._ports.clock.now(), self._last + 1)
        return self._last

    async def put(
        self, run_id: str, key: str, value: Any, entry_id: str | None, actor: str | None
    ) -> InboxEntry:
        """Append an entry, with the errors of `Client.put_inbox`."""
        check_key("inbox", key)
        check_note("actor", actor)
        if entry_id is not None:
            check_key("entry", entry_id)
        owner = f"inbox value {key!r}"
        text = codec(checkpoint_type(value, None), owner).encode(value)
        message = InboxPut(
            run_id=run_id,
            entry_id=self._ports.ids.new_id() if entry_id is None else entry_id,
            key=key,
            payload=await self._values.of(run_id).put(text, owner),
            sent_at=self._next(),
            actor=actor,
        )
        header = await self._header(run_id)
        run_id = header.run_id
        message = message.model_copy(update={"run_id": run_id})
        if _has_ended(header):
            standing = _standing(await self._ports.store.load(run_id), message.entry_id)
            if standing is None:
                raise RunEnded(run_id, header.status, "it takes no more input")
        else:
            if entry_id is not None:
                await self._put_copied(header)
            await self._ports.queue.send(message)
            standing = await self._ports.store.put_inbox(entry_of(message))
        if (standing.key, standing.payload) != (key, message.payload):
            raise EntryConflict(run_id, standing.entry_id)
        return _shown(standing, text, None)

    async def _put_copied(self, header: RunHeader) -> None:
        """Put the entries that a fork will begin with, before its first turn does.

        An entry that was sent to the other run under the same id is there already, then.
        """
        fork = header.forked_from
        if fork is None or header.last_event:
            return
        rows = await self._ports.store.load(fork.run_id)
        events = [event for commit in rows.commits for event in commit.events][: fork.event]
        await put_recorded(self._ports, self._values, header.run_id, events)

    async def entries(self, run_id: str) -> tuple[InboxEntry, ...]:
        """All entries of a run, oldest first. Raises `RunNotFound`."""
        rows = await self._ports.store.load(run_id)
        found_run(rows.header, run_id)
        events = [event for commit in rows.commits for event in commit.events]
        numbers = {
            event.entry: number
            for number, event in enumerate(events, 1)
            if event.type == "InboxReceived"
        }
        return tuple(
            [
                _shown(row, await self._values.get(row.payload), numbers.get(row.entry_id))
                for row in sorted(rows.inbox, key=lambda row: (row.sent_at, row.entry_id))
            ]
        )

    async def resume(
        self, run_id: str, actor: str | None, change: GuardChange | None = None
    ) -> None:
        """Have a run look again, with the errors of `Client.resume`."""
        check_note("actor", actor)
        header = await self._header(run_id)
        run_id = header.run_id
        if _has_ended(header):
            raise RunEnded(run_id, header.status, "there is nothing to go on with")
        await self._ports.queue.send(
            LookAgain(
                run_id=run_id,
                request_id=self._ports.ids.new_id(),
                change=change,
                actor=actor,
            )
        )

    async def _header(self, run_id: str) -> RunHeader:
        """The run that an entry goes to: the last of those that it has gone on as."""
        header = await last_link(self._ports, run_id)
        if header is None:
            raise RunNotFound(run_id)
        return header


def _has_ended(header: RunHeader) -> bool:
    # What is sent to a run that goes on as another one, is handed on.
    return header.status.terminal and header.continued_to is None


def _standing(rows: RunRows, entry_id: str) -> InboxRow | None:
    return next((row for row in rows.inbox if row.entry_id == entry_id), None)


def _shown(row: InboxRow, text: str, event: int | None) -> InboxEntry:
    return InboxEntry(
        row.run_id, row.entry_id, row.key, json.loads(text), row.sent_at, row.actor, event
    )
