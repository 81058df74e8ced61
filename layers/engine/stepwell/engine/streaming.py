"""Streams from outside: signals sent and read, subscriptions looked at, parked signals mended."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from stepwell.core.answers import problems
from stepwell.core.durations import due_at
from stepwell.core.ids import check_note
from stepwell.core.messages import MendSignal, SignalSent
from stepwell.core.records import Glance, Millis, Payload, RunHeader
from stepwell.core.signals import (
    NumberedSignal,
    SentSignal,
    SignalDraft,
    StreamHead,
    StreamKey,
    SubscriptionRow,
)
from stepwell.core.state import fold_commits
from stepwell.core.subscription import ParkedSignal, SubscriptionStatus
from stepwell.engine.headers import found_run
from stepwell.engine.ports import Ports
from stepwell.engine.values import Values
from stepwell.errors import (
    DurationLike,
    RunEnded,
    SignalNotParked,
    SignalRejected,
    StreamEnded,
    SubscriptionNotFound,
)

#: Signals that are read at a time while others than the wanted ones are passed over.
_PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStanding:
    """A subscription as it stands.

    `lag` counts the signals that are for it and not done with: one under way, and those that wait
    or are held. After its end there is none; then `ignored` counts those that it will not take.
    Both are exact unless a deployment changed its types, or the stream run has more types than
    `core.signals.TYPES_COUNTED`.
    """

    step: str
    run_id: str
    types: tuple[str, ...]
    status: SubscriptionStatus | Literal["failed"]
    cursor: int
    lag: int
    ignored: int
    handled: int
    parked: int
    discarded: int
    blocked_by: int | None = None
    reason: str | None = None
    attention: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStanding:
    """A stream run as it stands. `status` is None while nobody owns it: nobody has subscribed.

    `last` is the number of its last signal, `run_id` the run that owns it or would.
    """

    stream: str
    stream_run: str
    run_id: str
    last: int
    last_signal_at: Millis | None
    status: Literal["running", "suspended", "completed", "failed", "cancelled"] | None
    reason: str | None
    subscriptions: tuple[SubscriptionStanding, ...]


class Streaming:
    """The streams of one deployment. See `Client`."""

    def __init__(self, ports: Ports, values: Values) -> None:
        self._ports = ports
        self._values = values

    async def send(
        self, drafts: Sequence[SignalDraft], when: DurationLike | datetime | None
    ) -> tuple[SentSignal, ...]:
        """Send signals, now or at a time; durable when it returns."""
        for key in {draft.key for draft in drafts}:
            header = await self._ports.store.get_header(key.owner)
            if header is not None and header.status.terminal:
                raise StreamEnded(*key)
        await self._check(drafts)
        now = self._ports.clock.now()
        due = None if when is None else due_at(when, now)
        messages = [await self._message(draft, now, due) for draft in drafts]
        if due is None:
            await self._ports.signals.send(messages)
        else:
            for message in messages:
                await self._ports.signal_timers.schedule(message)
        return tuple(message.signal for message in messages)

    async def _message(self, draft: SignalDraft, now: Millis, due: Millis | None) -> SignalSent:
        values = self._values.of(draft.key.owner)
        what = f"signal {draft.type!r}"
        metadata = draft.metadata
        sent = SentSignal(
            signal_id=draft.signal_id(f"sig_{self._ports.ids.new_id()}"),
            type=draft.type,
            payload=await values.put(draft.payload, f"payload of {what}"),
            published_at=now,
            metadata=None
            if metadata is None
            else await values.put(metadata, f"metadata of {what}"),
        )
        return SignalSent.of(draft.key, sent, due)

    async def _check(self, drafts: Sequence[SignalDraft]) -> None:
        """Check payloads against what is published. Raises `SignalRejected`."""
        published: dict[str, dict[str, Any]] = {}
        for stream in {draft.key.stream for draft in drafts}:
            known = await self._ports.store.get_definition(stream)
            if known is not None and known.signals is not None:
                published[stream] = json.loads(known.signals)
        for draft in drafts:
            for step, schema in published.get(draft.key.stream, {}).get(draft.type, {}).items():
                found = problems(json.dumps(schema), draft.payload) if schema is not None else []
                if found:
                    raise SignalRejected(*draft.key, draft.type, step, found)

    async def unschedule(self, key: StreamKey, signal_id: str) -> None:
        """Take a scheduled signal back."""
        await self._ports.signal_timers.cancel(key, signal_id)

    async def read(
        self,
        key: StreamKey,
        *,
        after: int,
        before: int | None,
        types: Collection[str] | None,
        source_run_id: str | None,
        limit: int,
    ) -> tuple[NumberedSignal, ...]:
        """Signals in a range, with their values in place."""
        if after < 0 or limit < 1:
            raise ValueError(f"after must be at least 0 and limit 1, not {after} and {limit}")
        found: list[NumberedSignal] = []
        while len(found) < limit:
            page = await self._ports.streams.read(key, after=after, limit=_PAGE)
            for each in page:
                if before is not None and each.sequence >= before:
                    page = ()
                    break
                if _is_wanted(each.signal, types, source_run_id):
                    found.append(each)
            if len(page) < _PAGE:
                break
            after = page[-1].sequence
        return tuple([await self._whole(each) for each in found[:limit]])

    async def _whole(self, found: NumberedSignal) -> NumberedSignal:
        sent = found.signal
        return found._replace(
            signal=SentSignal(
                signal_id=sent.signal_id,
                type=sent.type,
                payload=await self._values.get(sent.payload),
                published_at=sent.published_at,
                metadata=await self._text(sent.metadata),
                source_run_id=sent.source_run_id,
            )
        )

    async def _text(self, payload: Payload | None) -> str | None:
        return None if payload is None else await self._values.get(payload)

    async def standing(self, key: StreamKey) -> StreamStanding:
        """A stream run and its subscriptions."""
        head = await self._ports.streams.head(key)
        rows = await self._ports.streams.subscriptions(key)
        subscriptions = tuple([await self._subscription(row, head) for row in rows])
        owner = await self._ports.store.get_header(key.owner)
        return StreamStanding(
            stream=key.stream,
            stream_run=key.run,
            run_id=key.owner,
            last=0 if head is None else head.last,
            last_signal_at=None if head is None else head.updated_at,
            status=_status(owner, subscriptions),
            reason=next((e.reason for e in subscriptions if e.status == "suspended"), None),
            subscriptions=subscriptions,
        )

    async def _subscription(
        self, row: SubscriptionRow, head: StreamHead | None
    ) -> SubscriptionStanding:
        header = await self._ports.store.get_header(row.run_id)
        glance = None if header is None else header.subscription
        status: Any = "waiting" if glance is None else glance.status
        if header is not None and header.status.terminal and status not in _ENDED:
            status = "cancelled" if header.status == "CANCELLED" else "failed"
        cursor = 0 if glance is None else glance.cursor
        note = None if header is None else header.attention
        left = _left(row, glance, head)
        ended = row.ended or status in (*_ENDED, "failed")
        return SubscriptionStanding(
            step=row.step,
            run_id=row.run_id,
            types=row.types,
            status=status,
            cursor=cursor,
            lag=0 if ended else left,
            ignored=left if ended else 0,
            handled=0 if glance is None else glance.handled,
            parked=0 if glance is None else glance.parked,
            discarded=0 if glance is None else glance.discarded,
            blocked_by=None if glance is None else glance.blocked_by,
            reason=None if glance is None else glance.reason,
            attention=None if note is None else note.kind,
        )

    async def parked(self, key: StreamKey, step: str) -> tuple[ParkedSignal, ...]:
        """The parked signals of a subscription."""
        return await self._parked((await self._header_of(key, step)).run_id)

    async def _parked(self, run_id: str) -> tuple[ParkedSignal, ...]:
        rows = await self._ports.store.load(run_id)
        known = fold_commits(rows.commits).subscription
        return () if known is None else known.parked

    async def mend(
        self,
        key: StreamKey,
        step: str,
        sequence: int,
        action: Literal["redrive", "discard"],
        actor: str | None,
    ) -> None:
        """Have a parked signal handled again, or give it up."""
        check_note("actor", actor)
        header = await self._header_of(key, step)
        if header.status.terminal:
            raise RunEnded(header.run_id, header.status, "it takes no signals any more")
        if sequence not in {each.sequence for each in await self._parked(header.run_id)}:
            raise SignalNotParked(*key, step, sequence)
        await self._ports.queue.send(
            MendSignal(
                run_id=header.run_id,
                request_id=self._ports.ids.new_id(),
                sequence=sequence,
                action=action,
                actor=actor,
            )
        )

    async def _header_of(self, key: StreamKey, step: str) -> RunHeader:
        for row in await self._ports.streams.subscriptions(key):
            if row.step == step:
                header = await self._ports.store.get_header(row.run_id)
                return found_run(header, row.run_id)
        raise SubscriptionNotFound(*key, step)


_ENDED = ("terminated", "cancelled")


def _is_wanted(sent: SentSignal, types: Collection[str] | None, source_run_id: str | None) -> bool:
    return (types is None or sent.type in types) and (
        source_run_id is None or sent.source_run_id == source_run_id
    )


def _left(row: SubscriptionRow, glance: Glance | None, head: StreamHead | None) -> int:
    """Signals that are for a subscription and that it has not done with."""
    if head is None:
        return 0
    taken, cursor = (0, 0) if glance is None else (glance.taken, glance.cursor)
    return min(max(head.count(row.types) - taken, 0), max(head.last - cursor, 0))


def _status(owner: RunHeader | None, subscriptions: Sequence[SubscriptionStanding]) -> Any:
    if owner is None:
        return None
    if owner.status.terminal:
        return owner.status.value.lower()
    states = {each.status for each in subscriptions} - {*_ENDED}
    return "suspended" if states == {"suspended"} else "running"
