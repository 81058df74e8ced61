"""What runs must have come to when all rests, from who asked for what and what each was told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from examples.outside import Outside
from stepwell.core import events as e
from stepwell.core.records import HookStatus, RunHeader, RunStatus
from stepwell.errors import PayloadRejected
from stepwell.testing.facts import RunFacts
from stepwell.testing.laws import check_replay
from stepwell.testing.simulation.cluster import Request
from tests.simulation.offers import BY_WORKFLOW, CHANGING, CODES, Offer, Told

#: Effects that a step asks for with its own key; asked for again, they must be the same.
_KEYED = ("note", "charge", "draft", "payment", "confirmation", "review asked")
#: Steps that have such an effect whenever they complete.
_STEPS = (
    *("sim.note", "sim.note_in_thread", "sim.slow_note", "sim.reviewed", "sim.away"),
    *("machine.minute", "pay_out", "confirm"),
)

#: Processes that die again and again use up a step's attempts.
_INTERRUPTED = "stepwell.errors.StepInterrupted"


class Ledger(Outside):
    """The world outside, which notes when one key is used for two different things."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.conflicts: list[str] = []

    def request(self, kind: str, key: str, what: str) -> str:
        """As `Outside.request`."""
        known = self.effects(kind).get(key)
        if kind in _KEYED and known not in (None, what):
            self.conflicts.append(f"{kind} {key!r}: {known!r}, then {what!r}")
        return super().request(kind, key, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asked for, and how he may be refused."""

    kind: str
    request: Request
    refusals: tuple[type[Exception], ...] = ()
    run_id: str | None = None
    hook_id: str | None = None
    payload: Any = None
    offer: Offer | None = None
    input: tuple[Any, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether it is an answer that does not fit its hook."""
        return PayloadRejected in self.refusals

    @property
    def told(self) -> bool:
        """Whether he was told that it will be so."""
        return self.request.result is not None and self.request.error is None


def check_outcome(facts: RunFacts, asked: Sequence[Asked], ledger: Ledger) -> None:
    """One run, when all has come to rest and nothing goes wrong any more."""
    header = facts.rows.header
    assert header is not None
    assert header.attention is None, f"nothing is wrong any more, and it is {header.attention}"
    if header.workflow == CHANGING:
        _check_fits_some(facts)
    offer, told = BY_WORKFLOW[header.workflow], _told(header, asked)
    cancels = [each for each in asked if (each.kind, each.run_id) == ("cancels", header.run_id)]
    if header.status is RunStatus.COMPLETED:
        results = list(offer.results(told))
        assert json.loads(header.result or "") in results, f"{header.result}: not of {results}"
    elif header.status is RunStatus.FAILED:
        assert header.error is not None
        assert header.error.type in (*offer.fails, _INTERRUPTED), f"failed: {header.error}"
    elif header.status is RunStatus.CANCELLED:
        assert cancels, "cancelled, and nobody asked for it"
    else:
        assert not any(each.told for each in cancels), "cancelled, and it waits"
        _check_waits(facts)
    _check_effects(facts, ledger)


def _told(header: RunHeader, asked: Sequence[Asked]) -> Told:
    taken: dict[str, list[Any]] = {}
    promised = set()
    for each in asked:
        if each.hook_id is None or each.run_id != header.run_id or each.wrong:
            continue
        if each.told:
            promised.add(each.hook_id)
            taken[each.hook_id] = [each.payload]
        elif each.request.error is None and each.hook_id not in promised:
            taken.setdefault(each.hook_id, []).append(each.payload)
    _check_asked(header, asked)
    return Told(header.run_id, taken, frozenset(promised))


def _check_asked(header: RunHeader, asked: Sequence[Asked]) -> None:
    """Somebody asked for just this start."""
    for each in asked:
        if each.offer is None:
            continue
        definition = each.offer.workflow.definition
        mine = each.run_id == header.run_id if header.idempotency_key else each.run_id is None
        same = definition.arguments.encode(each.input, {}) == header.input
        if mine and same and definition.name == header.workflow:
            return
    raise AssertionError(f"nobody asked for this start: {header.workflow} {header.input}")


def _check_effects(facts: RunFacts, ledger: Ledger) -> None:
    done = {key for kind in _KEYED for key in ledger.effects(kind)}
    for event in facts.events:
        if isinstance(event, e.StepCompleted) and event.name in _STEPS:
            assert f"{facts.run_id}/{event.step}" in done, f"never done: {event}"


def _check_fits_some(facts: RunFacts) -> None:
    broken: list[str] = []
    for name, definition in CODES.items():
        if definition is not None:
            try:
                check_replay(facts.history, definition, facts.run_id, at_rest=facts.at_rest)
                return
            except AssertionError as error:
                broken.append(f"{name}: {error}")
    raise AssertionError(f"no code fits: {broken}")


def _check_waits(facts: RunFacts) -> None:
    """It waits for an answer that nobody gave, and for nothing else: all times have passed."""
    pending = [row for row in facts.rows.hooks if row.status is HookStatus.PENDING]
    assert pending, "it waits, and no hook of it is open"
    late = [row for row in pending if row.expires_at is not None]
    assert not late, f"their time has passed, and they are open: {late}"


def check_looked(asked: Asked, facts: RunFacts) -> None:
    header, events = asked.request.result
    assert facts.rows.header is not None
    assert facts.history[: len(events)] == tuple(events), "a reader saw another history"
    ended = header.status.terminal
    assert not ended or facts.rows.header.status is header.status, f"a reader saw {header.status}"
