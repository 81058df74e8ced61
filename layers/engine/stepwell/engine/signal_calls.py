"""What code asks of signals, performed: those that it emits, and looks at those that wait."""

from __future__ import annotations

from dataclasses import replace

from stepwell.core import events as e
from stepwell.core.commands import EmitSignal, PollInbox
from stepwell.core.signals import SentSignal, StreamKey, dump_numbered, emitted_signal_id
from stepwell.engine.endings import Raised
from stepwell.engine.replay import Replay
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import PayloadError

#: Signals that one look reads at most, of all types.
_READ = 1_000


class SignalCalls:
    """Performs the commands about signals of one turn."""

    def __init__(self, turn: TurnContext, replay: Replay) -> None:
        self._turn = turn
        self._replay = replay
        #: What is to be done now.
        self.ready: list[EmitSignal | PollInbox] = []

    async def perform(self) -> None:
        """Record what is ready; a signal is sent once that is durable."""
        commands, self.ready = self.ready, []
        for command in commands:
            if isinstance(command, PollInbox):
                await self._poll(command)
            else:
                await self._emit(command)

    async def perform_last(self) -> None:
        """Record what the code emitted as the last that it did: its end takes nothing back."""
        fresh, self._replay.fresh = self._replay.fresh, []
        for command in [*self.ready, *fresh]:
            if isinstance(command, EmitSignal):
                await self._emit(command)
        self.ready = []

    async def _emit(self, command: EmitSignal) -> None:
        turn, draft = self._turn, command.draft
        values = turn.values.of(draft.key.owner)
        owner = f"payload of signal {draft.type!r}"
        try:
            payload = await values.put(draft.payload, owner)
            metadata = draft.metadata
            if metadata is not None:
                metadata = await values.put(metadata, f"metadata of signal {draft.type!r}")
        except PayloadError as error:
            self._replay.outcome = Raised(error)
            return
        place = f"{command.id}:{draft.digest}"
        event = e.SignalEmitted(
            at=turn.journal.now(),
            emit=command.id,
            stream=draft.key.stream,
            stream_run=draft.key.run,
            signal_id=draft.signal_id(emitted_signal_id(turn.run_id, place)),
            signal_type=draft.type,
            payload=payload,
            digest=draft.digest,
            metadata=metadata,
            due=command.due,
        )
        turn.journal.record(event)
        turn.outbox.put(turn.state.last, event)

    async def _poll(self, command: PollInbox) -> None:
        turn, known = self._turn, self._turn.state.subscription
        assert known is not None
        assert known.current is not None
        key = StreamKey(known.stream, known.stream_run)
        found = await turn.ports.streams.read(key, after=known.cursor, limit=_READ)
        settled = {known.current.sequence, *known.ahead}
        wanted = [
            each
            for each in found
            if each.signal.type in command.types and each.sequence not in settled
        ]
        whole = [
            each._replace(signal=await self._whole(each.signal)) for each in wanted[: command.limit]
        ]
        text = await turn.values.put(dump_numbered(whole), "signals that wait")
        event = e.InboxPolled(at=turn.journal.now(), poll=command.id, signals=text)
        turn.journal.record(event)
        self._replay.feed(event)

    async def _whole(self, sent: SentSignal) -> SentSignal:
        """A signal with its values in place, so that the log alone can be replayed."""
        values, metadata = self._turn.values, sent.metadata
        return replace(
            sent,
            payload=await values.get(sent.payload),
            metadata=None if metadata is None else await values.get(metadata),
        )
