"""The examples as the tests drive them: start once, answer whatever is asked, let time pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from examples.agent.workflow import assist
from examples.approval.workflow import Order, refund
from examples.briefing import script as briefings
from examples.chat.actor import chat
from examples.orders import workflow as orders
from examples.outside import Outside
from examples.pipeline.streams import sale
from examples.review.stream import publication
from examples.trip import workflow as trips
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.guards import StepGuard
from stepwell.client import PendingHook, RunHandle
from stepwell.core.records import RunHeader
from stepwell.core.signals import StreamKey, keyed_signal_id
from stepwell.testing import Environment

ORDER = Order(number="A-1", customer="C-17", amount=Decimal("48.50"), complaint="arrived broken")
LAMPS = orders.Order(
    number="B-1",
    customer="C-17",
    lines=tuple(
        orders.Line(order="B-1", article=article, quantity=2, price=Decimal("9.50"))
        for article in ("red lamp", "blue lamp", "chair")
    ),
)
TRIP = trips.Trip(traveller="T-5", place="Oslo", most=390)
#: What is answered on the way to an offer of a trip. One of the companies does not answer.
TO_THE_OFFER = {
    "vacancy@Harbour Inn": {"free": False},
    "vacancy@Park House": {"free": True},
    "price@Fjord Cars": {"price": 50},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A signal that somebody sends, under a key, once `behind` others are on its stream run."""

    stream: str
    run: str
    type: str
    payload: Any = None
    behind: int = 0

    @property
    def to(self) -> StreamKey:
        """The stream run that it goes to."""
        return StreamKey(self.stream, self.run)

    @property
    def key(self) -> str:
        """Its sender's key: no two signals of an example have the same place."""
        return f"{self.type}/{self.behind}"

    @property
    def signal_id(self) -> str:
        """The id that it has by its key."""
        return keyed_signal_id(self.to, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example, and what is answered to its hooks, by the end of the hook's id."""

    workflow: Workflow[..., Any]
    input: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict)
    #: Effects that it has had in the end, by kind, whatever died; and none else of `SOMETIMES`.
    effects: Mapping[str, int]
    #: How often it waits, for an answer or for time.
    waits: int
    #: The hook at which the run is cancelled instead of an answer, by the end of its id.
    cancelled_at: str | None = None
    #: Steps that put something out.
    streams: tuple[str, ...] = ()
    #: What is sent to its inbox while it waits for input, in this order.
    entries: tuple[tuple[str, Any], ...] = ()
    #: What is asked before its steps.
    guards: tuple[StepGuard, ...] = ()
    #: Signals that are sent while it waits, one after the other.
    signals: tuple[Sent, ...] = ()
    #: How often something outside does not answer, by kind.
    outages: Mapping[str, int] = field(default_factory=dict)


#: What is undone, where it has to be.
SOMETIMES = (
    "stock released",
    "money refunded",
    "flight cancelled",
    "room cancelled",
    "car cancelled",
    "insurance cancelled",
    "money returned",
    "tickets voided",
    "bill refunded",
)
OFFERED = {
    "fare asked": 4,
    "flight booked": 1,
    "hotel asked": 2,
    "room booked": 1,
    "company asked": 2,
    "car ordered": 1,
    "insured": 1,
    "offer sent": 1,
    "traveller told": 1,
}
PLACED = {"item": "tea", "pieces": 2, "price": "4.50", "address": "Quay 1"}
EXAMPLES = {
    "approval": Example(
        workflow=refund,
        input={"order": ORDER},
        answers={"approval:1": {"approved": True, "reviewer": "the reviewer"}},
        effects={"draft": 1, "review asked": 1, "payment": 1, "confirmation": 1},
        waits=1,
    ),
    "agent": Example(
        workflow=assist,
        input={"wish": "a flight to Oslo"},
        answers={"visitor@call-3": {"text": "aisle"}, "visitor@call-4": {"text": "yes"}},
        effects={"credit": 1, "seat held": 1},
        waits=2,
        streams=("converse:1",),
    ),
    "briefing": Example(
        workflow=briefings.briefing,
        input={"topics": ["tea", "coffee"]},
        entries=(("remark", "soon"), ("approved", "Ada")),
        answers={"ask:1": "On drinks"},
        effects={},
        waits=3,
        guards=(briefings.audit,),
    ),
    "orders": Example(
        workflow=orders.fulfil_order,
        input={"order": LAMPS},
        answers={"payment:1": {"paid": True, "reference": "P-8"}},
        effects={
            "stock reserved": 2,
            "payment asked": 1,
            "parcel packed": 1,
            "carrier booked": 1,
            "scan asked": 3,
            "customer told": 1,
        },
        waits=3,
    ),
    "trip": Example(
        workflow=trips.book_trip,
        input={"trip": TRIP},
        answers={**TO_THE_OFFER, "offer:1": {"yes": True}},
        effects={**OFFERED, "trip paid": 1, "tickets issued": 1},
        waits=7,
    ),
    "cancelled trip": Example(
        workflow=trips.book_trip,
        input={"trip": TRIP},
        answers={**TO_THE_OFFER, "offer:1": None},
        cancelled_at="offer:1",
        effects={
            **OFFERED,
            "flight cancelled": 1,
            "room cancelled": 1,
            "car cancelled": 1,
            "insurance cancelled": 1,
        },
        waits=7,
    ),
    "review": Example(
        workflow=publication,
        input={"title": "tea", "first": "TEA"},
        signals=(
            Sent(
                stream="review", run="tea", type="draft.sent", payload={"text": "On tea"}, behind=1
            ),
            Sent(stream="review", run="tea", type="draft.sent", payload={"text": "T"}, behind=2),
            Sent(stream="review", run="tea", type="draft.sent", payload={"text": "held"}, behind=3),
            Sent(
                stream="review",
                run="tea",
                type="editor.decided",
                payload={"approved": True, "editor": "Ada"},
                behind=4,
            ),
        ),
        effects={"draft looked at": 3, "published": 1},
        waits=4,
    ),
    "pipeline": Example(
        workflow=sale,
        input={"number": "order-7"},
        signals=(
            Sent(stream="pipeline.orders", run="order-7", type="order.placed", payload=PLACED),
            Sent(
                stream="pipeline.billing",
                run="order-7",
                type="bill.disputed",
                payload={"reason": "cold"},
                behind=1,
            ),
        ),
        outages={"parcel shipped": 1},
        effects={"parcel shipped": 1, "bill charged": 1, "bill refunded": 1},
        waits=4,
    ),
    "chat": Example(
        workflow=chat,
        input={"greeting": "Good morning"},
        signals=(
            *(
                Sent(stream="chat", run="one", type="user.said", payload={"text": text}, behind=n)
                for n, text in ((1, "Good morning"), (3, "Good morning"), (5, "How are you?"))
            ),
            Sent(stream="chat", run="one", type="user.left", behind=7),
        ),
        effects={"model asked": 3},
        waits=4,
    ),
}


