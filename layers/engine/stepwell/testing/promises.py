"""Promises: what callers were told, to be held against what became of it.

A caller who was told that a run is started, that his answer counts or that a run will be cancelled
may rely on it, whatever dies afterwards; one who was refused must have been told the truth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwell.authoring.checkpoints import checkpoint_type
from stepwell.client import Client, InboxEntry, Resumed
from stepwell.client.streams import NewSignal, StreamLike
from stepwell.core import events as e
from stepwell.core.answers import decision_id
from stepwell.core.payload import codec
from stepwell.core.records import GuardChange, HookRow, HookStatus, RunStatus
from stepwell.core.signals import SignalDraft, StreamKey, is_subscription, stream_key
from stepwell.engine.catalogue import NamedStart
from stepwell.engine.ports import Ports
from stepwell.engine.settings import Settings
from stepwell.errors import DurationLike, HookAlreadyDecided, HookExpired, IdempotencyConflict
from stepwell.streams.signals import Signal
from stepwell.testing.facts import RunFacts


@dataclass(frozen=True, slots=True)
class _Start:
    digest: str
    accepted: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    hook_id: str
    decision_id: str
    status: int


class Promises:
    """What the callers of a deployment were told. It grows with every call, so it changes."""

    def __init__(self) -> None:
        self._starts: dict[str, list[_Start]] = {}
        self._answers: dict[str, list[_Answer]] = {}
        self._cancels: dict[str, int] = {}
        self._retries: list[tuple[str, int]] = []
        self._entries: dict[str, set[str]] = {}
        #: The ids of signals that were accepted, by stream run.
        self.signals: dict[StreamKey, set[str]] = {}

    @property
    def run_ids(self) -> frozenset[str]:
        """The runs that anything was said of."""
        return frozenset({*self._starts, *self._answers, *self._cancels, *self._entries})

    def started(self, run_id: str, digest: str) -> None:
        """A start was accepted, of a new run or of one that was there; `digest` of its input."""
        self._starts.setdefault(run_id, []).append(_Start(digest, accepted=True))

    def conflicted(self, run_id: str, digest: str) -> None:
        """A start was refused: its key had been used with another input."""
        self._starts.setdefault(run_id, []).append(_Start(digest, accepted=False))

    def answered(self, run_id: str, hook_id: str, decision_id: str) -> None:
        """An answer was accepted, for the first time or again."""
        self._answer(run_id, _Answer(hook_id, decision_id, 200))

    def answered_otherwise(self, run_id: str, hook_id: str, decision_id: str) -> None:
        """An answer, which would have been this decision, was refused: there was another one."""
        self._answer(run_id, _Answer(hook_id, decision_id, 409))

    def too_late(self, run_id: str, hook_id: str) -> None:
        """An answer was refused: the hook was closed or expired."""
        self._answer(run_id, _Answer(hook_id, "", 410))

    def sent(self, run_id: str, entry_id: str) -> None:
        """An entry of the inbox was accepted."""
        self._entries.setdefault(run_id, set()).add(entry_id)

    def signalled(self, key: StreamKey, signal_id: str) -> None:
        """A signal was accepted."""
        self.signals.setdefault(key, set()).add(signal_id)

    def withdrawn(self, key: StreamKey, signal_id: str) -> None:
        """A signal that was to be sent later was taken back: it may be sent all the same."""
        self.signals.get(key, set()).discard(signal_id)

    def cancelled(self, run_id: str) -> None:
        """A cancel was accepted."""
        self._cancels[run_id] = self._cancels.get(run_id, 0) + 1

    def retried(self, run_id: str, after: int) -> None:
        """A retry of the run, which had ended with event `after`, was accepted."""
        self._retries.append((run_id, after))

    def _answer(self, run_id: str, answer: _Answer) -> None:
        self._answers.setdefault(run_id, []).append(answer)

    def check(self, facts: RunFacts) -> None:
        """That all that was said of a run is true, as far as it can be seen by now."""
        run_id, header = facts.run_id, facts.rows.header
        if run_id in self.run_ids:
            assert header is not None, "promised to a caller, and there is no such run"
        if header is not None and header.deleted_at is not None:
            return  # what was promised of it was kept while it was there
        for start in self._starts.get(run_id, ()):
            same = header is not None and header.input_digest == start.digest
            assert same == start.accepted, f"a start with input {start.digest}: told {start}"
        for answer in self._answers.get(run_id, ()):
            _check_answer(answer, facts)
        for entry_id in self._entries.get(run_id, ()):
            there = any(row.entry_id == entry_id for row in facts.rows.inbox)
            assert there, f"entry {entry_id!r} of the inbox, told 202: it has no row"
        if run_id in self._cancels:
            _check_cancel(facts)
        for after in (after for retried, after in self._retries if retried == run_id):
            _check_retry(after, facts)


def _check_answer(answer: _Answer, facts: RunFacts) -> None:
    where = f"hook {answer.hook_id!r}, told {answer.status}"
    row = next((row for row in facts.rows.hooks if row.hook_id == answer.hook_id), None)
    if row is None and is_subscription(facts.run_id):
        return  # it was there until nobody asked for it any more
    assert row is not None, f"{where}: it has no row"
    received = row.status is HookStatus.RECEIVED
    stands = (row.status, row.decision_id)
    if answer.status == 410:
        ended = not received and row.status is not HookStatus.PENDING
        assert ended, f"{where}: it is {row.status}"
    else:
        same = row.decision_id == answer.decision_id
        true = received and same == (answer.status == 200)
        assert true, f"{where}: {stands}, the answer: {answer.decision_id!r}"
    if answer.status == 200:
        _check_taken(answer, facts, where)


def _check_taken(answer: _Answer, facts: RunFacts, where: str) -> None:
    """An accepted answer is recorded once and no other one is; at the latest when all rests."""
    about = [event for event in facts.events if getattr(event, "hook", None) == answer.hook_id]
    found = [
        (number, event)
        for number, event in enumerate(facts.events, 1)
        if isinstance(event, (e.HookReceived, e.HookExpired, e.HookClosed, e.HookFailed))
        and event.hook == answer.hook_id
    ]
    for number, event in found:
        taken = isinstance(event, e.HookReceived) and event.decision_id == answer.decision_id
        assert taken, f"event {number}: {where}: the run was told {event}"
    # A log that is read from a snapshot on tells no more of what came before.
    whole = not facts.rows.commits or facts.rows.commits[0].first == 1
    due = whole and _settled(facts) and (about or not _ended(facts))
    assert not due or len(found) == 1, f"{where}: the run was told {len(found)} times"


def _check_cancel(facts: RunFacts) -> None:
    # A retry is a life that the cancel was not about.
    about = (e.CancelRequested, e.RunRetried)
    told = [event for event in facts.events if isinstance(event, about)]
    waits = _settled(facts) and not _ended(facts)
    assert told or not waits, "cancelled, told 202: the run waits and does not know"


def _check_retry(after: int, facts: RunFacts) -> None:
    if _settled(facts):
        went_on = facts.events[after : after + 1]
        retried = went_on and isinstance(went_on[0], e.RunRetried)
        assert retried, f"retried after event {after}, told 202: {went_on}"


def _settled(facts: RunFacts) -> bool:
    """Whether all messages of the run were worked on, none of them in vain."""
    header = facts.rows.header
    note = None if header is None else header.attention
    return facts.at_rest and (note is None or note.kind != "STUCK")


def _ended(facts: RunFacts) -> bool:
    header = facts.rows.header
    return header is not None and header.status.terminal


def _key_of(signal: Signal) -> StreamKey:
    return stream_key(signal.stream_id, signal.stream_run_id)


class PromisingClient(Client):
    """A client that notes what it tells its callers."""

    def __init__(self, ports: Ports, settings: Settings, promises: Promises) -> None:
        super().__init__(ports, settings)
        self._promises = promises

    async def _start(self, workflow: str, start: NamedStart) -> tuple[str, bool]:
        # Both kinds of start come together here, with the digest that the run must have.
        try:
            run_id, repeated = await super()._start(workflow, start)
        except IdempotencyConflict as error:
            self._promises.conflicted(error.run_id, start.digest)
            raise
        self._promises.started(run_id, start.digest)
        return run_id, repeated

    async def resume_hook(
        self, token: str, payload: Any = None, *, actor: str | None = None
    ) -> Resumed:
        """As `Client.resume_hook`."""
        try:
            resumed = await super().resume_hook(token, payload, actor=actor)
        except (HookAlreadyDecided, HookExpired) as error:
            await self._refused(await self.get_hook(token), payload, error)
            raise
        self._promises.answered(resumed.run_id, resumed.hook_id, resumed.decision_id)
        return resumed

    async def _refused(self, row: HookRow, payload: Any, error: Exception) -> None:
        if isinstance(error, HookExpired):
            self._promises.too_late(row.run_id, row.hook_id)
            return
        text = codec(checkpoint_type(payload, None), "an answer").encode(payload)
        self._promises.answered_otherwise(row.run_id, row.hook_id, decision_id(row, text))

    async def cancel(
        self,
        run_id: str,
        reason: str | None = None,
        *,
        actor: str | None = None,
        wait: bool | DurationLike = False,
        force: bool = False,
    ) -> RunStatus:
        """As `Client.cancel`."""
        status = await super().cancel(run_id, reason, actor=actor, wait=wait, force=force)
        self._promises.cancelled(run_id)
        return status

    async def emit_all(
        self, stream: StreamLike, signals: Iterable[NewSignal], *, stream_run_id: str | None = None
    ) -> tuple[Signal, ...]:
        """As `Client.emit_all`."""
        sent = await super().emit_all(stream, signals, stream_run_id=stream_run_id)
        for each in sent:
            self._promises.signalled(_key_of(each), each.signal_id)
        return sent

    async def send_signal(
        self, draft: SignalDraft, when: DurationLike | datetime | None = None
    ) -> Signal:
        """As `Client.send_signal`."""
        sent = await super().send_signal(draft, when)
        self._promises.signalled(draft.key, sent.signal_id)
        return sent

    async def cancel_signal(
        self, stream: StreamLike, signal_id: str, *, stream_run_id: str | None = None
    ) -> None:
        """As `Client.cancel_signal`."""
        await super().cancel_signal(stream, signal_id, stream_run_id=stream_run_id)
        stream_id = stream if isinstance(stream, str) else stream.stream_id
        self._promises.withdrawn(stream_key(stream_id, stream_run_id), signal_id)

    async def put_inbox(
        self,
        run_id: str,
        key: str,
        value: Any = None,
        *,
        entry_id: str | None = None,
        actor: str | None = None,
    ) -> InboxEntry:
        """As `Client.put_inbox`."""
        entry = await super().put_inbox(run_id, key, value, entry_id=entry_id, actor=actor)
        self._promises.sent(entry.run_id, entry.entry_id)
        return entry

    async def begin_again(
        self, run_id: str, change: GuardChange | None, *, actor: str | None = None
    ) -> None:
        """As `Client.begin_again`."""
        before = await self.get(run_id)
        await super().begin_again(run_id, change, actor=actor)
        self._promises.retried(run_id, before.last_event)
