"""What may happen next in a simulation, in the order of a day on which nothing goes wrong.

First come the calls that processes wait to make, then messages, requests and timers, then time.
Faults come last, as many as are left of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from stepwell.core.records import Millis
from stepwell.testing.simulation import work
from stepwell.testing.simulation.cluster import Cluster
from stepwell.testing.simulation.processes import PortCall, Process, Verdict
from stepwell.testing.simulation.queues import Letter
from stepwell.testing.simulation.schedules import LATENESS

#: How much more seldom a fault is chosen than what happens on any day.
_SELDOM = 0.15


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may happen; implements `Option`."""

    label: str
    do: Callable[[], None]
    weight: float = 1.0
    touches: frozenset[str] | None = None


def possible(cluster: Cluster) -> list[Action]:
    """All that may happen now; empty when nothing can but by time, or by a sweep.

    What nobody else can tell from happening a little later happens at once: a process begins, and
    stops at its first call; and a message that is done with is acknowledged, unless that fails.
    """
    for begins in (*_messages(cluster), *_attempts(cluster), *_requests(cluster)):
        return [begins]
    for process in cluster.processes():
        for call in process.calls:
            if call.name.endswith(".delete") and not process.frozen:
                done = Action(f"{process.label}: {call.name}", _give(call, Verdict.DONE))
                return [done, *_of_process(cluster, process)]
    usual = [*_calls(cluster), *_signals(cluster), *_timers(cluster)]
    if not usual:
        usual = list(passing(cluster))
    return [*usual, *_faults(cluster, usual)] if usual else []


def _calls(cluster: Cluster) -> Iterator[Action]:
    for process in cluster.processes():
        if not process.frozen:
            for call in process.calls:
                label = f"{process.label}: {_name(process, call)}"
                touches = call.touches | {process.name}
                yield Action(label, _give(call, Verdict.DONE), touches=touches)


def _name(process: Process, call: PortCall) -> str:
    alike = [each for each in process.calls if each.name == call.name]
    return call.name if len(alike) == 1 else f"{call.name} ({alike.index(call) + 1})"


def _give(call: PortCall, verdict: Verdict) -> Callable[[], None]:
    return partial(call.verdict.set_result, verdict)


def _messages(cluster: Cluster) -> Iterator[Action]:
    free = next((each for each in cluster.workers if not each.busy), None)
    if free is not None:
        for letter in cluster.queue.receivable():
            label = f"{free.name} gets {letter.message_id}"
            yield Action(label, partial(work.begin_turn, cluster, free, letter))


def _signals(cluster: Cluster) -> Iterator[Action]:
    """Signals that may be received: sooner or later, for more may come to be of one batch."""
    free = next((each for each in cluster.workers if not each.busy), None)
    if free is not None:
        for letter in cluster.signals.receivable():
            label = f"{free.name} gets {letter.message_id}"
            yield Action(label, partial(work.begin_numbering, cluster, free, letter))


def _attempts(cluster: Cluster) -> Iterator[Action]:
    free = next((each for each in cluster.steppers if not each.busy), None)
    if free is not None:
        for letter in cluster.steps.receivable():
            yield Action(f"{free.name} gets {letter.message_id}", _attempt(cluster, free, letter))


def _attempt(cluster: Cluster, process: Process, letter: Letter) -> Callable[[], None]:
    def begin() -> None:
        work.begin_attempt(cluster, process, letter, cluster.steps.receive(letter))

    return begin


def _requests(cluster: Cluster) -> Iterator[Action]:
    for request in cluster.requests:
        if not request.begun and request.when():
            label = f"caller {request.name} comes"
            yield Action(label, partial(work.begin_request, cluster, request))


def _timers(cluster: Cluster) -> Iterator[Action]:
    for key in cluster.scheduler.due():
        fire = partial(cluster.scheduler.fire, key)
        yield Action(
            f"schedule {_key(key)} fires",
            lambda fire=fire: cluster.done(fire()),  # type: ignore[misc]
            touches=frozenset({"schedules", "messages"}),
        )
    for of_signal in cluster.signal_scheduler.due():
        send = partial(cluster.signal_scheduler.fire, of_signal)
        yield Action(
            f"signal {of_signal[1]} is due",
            lambda send=send: cluster.done(send()),  # type: ignore[misc]
            touches=frozenset({"schedules", "signals"}),
        )


def _key(key: tuple[str, str, int]) -> str:
    return f"{key[1]} ({key[2]})"


def passing(cluster: Cluster) -> Iterator[Action]:
    """Time that passes, up to the next moment at which something can happen."""
    due = _next_moment(cluster)
    if due is not None:
        passed = due - cluster.loop.now()
        yield Action(f"{passed} ms pass", partial(pass_until, cluster, due))


def _next_moment(cluster: Cluster) -> Millis | None:
    now = cluster.loop.now()
    times = [queue.next_visible_at() for queue in cluster.queues]
    times += _schedules(cluster)
    busy = [each for each in cluster.processes() if each.busy and not each.frozen]
    times += [each.ends_at for each in busy]
    if busy:
        times.append(cluster.loop.next_timer)
    return min((time for time in times if time is not None and time > now), default=None)


def _schedules(cluster: Cluster) -> list[Millis]:
    return [*cluster.scheduler.standing.values(), *cluster.signal_scheduler.times()]


