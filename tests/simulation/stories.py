"""What happens outside while a run goes on, for simulations: who asks for what, in no fixed order.

Each story is a workflow and its callers. A caller may come at any moment at which what he needs is
there, so most stories have several right ends; laws and promises hold in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from examples.agent.workflow import assist
from examples.approval.workflow import refund
from examples.orders.workflow import fulfil_order
from examples.outside import outside
from examples.trip.workflow import book_trip
from stepwell.authoring.decorators import Workflow
from stepwell.client import Client
from stepwell.core.records import RunHeader, RunStatus
from stepwell.errors import (
    ForkRefused,
    NotRetryable,
    RunDeleted,
    RunEnded,
    RunNotEnded,
    SignalNotParked,
    StreamEnded,
)
from stepwell.testing.simulation import Simulation
from tests.examples.given import LAMPS, TRIP
from tests.simulation import families as f
from tests.simulation import inputs as i
from tests.simulation import lives, mixed, options, remarks
from tests.simulation import scenarios as s
from tests.simulation import streams as t

APPROVED = {"approved": True, "reviewer": "Grace"}
REFUSED = {"approved": False, "reviewer": "Ada"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A workflow, its input, the answers that are given, and whether somebody cancels."""

    name: str
    workflow: Workflow[..., Any]
    args: tuple[Any, ...] = ()
    answers: tuple[tuple[str, Any], ...] = ()
    #: What is sent to the run's inbox, by key; an empty key is a request to look again.
    sent: tuple[tuple[str, Any], ...] = ()
    #: Signals that are sent to the stream run "one", each by somebody of his own: stream, type and,
    #: for those of one type that are one signal, a key.
    signals: tuple[tuple[str, str, str], ...] = ()
    #: Parked signals that somebody looks after: stream, step, what is to become of the first.
    mended: tuple[tuple[str, str, str], ...] = ()
    cancelled: bool = False
    #: Whether somebody deletes the run when it has ended.
    deleted: bool = False
    #: Whether a service that is down comes back at some moment.
    outage: bool = False
    #: What operators do, each at some moment, and again until it is possible.
    operated: tuple[str, ...] = ()
    #: What they do to whichever run it is possible for, the newest one first.
    anywhere: tuple[str, ...] = ()
    #: How often it is started, with the same key, at the same time.
    starts: int = 1

    def begin(self, sim: Simulation) -> None:
        """Let all of its callers be there."""
        for n in range(self.starts):
            sim.ask(f"starts {n + 1}" if n else "starts", self._start)
        for n, (hook, payload) in enumerate(self.answers):
            sim.answer(hook, payload, name=f"answers {hook} ({n + 1})")
        for n, (key, value) in enumerate(self.sent, 1):
            self._send(sim, n, key, value)
        for n, signal in enumerate(self.signals, 1):
            _emit(sim, n, *signal)
        for n, parked in enumerate(self.mended, 1):
            _mend_signal(sim, n, *parked)
        if self.cancelled:
            sim.cancel()
        if self.deleted:
            sim.delete()
        if self.outage:
            sim.ask("mends", _mend)
        for what in self.operated:
            sim.ask(f"{what}s", _operation(sim, what), when=_possible(sim, what))
        for n, what in enumerate(self.anywhere, 1):
            _ask_anywhere(sim, n, what)

    @staticmethod
    def _send(sim: Simulation, n: int, key: str, value: Any) -> None:
        async def send(client: Client) -> Any:
            run_id = sim.run_ids()[0]
            if not key:
                return await client.resume(run_id)
            return await client.put_inbox(run_id, key, value, entry_id=f"{key}-{n}")

        sim.ask(f"sends {key or 'nothing'} ({n})", send, when=lambda: bool(sim.run_ids()))

    async def _start(self, client: Client) -> Any:
        return await client.with_options(idempotency_key=t.ONE).start(self.workflow, *self.args)


def _emit(sim: Simulation, n: int, stream: str, kind: str, key: str) -> None:
    async def emit(client: Client) -> Any:
        with suppress(StreamEnded):
            return await client.emit(
                stream, kind, {"throws": 9}, stream_run_id=t.ONE, idempotency_key=key or f"{n}"
            )
        return "too late"

    sim.ask(f"emits {kind} ({n})", emit)


def _mend_signal(sim: Simulation, n: int, stream: str, step: str, action: str) -> None:
    """Somebody looks after the first parked signal of a step, from when its header shows one."""

    def parked() -> bool:
        shown = [header.subscription for header in sim.headers() if header.workflow[:4] == "sim."]
        return any(each is not None and each.step == step and each.parked for each in shown)

    async def mend(client: Client) -> Any:
        found = await client.parked_signals(stream, step, stream_run_id=t.ONE)
        with suppress(SignalNotParked, RunDeleted):
            for each in found[:1]:
                method = getattr(client, f"{action}_signal")
                return await method(stream, step, each.sequence, stream_run_id=t.ONE)
        return "nothing to do"

    sim.ask(f"{action}s for {step} ({n})", mend, when=parked)