def let_fail(world: Outside, example: Example) -> None:
    """Have what is outside of an example not answer as often as it is to."""
    for kind, times in example.outages.items():
        world.fail(kind, times)


def started(env: Environment, example: Example) -> RunHandle[Any]:
    """The one run of an example in this deployment, started if it is not there."""
    client = env.client.with_options(idempotency_key="one", prepare_step=example.guards)
    run: RunHandle[Any] = env.wait_for(client.start(example.workflow, **example.input))
    env.run_until_idle()
    return run


def to_be_answered(example: Example, hooks: tuple[PendingHook, ...]) -> PendingHook | None:
    """The hook that is answered next; None if none of them is."""
    return next((each for each in hooks if end_of(each) in example.answers), None)


def end_of(hook: PendingHook) -> str:
    """The end of a hook's id: what it is called in its step, or in its run."""
    return hook.hook_id.rpartition(">")[2]


def to_be_sent(example: Example, header: RunHeader, sent: int) -> tuple[str, Any] | None:
    """What the run's inbox gets next; None if it waits for nothing like that."""
    waits = any(wait.kind == "input" for wait in header.waiting)
    return example.entries[sent] if waits and sent < len(example.entries) else None


def next_signal(example: Example, come: Mapping[StreamKey, Collection[str]]) -> Sent | None:
    """The signal that is sent next, by the ids of those that have come to each stream run."""
    for each in example.signals:
        there = come[each.to]
        if each.signal_id not in there:
            return each if len(there) >= each.behind else None
    return None


def _come(env: Environment, example: Example) -> dict[StreamKey, list[str]]:
    """The ids of the signals that have come to the stream runs of an example."""
    client = env.client
    return {
        to: [
            each.signal_id for each in env.wait_for(client.signals(to.stream, stream_run_id=to.run))
        ]
        for to in {each.to for each in example.signals}
    }


def emit(env: Environment, sent: Sent) -> None:
    """Send a signal, then work until idle."""
    emitted = env.client.emit(
        sent.stream, sent.type, sent.payload, stream_run_id=sent.run, idempotency_key=sent.key
    )
    env.wait_for(emitted)
    env.run_until_idle()


def go_on(env: Environment, run: RunHandle[Any], example: Example) -> None:
    """Send input that is waited for, or a signal; else answer the oldest hook, or cancel; else let
    time pass."""
    signal = next_signal(example, _come(env, example))
    sent = len(env.wait_for(env.client.list_inbox(run.id))) if example.entries else 0
    entry = to_be_sent(example, env.get(run), sent)
    hook = to_be_answered(example, env.hooks())
    if entry is not None:
        env.put_inbox(run, *entry, entry_id=entry[0])
    elif signal is not None:
        emit(env, signal)
    elif hook is None:
        assert env.advance_to_next(), "nothing is waited for"
    elif end_of(hook) == example.cancelled_at:
        env.cancel(run)
    else:
        env.resume_hook(hook.token, example.answers[end_of(hook)])