def pass_until(cluster: Cluster, time: Millis) -> None:
    """Let time pass. A process that has taken too long is ended."""
    cluster.loop.move_to(time)
    for process in cluster.processes():
        if process.busy and not process.frozen and (process.ends_at or time + 1) <= time:
            process.die()


def _faults(cluster: Cluster, usual: list[Action]) -> Iterator[Action]:
    left = cluster.left
    for process in cluster.processes():
        if not process.frozen:
            yield from _of_process(cluster, process)
        else:
            thaw = partial(setattr, process, "frozen", False)
            yield Action(f"{process.label} thaws", thaw, _SELDOM)
    if left["doubled"]:
        yield from _doubled(cluster)
        yield from _doubled_signals(cluster)
    if left["lost_timers"]:
        for key in cluster.scheduler.due():
            lose = partial(cluster.scheduler.lose, key)
            yield _fault(cluster, "lost_timers", f"schedule {_key(key)} is lost", lose)
    if left["redriven"]:
        yield from _redriven(cluster)
    late = any(due + LATENESS <= cluster.loop.now() for due in _schedules(cluster))
    if left["delays"] and not late and not any(each.label.endswith("pass") for each in usual):
        for passing_by in passing(cluster):
            yield _fault(cluster, "delays", passing_by.label, passing_by.do)


def _fault(cluster: Cluster, kind: str, label: str, do: Callable[[], None]) -> Action:
    def spend() -> None:
        cluster.left[kind] -= 1
        do()

    return Action(label, spend, _SELDOM)


def _of_process(cluster: Cluster, process: Process) -> Iterator[Action]:
    left = cluster.left
    of_caller = process in cluster.callers
    for call in process.calls:
        label = f"{process.label}: {_name(process, call)}"
        for kind, verdict in _VERDICTS:
            if left[kind] and (call.writes or verdict is Verdict.THROTTLED):
                yield _fault(cluster, kind, f"{label}: {verdict}", _give(call, verdict))
        if call.may_lag and left["stale"]:
            yield _fault(cluster, "stale", f"{label}: stale", _give(call, Verdict.STALE))
        if call.writes and of_caller and left["vanished"]:
            for verdict in (Verdict.DIES_BEFORE, Verdict.DIES_AFTER):
                vanish = partial(_vanish, cluster, process, call, verdict)
                yield _fault(cluster, "vanished", f"{label}: {verdict}, for good", vanish)
        if call.writes and not of_caller and left["freezes"]:
            freeze = partial(_freeze, cluster, process)
            yield _fault(cluster, "freezes", f"{label}: freezes", freeze)


_VERDICTS = (
    ("crashes", Verdict.DIES_BEFORE),
    ("crashes", Verdict.DIES_AFTER),
    ("throttled", Verdict.THROTTLED),
    ("lost_replies", Verdict.REPLY_LOST),
    ("denied", Verdict.DENIED),
)


def _vanish(cluster: Cluster, process: Process, call: PortCall, verdict: Verdict) -> None:
    cluster.request_of(process).gone = True
    call.verdict.set_result(verdict)


def _freeze(cluster: Cluster, process: Process) -> None:
    cluster.freeze(process)
    # The time for which its message is kept for it goes by while it is frozen.
    message_id = process.what.rpartition(" ")[2]
    for queue in cluster.queues:
        for letter in queue.letters:
            if letter.message_id == message_id:
                queue.appear(letter)


def _doubled(cluster: Cluster) -> Iterator[Action]:
    free = next((each for each in cluster.steppers if not each.busy), None)
    if free is not None:
        for letter in cluster.steps.letters:
            if letter.receive_count:
                begin = partial(
                    work.begin_attempt, cluster, free, letter, cluster.steps.duplicate(letter)
                )
                yield _fault(cluster, "doubled", f"{free.name} gets {letter.message_id} too", begin)
    for key in cluster.scheduler.due():
        fire = partial(cluster.scheduler.fire, key, again=True)
        label = f"schedule {_key(key)} fires, and will again"
        yield _fault(cluster, "doubled", label, lambda fire=fire: cluster.done(fire()))  # type: ignore[misc]
    for key in sorted(cluster.scheduler.deleted):
        late = partial(cluster.scheduler.fire_deleted, key)
        label = f"schedule {_key(key)} fires though it was deleted"
        yield _fault(cluster, "doubled", label, lambda late=late: cluster.done(late()))  # type: ignore[misc]


def _doubled_signals(cluster: Cluster) -> Iterator[Action]:
    scheduler = cluster.signal_scheduler
    for key in scheduler.due():
        fire = partial(scheduler.fire, key, again=True)
        label = f"signal {key[1]} is sent, and will be again"
        yield _fault(cluster, "doubled", label, lambda fire=fire: cluster.done(fire()))  # type: ignore[misc]
    for key in sorted(scheduler.deleted):
        late = partial(scheduler.fire_deleted, key)
        label = f"signal {key[1]} is sent though it was taken back"
        yield _fault(cluster, "doubled", label, lambda late=late: cluster.done(late()))  # type: ignore[misc]


def _redriven(cluster: Cluster) -> Iterator[Action]:
    for queue in cluster.queues:
        for letter in [*queue.dead, *queue.buried, *queue.done_with]:
            again = partial(queue.redrive, letter)
            yield _fault(cluster, "redriven", f"{letter.message_id} is redriven", again)