async def _mend(_: Client) -> None:
    outside().request("outage", "over", "yes")


def _operation(sim: Simulation, what: str) -> Callable[[Client], Any]:
    async def operate(client: Client) -> Any:
        return await _operate(client, sim.run_ids()[0], what)

    return operate


async def _operate(client: Client, run_id: str, what: str, fork_id: str = "the-fork") -> Any:
    with suppress(RunNotEnded, NotRetryable, RunEnded, RunDeleted, ForkRefused):
        # It went on meanwhile, or is not there any more.
        if what == "fork":
            return await client.fork(run_id, fork_id=fork_id)
        if what == "force":
            return await client.cancel(run_id, "by force", force=True)
        return await getattr(client, what)(run_id)
    return None


def _ask_anywhere(sim: Simulation, number: int, what: str) -> None:
    """Somebody does this to the newest run that it is possible for by then."""
    chosen: list[str] = []

    def possible() -> bool:
        if not chosen:
            found = [each.run_id for each in sim.headers() if _is_possible(each, what)]
            chosen.extend(found[-1:])
        return bool(chosen)

    async def operate(client: Client) -> Any:
        return await _operate(client, chosen[0], what, f"fork-{number}")

    sim.ask(f"{what}s somewhere ({number})", operate, when=possible)


def _possible(sim: Simulation, what: str) -> Callable[[], bool]:
    """Whether somebody would come to do this by now."""

    def possible() -> bool:
        header = next(iter(sim.headers()), None)
        return header is not None and _is_possible(header, what)

    return possible


def _is_possible(header: RunHeader, what: str) -> bool:
    if header.deleted_at is not None:
        return False
    if what == "retry":
        return header.status in (RunStatus.FAILED, RunStatus.CANCELLED)
    if what == "delete":
        return header.status.terminal
    if what == "resume":
        return header.paused
    return header.last_event > 0 if what == "fork" else not header.status.terminal


def _story(
    name: str,
    workflow: Workflow[..., Any],
    *args: Any,
    answers: tuple[tuple[str, Any], ...] = (),
    **more: Any,
) -> Story:
    return Story(name=name, workflow=workflow, args=args, answers=answers, **more)


_ORDER = s._ORDER
_FINE = ("review", "fine")
_PAID = {"paid": True, "reference": "P-8"}
_TRIP = (
    ("vacancy", {"free": True}),
    ("price", {"price": 50}),
    ("price", {"price": 60}),
    ("offer", {"yes": True}),
)

_DRAFTS = tuple(("sim.reviews", "draft", key) for key in ("a", "b", "b", "c"))
_APPROVED = ("sim.reviews", "approved", "")
_JOB = ("sim.office", "job", "")
_REDRIVE_SKIPS = ("sim.shaky", "skips", "redrive")
_REDRIVE_BLOCKS = ("sim.shaky", "blocks", "redrive")

