"""Signals that code emits, on the replay. Pure: they are recorded and sent by others."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any

from stepwell.core import events as e
from stepwell.core.commands import EmitSignal
from stepwell.core.durations import due_at
from stepwell.core.signals import (
    NumberedSignal,
    SentSignal,
    SignalDraft,
    emitted_signal_id,
    load_numbered,
)
from stepwell.engine.asking import Asking
from stepwell.errors import DurationLike, UsageError


class Emitting(Asking):
    """The part of a replay that is about signals."""

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
        kept = identity in self._lives.kept  # of an earlier life: mended code may emit another
        if known is None or (kept and known.digest != draft.digest):
            self.fresh.append(command)
        elif known.digest != draft.digest:
            self._refuse(_told(identity, known.digest), command, _told(identity, draft.digest))
        return SentSignal(
            signal_id=draft.signal_id(emitted_signal_id(self.run_id, f"{identity}:{draft.digest}")),
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


def _told(identity: str, digest: str) -> str:
    return f"signal {identity!r} with content {digest}"
