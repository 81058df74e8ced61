"""Signals that code emits: on the replay, and on their way out.

`SignalEmitted` is durable before its signal is sent; it is sent before the header names the event.
So a turn that finds a header behind its log sends again what lies between, and that changes
nothing: a signal's id is made from its run and the place in its code.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from stepwell.authoring.context import RunContext
from stepwell.core import events as e
from stepwell.core.commands import Command, EmitSignal
from stepwell.core.durations import due_at
from stepwell.core.messages import SignalSent
from stepwell.core.records import Payload
from stepwell.core.signals import (
    NumberedSignal,
    SentSignal,
    SignalDraft,
    StreamKey,
    emitted_signal_id,
    load_numbered,
)
from stepwell.core.state import RunState
from stepwell.engine.journal import Journal
from stepwell.engine.loop import DeterministicLoop
from stepwell.engine.pending import Pending
from stepwell.engine.ports import Ports
from stepwell.errors import DurationLike, UsageError

if TYPE_CHECKING:
    from stepwell.engine.turn_context import TurnContext


class Emitting(RunContext):
    """The part of a replay that is about signals."""

    loop: DeterministicLoop
    fresh: list[Command]
    _state: RunState
    _texts: Mapping[Payload, str]
    _over: bool

    def emit(
        self, draft: SignalDraft, when: DurationLike | datetime | None = None
    ) -> Coroutine[Any, Any, SentSignal]:
        """Emit a signal, now or at a time, and go on."""
        return self._make(self._emit(draft, when), "emit")

    async def _emit(self, draft: SignalDraft, when: DurationLike | datetime | None) -> SentSignal:
        if self._over:
            await self._come_late()
        # Nothing else has a name that begins so.
        identity = self.loop.scope().identify(f"~emit.{draft.key.stream}")
        due = None if when is None else due_at(when, self.loop.now)
        command = EmitSignal(identity, draft, due)
        self._ask(command)
        known = self._state.emits.get(identity)
        if known is None:
            self.fresh.append(command)
        elif known.digest != draft.digest:
            self._refuse(_told(identity, known.digest), command, _told(identity, draft.digest))
        return SentSignal(
            signal_id=draft.signal_id(emitted_signal_id(self.run_id, identity)),
            type=draft.type,
            payload=draft.payload,
            published_at=self.loop.now,
            metadata=draft.metadata,
            source_run_id=self.run_id,
        )

    def poll_inbox(
        self,
        types: tuple[str, ...],  # noqa: ARG002 - those of a subscription
        limit: int,  # noqa: ARG002
    ) -> Coroutine[Any, Any, Sequence[NumberedSignal]]:
        """Only subscriptions have signals that wait."""
        raise UsageError("poll_inbox: only the lifecycle of a stream step has waiting signals")

    def _inbox_polled(self, event: e.InboxPolled, _: object) -> None:
        pending = self._take(event.poll, event)
        if pending is not None and pending.future is not None:
            text = self._texts.get(event.signals, event.signals)
            pending.future.set_result(load_numbered(text))

    @abstractmethod
    def _take(self, identity: str, event: e.Event) -> Pending | None: ...

    @abstractmethod
    def _make(self, primitive: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]: ...

    @abstractmethod
    def _ask(self, command: Command) -> None: ...

    @abstractmethod
    async def _come_late(self) -> NoReturn: ...

    @abstractmethod
    def _refuse(self, recorded: str, command: Command, asked: str, hint: str = "") -> NoReturn: ...


def _told(identity: str, digest: str) -> str:
    return f"signal {identity!r} with content {digest}"


class Outbox:
    """Signals of one run that are recorded, and not known to have been sent."""

    def __init__(self, ports: Ports, run_id: str, journal: Journal) -> None:
        self._ports = ports
        self._run_id = run_id
        self._journal = journal
        self._left: list[tuple[int, e.SignalEmitted]] = []

    def put(self, number: int, event: e.SignalEmitted) -> None:
        """A signal is recorded as event `number`."""
        self._left.append((number, event))

    def put_unsent(self, log: Iterable[tuple[int, e.Event]], sent: int) -> None:
        """Put all those in a log behind event `sent`."""
        for number, event in log:
            if number > sent and isinstance(event, e.SignalEmitted):
                self.put(number, event)

    async def send(self) -> None:
        """Send those that are durable, in the order in which they were emitted."""
        durable = self._journal.durable
        ready = [event for number, event in self._left if number <= durable]
        if not ready:
            return
        now = [self._message(event) for event in ready if event.due is None]
        if now:
            await self._ports.signals.send(now)
        for event in ready:
            if event.due is not None:
                await self._ports.signal_timers.schedule(self._message(event))
        self._left = self._left[len(ready) :]

    @property
    def waits(self) -> bool:
        """Whether something durable is left to be sent."""
        return bool(self._left) and self._left[0][0] <= self._journal.durable

    def _message(self, event: e.SignalEmitted) -> SignalSent:
        return SignalSent.of(
            StreamKey(event.stream, event.stream_run),
            SentSignal(
                signal_id=event.signal_id,
                type=event.signal_type,
                payload=event.payload,
                published_at=event.at,
                metadata=event.metadata,
                source_run_id=self._run_id,
            ),
            event.due,
        )


async def send_from_step(
    turn: TurnContext, draft: SignalDraft, place: str, when: DurationLike | datetime | None
) -> SentSignal:
    """Send a signal from a step's body, at once: `place` is the same for each attempt's same call."""
    values, now = turn.values.of(draft.key.owner), turn.ports.clock.now()
    payload = await values.put(draft.payload, f"payload of signal {draft.type!r}")
    metadata = draft.metadata
    if metadata is not None:
        metadata = await values.put(metadata, f"metadata of signal {draft.type!r}")
    sent = SentSignal(
        signal_id=draft.signal_id(emitted_signal_id(turn.run_id, place)),
        type=draft.type,
        payload=payload,
        published_at=now,
        metadata=metadata,
        source_run_id=turn.run_id,
    )
    if when is None:
        await turn.ports.signals.send([SignalSent.of(draft.key, sent)])
    else:
        message = SignalSent.of(draft.key, sent, due_at(when, now))
        await turn.ports.signal_timers.schedule(message)
    return replace(sent, payload=draft.payload, metadata=draft.metadata)
