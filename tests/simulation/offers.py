"""Workflows that a state machine starts, and what each may come to, from what callers were told.

This is the reference that runs are held against: it knows nothing of turns, messages or rows.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from examples.approval.workflow import refund
from examples.outside import outside
from stepwell import current, hook, step, workflow
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import Registry, registry
from stepwell.core.definitions import WorkflowDefinition
from tests.simulation import scenarios as s

APPROVED = {"approved": True, "reviewer": "Grace"}
REFUSED = {"approved": False, "reviewer": "Ada"}
#: What is answered to hooks. Hooks that have a schema take the last two alone.
PAYLOADS: tuple[Any, ...] = ("yes", "no", APPROVED, REFUSED)
#: That nobody answered in time.
UNSEEN = object()


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a run from outside: the answers that may have been taken.

    `taken` holds the possible answers by hook id. Where a caller was told that his was taken, it is
    the only one.
    """

    run_id: str
    taken: dict[str, list[Any]] = field(default_factory=dict)
    promised: frozenset[str] = frozenset()

    def answers(self, hook: str, *, late: object = None) -> list[Any]:
        """What a hook may have given, by the end of its id; with `late` a deadline may pass."""
        found = [id_ for id_ in self.taken if id_.endswith(hook)]
        given = [answer for id_ in found for answer in self.taken[id_]]
        promised = any(id_ in self.promised for id_ in found)
        return given if late is None or promised else [*given, late]

    def receipt(self, step: str, kind: str = "note") -> str:
        """What the outside gives a step of this run."""
        return sha256(f"{kind}|{self.run_id}/{step}".encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A workflow, inputs to choose from, its possible results, and errors that may end it."""

    workflow: Workflow[..., Any]
    inputs: tuple[tuple[Any, ...], ...] = ((),)
    results: Callable[[Told], Iterable[Any]]
    fails: tuple[str, ...] = ()


@workflow(name="machine.changing")
async def changing(word: str) -> list[Any]:
    return [await s.note(word), await hook("go")]


@workflow(name="machine.changing_more")
async def changing_more(word: str) -> list[Any]:
    return [await s.note(word), await s.note("more"), await hook("go")]


@step(name="machine.minute")
async def minute(what: str) -> str:
    await asyncio.sleep(45)
    return outside().request("note", current.idempotency_key, what)


@workflow(name="machine.long")
async def long() -> list[str]:
    """More than one turn has time for."""
    return [await minute(f"{n}") for n in range(6)]


CHANGING = changing.definition.name
#: What is deployed of the workflow that changes: as it was, with a step more, or nothing.
CODES: dict[str, WorkflowDefinition | None] = {
    "first": changing.definition,
    "more": replace(changing_more.definition, name=CHANGING),
    "none": None,
}


class Code(Registry):
    """What is deployed: all that is registered, and one of `CODES`, which changes."""

    def __init__(self) -> None:
        super().__init__()
        self.deployed = "first"

    def workflow(self, name: str) -> WorkflowDefinition | None:
        """As `Registry.workflow`."""
        return CODES[self.deployed] if name == CHANGING else registry.workflow(name)

    def step(self, name: str) -> Any:
        """As `Registry.step`."""
        return registry.step(name)


def _refunds(told: Told) -> Iterable[Any]:
    draft = "Refund C-17: broken"
    for review in told.answers("approval:1", late=UNSEEN):
        paid = review == APPROVED
        status = "unanswered" if review is UNSEEN else "paid" if paid else "declined"
        receipt = told.receipt("pay_out:1", "payment") if paid else None
        yield {"status": status, "draft": draft, "receipt": receipt}


def _reviews(told: Told, draft: str) -> list[str]:
    given = told.answers("review:1", late="unseen")
    return [f"{draft} {each}" for each in given]


def _changed(told: Told) -> Iterable[Any]:
    first, more = told.receipt("sim.note:1"), told.receipt("sim.note:2")
    for given in told.answers("go:1"):
        yield from ([first, given], [first, more, given])


def _asked_elsewhere(told: Told) -> Iterable[Any]:
    draft = told.receipt("sim.asked_away:1")
    return [f"{draft} {each}" for each in told.answers("far:1")]


def _dispatched(told: Told) -> Iterable[Any]:
    steps = ("sim.note:1", "sim.away:1", "sim.away_in_thread:1")
    return [[*map(told.receipt, steps), 3, "no"]]


def _mapped(told: Told) -> Iterable[Any]:
    items = [told.receipt(f"sim.item*:1#{n}") for n in (0, 2, 3)]
    ticket = told.receipt("sim.note:1")
    for side in ("left", "right"):
        for given in told.answers(f"item@{side}"):
            yield [items, 1, [f"{side} {given}"], ticket]


def _mapped_away(told: Told) -> Iterable[Any]:
    whole = [told.receipt(f"sim.item_away*:1#{n}") for n in range(3)]
    yield [whole, [told.receipt("sim.item_away*:2#0")], 1, "no such item"]


def _map_asks_away(told: Told) -> Iterable[Any]:
    drafts = [told.receipt(f"sim.asked_away*:1#{n}") for n in (0, 1)]
    for left in told.answers("left:1"):
        for right in told.answers("right:1"):
            yield [f"{drafts[0]} {left}", f"{drafts[1]} {right}"]


def _pairs(*each: Iterable[Any]) -> list[list[Any]]:
    return [list(pair) for pair in itertools.product(*each)]


_LATE = ("stepwell.errors.HookTimeout", "stepwell.errors.StepFailed")
_UNREADY = ("asyncio.exceptions.InvalidStateError",)

OFFERS: dict[str, Offer] = {
    "asked": Offer(workflow=s.asked, results=lambda told: told.answers("question:1")),
    "changing": Offer(workflow=changing, inputs=(("a",), ("b",)), results=_changed),
    "approval": Offer(workflow=refund, inputs=((s._ORDER,),), results=_refunds),
    "asked twice": Offer(
        workflow=s.asked_twice,
        results=lambda told: _pairs(told.answers("left:1"), told.answers("right:1")),
        fails=_LATE,
    ),
    "race": Offer(
        workflow=s.raced,
        results=lambda told: [*told.answers("left:1"), *told.answers("right:1")],
    ),
    "asked elsewhere": Offer(workflow=s.asked_elsewhere, results=_asked_elsewhere, fails=_LATE),
    "outrun elsewhere": Offer(
        workflow=s.outrun_elsewhere,
        results=lambda told: told.answers("right:1"),
        fails=(*_UNREADY, *_LATE, "stepwell.errors.PayloadError"),
    ),
    "sleep": Offer(workflow=s.slept, results=lambda told: [told.receipt("sim.note:2")]),
    "parallel": Offer(
        workflow=s.parallel,
        results=lambda told: [[told.receipt(f"{n}/sim.note:1") for n in range(1, 6)]],
    ),
    "outrun": Offer(
        workflow=s.outrun,
        results=lambda told: [told.receipt("2/sim.slow_note:1")],
        fails=_UNREADY,
    ),
    "unnotified": Offer(
        workflow=s.unnotified,
        results=lambda told: [
            f"no such reviewer, {told.receipt('sim.note:1')}",
            # Its row was there before a crash, and somebody answered before it was tried again.
            *("answered" for _ in told.answers("question:1")),
        ],
    ),
    "timeouts": Offer(
        workflow=s.timed_out,
        results=lambda told: [
            [review, *more] for review in _reviews(told, "LATE") for more in ([], ["question"])
        ],
    ),
    "checkpoints": Offer(
        workflow=s.checkpointed,
        results=lambda told: _pairs(
            _reviews(told, "DRAFT"),
            _pairs(told.answers("ask@first"), told.answers("ask@second")),
        ),
        fails=("stepwell.errors.StepFailed",),  # an answer that is no text
    ),
    "long": Offer(
        workflow=long,
        results=lambda told: [[told.receipt(f"machine.minute:{n}") for n in range(1, 7)]],
    ),
    "left": Offer(workflow=s.left, results=lambda told: ["not left"]),
    "map": Offer(workflow=s.mapped, results=_mapped),
    "map elsewhere": Offer(workflow=s.mapped_away, results=_mapped_away),
    "map asks elsewhere": Offer(workflow=s.map_asks_away, results=_map_asks_away, fails=_LATE),
    "dispatched": Offer(workflow=s.dispatched, results=_dispatched),
}
BY_WORKFLOW = {offer.workflow.definition.name: offer for offer in OFFERS.values()}