STORIES = (
    _story("approval", refund, _ORDER, answers=(("approval", APPROVED),), starts=2),
    _story(
        "approval contested",
        refund,
        _ORDER,
        answers=(("approval", APPROVED), ("approval", REFUSED)),
        cancelled=True,
    ),
    _story("agent", assist, "Oslo", answers=(("visitor", {"text": "aisle"}),)),
    _story("order", fulfil_order, LAMPS, answers=(("payment", _PAID),), cancelled=True),
    _story("trip", book_trip, TRIP, answers=_TRIP, starts=2),
    _story("sequence", s.sequence, starts=2),
    _story("lots", s.lots),
    _story("parallel", s.parallel, cancelled=True),
    _story("retry", s.retried, outage=True),
    _story("sleep", s.slept, cancelled=True),
    _story("one hook", s.asked, answers=(("question", 1), ("question", 2)), cancelled=True),
    _story("two hooks", s.asked_twice, answers=(("left", 1), ("right", 2), ("right", 3))),
    _story("race", s.raced, answers=(("left", 1), ("right", 2))),
    _story("race cancelled", s.raced, answers=(("left", 1), ("right", 2)), cancelled=True),
    _story("outrun", s.outrun, answers=(("question", 2),)),
    _story("unnotified", s.unnotified, answers=(("question", 2),)),
    _story("told at last", s.told_at_last, answers=(("question", 2),), outage=True),
    _story("timeouts", s.timed_out, answers=(_FINE, ("question", 2))),
    _story("cut off", s.cut_off, answers=(_FINE,)),
    _story("checkpoints", s.checkpointed, answers=(_FINE, ("ask", "1st"), ("review", "other"))),
    _story("left", s.left, answers=(_FINE,), cancelled=True),
    _story("beside", s.beside, answers=(_FINE, ("more", 1))),
    _story("failed", s.failed),
    _story("dispatched", s.dispatched),
    _story("asked elsewhere", s.asked_elsewhere, answers=(("far", "yes"), ("far", "no"))),
    _story("asked elsewhere, cancelled", s.asked_elsewhere, answers=(("far", 1),), cancelled=True),
    _story("outrun elsewhere", s.outrun_elsewhere, answers=(("right", "yes"), ("left", "no"))),
    _story("map", s.mapped, answers=(("item", "yes"), ("item", "no")), cancelled=True),
    _story("keyed", options.keyed, cancelled=True),
    _story("lazy", options.lazy, answers=(("question", "f"), ("question", "g"))),
    _story("polled", options.polled, cancelled=True),
    _story(
        "remarked", remarks.remarked, answers=(("question", 1), ("question", 2)), cancelled=True
    ),
    _story("deleted", s.asked, answers=(("question", 1), ("question", 2)), deleted=True, starts=2),
    _story("deleted elsewhere", s.asked_elsewhere, answers=(("far", "yes"),), deleted=True),
    _story("deleted and cancelled", s.timed_out, cancelled=True, deleted=True),
    _story("undone", options.undone, cancelled=True),
    _story("undone by cancel", options.undone_by_cancel, cancelled=True),
    _story("once", options.once, cancelled=True),
    _story("map elsewhere", s.mapped_away),
    _story("map elsewhere cancelled", s.mapped_away, cancelled=True),
    _story("map asks elsewhere", s.map_asks_away, answers=(("left", "yes"), ("right", "no"))),
    _story("def workflow", s.blocking, answers=(("question", 42),)),
    _story("input", i.wanting, sent=(("go", 1), ("left", 1), ("right", 1), ("", None))),
    _story("input, cancelled", i.wanting, sent=(("go", 1), ("right", 1)), cancelled=True),
    _story(
        "input of a def workflow",
        i.wanting_in_thread,
        answers=(("ask", "yes"),),
        sent=(("go", 1), ("left", 1), ("go", 2)),
        cancelled=True,
    ),
    _story("parent", f.parent, starts=2),
    _story("side by side", f.side_by_side, cancelled=True),
    _story("left children", f.leaving, answers=(("waits", "kept"),)),
    _story("held child", f.holding, answers=(("waits", "kept"),), cancelled=True),
    _story("rounds", f.waits_for_rounds, cancelled=True),
    _story(
        "reopened",
        lives.reopened,
        answers=(("question", 1), ("beside", 2), ("beside", 3)),
        outage=True,
        operated=("retry", "retry"),
    ),
    _story(
        "reopened, cancelled",
        lives.reopened,
        answers=(("question", 1), ("beside", 2)),
        cancelled=True,
        operated=("retry", "pause", "resume"),
    ),
    _story(
        "paused",
        lives.paused,
        answers=(("question", 1), ("question", 2)),
        operated=("pause", "resume", "fork"),
    ),
    _story("rounds alone", f.rounds, 0, starts=2, cancelled=True),
    _story(
        "family mended",
        mixed.parent,
        outage=True,
        operated=("retry", "retry"),
        anywhere=("retry", "pause", "resume", "retry", "delete"),
    ),
    _story(
        "family forked",
        mixed.parent,
        outage=True,
        cancelled=True,
        operated=("fork", "retry"),
        anywhere=("fork", "delete", "retry", "delete"),
    ),
    _story(
        "rounds looked after",
        mixed.rounds,
        0,
        sent=(("a", 1), ("b", 2), ("a", 3)),
        outage=True,
        operated=("pause", "resume"),
        anywhere=("fork", "pause", "resume", "retry", "delete", "force"),
    ),
    _story("review", t.reviewing, signals=(*_DRAFTS, _APPROVED), starts=2),
    _story("review cancelled", t.reviewing, signals=(*_DRAFTS, _APPROVED), cancelled=True),
    _story(
        "review looked after",
        t.reviewing,
        signals=(*_DRAFTS, _APPROVED),
        operated=("pause", "resume"),
        anywhere=("pause", "resume", "retry"),
    ),
    _story("game", t.game, signals=(("sim.west", "ball", ""), ("sim.east", "ball", ""))),
    _story("game cancelled", t.game, cancelled=True),
    _story(
        "office",
        t.office,
        answers=(("question", "well"), ("question", "badly")),
        signals=(_JOB, ("sim.office", "closing", "")),
    ),
    _story(
        "office cancelled",
        t.office,
        answers=(("question", "well"),),
        signals=(_JOB, ("sim.office", "closing", "")),
        cancelled=True,
    ),
    _story(
        "shaky",
        t.shaky,
        signals=(("sim.shaky", "job", ""), ("sim.shaky", "job", ""), ("sim.shaky", "end", "")),
        mended=(*(_REDRIVE_SKIPS, _REDRIVE_BLOCKS) * 3, ("sim.shaky", "blocks", "discard")),
        outage=True,
    ),
    _story(
        "patient",
        mixed.patient,
        answers=(("question", 1),),
        outage=True,
        operated=("fork", "pause", "resume", "retry"),
        anywhere=("delete", "force", "retry"),
    ),
)
BY_NAME: dict[str, Story] = {story.name: story for story in STORIES}
Begin = Callable[[Simulation], None]
