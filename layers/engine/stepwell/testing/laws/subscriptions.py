"""Laws of one subscription: what it took comes to one end each, and its log can be cut anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stepwell.core import events as e
from stepwell.core.definitions import StreamStepDefinition
from stepwell.core.records import RunHeader
from stepwell.core.state import RunState, fold, fold_commits, is_of, numbered
from stepwell.core.stream_state import dump_snapshot
from stepwell.core.subscription import Subscription
from stepwell.engine.noting import glance
from stepwell.testing.facts import RunFacts
from stepwell.testing.handlings import replay_handlings
from stepwell.testing.laws.inbox import check_entries, check_taken
from stepwell.testing.laws.log import check_cancels, check_commits, check_times, cuts, state_facts
from stepwell.testing.laws.rest import (
    STATUS,
    check_attempts_of,
    check_listed_hooks,
    check_open_hooks,
    check_recorded,
    check_reports,
    check_shown,
    check_timer_of,
    check_waits,
)

_OUTCOMES = (e.StepCompleted, e.StepFailed)


def check_subscription(facts: RunFacts) -> None:
    """All laws on the log and the rows of one subscription; more when it is at rest."""
    if facts.events:
        check_commits(facts.rows.commits)
        check_cancels(facts.events)
        check_times(facts.events)
        check_handlings(facts.events)
        check_cuts(facts)
    check_entries(facts)
    _check_rest(facts)


def check_handlings(events: Sequence[e.Event]) -> None:
    """A signal is taken once, and again only when it was parked; it comes to an end before the next
    is taken. What succeeded in it is not done again in another attempt. `events` may begin with a
    snapshot.
    """
    taken: set[int] = set()
    for part in _handlings(events):
        first = part[0]
        assert isinstance(first, e.SignalTaken)
        where = f"signal {first.sequence}"
        again = first.sequence in taken and not first.redriven
        assert not again, f"{where} is taken again"
        taken.add(first.sequence)
        _check_once(part, where)
        for event in part:
            if isinstance(event, e.SignalHandled):
                both = sorted({*(event.acknowledged or ())} & taken)
                assert not both, f"{where}: {both} are acknowledged, and were taken"
                taken.update(event.acknowledged or ())


def _check_once(part: Sequence[e.Event], where: str) -> None:
    """Of one handling: each step has one outcome until it is done again, all numbers agree."""
    done: Counter[str] = Counter()
    for event in part:
        if isinstance(event, _OUTCOMES):
            done[event.step] += 1
            assert done[event.step] == 1, f"{where}: another outcome of step {event.step!r}"
        elif isinstance(event, e.StepSuperseded):
            del done[event.step]
        elif isinstance(event, e.SignalRetryScheduled):
            for step in event.redo or ():
                del done[step]
            for step in [step for step in done if "#" in step]:
                # An item of a map is done again with its map, which the event names.
                if step.partition("#")[0] in (event.redo or ()):
                    del done[step]


def _handlings(events: Sequence[e.Event]) -> Iterator[list[e.Event]]:
    """The events of each handling, from that which took its signal on."""
    part: list[e.Event] = []
    for event in events:
        if isinstance(event, e.SignalTaken):
            if part:
                yield part
            part = []
        if part or isinstance(event, e.SignalTaken):
            part.append(event)
    if part:
        yield part


def check_replays_of(facts: RunFacts, step: StreamStepDefinition) -> None:
    """The code of each signal takes the way that is recorded of it, to the same end.

    Of one that is under way only when the run is at rest: then it waits for what is recorded.
    """
    for each in replay_handlings(step, facts.history, run_id=facts.run_id, before=facts.before):
        if each.end is not None or facts.at_rest:
            each.check()


def check_cuts(facts: RunFacts) -> None:
    """Folding a part and then the rest is folding all; a snapshot holds all that came before it."""
    events, before = facts.events, facts.before
    whole = state_facts(fold_commits(facts.rows.commits))
    read = e.load_events(e.dump_events(events))
    snapshots = [n for n, event in enumerate(read) if isinstance(event, e.SubscriptionSnapshot)]
    for cut in {*cuts(len(events)), *snapshots}:
        state = fold(read[:cut], before)
        for event in read[cut:]:
            if cut in snapshots and event is read[cut]:
                assert isinstance(event, e.SubscriptionSnapshot)
                if cut:
                    same = dump_snapshot(state) == event.state
                    assert same, f"event {before + cut + 1}: the snapshot says something else"
            state.apply(event)
        assert state_facts(state) == whole, f"the fold depends on a cut after event {before + cut}"
    for cut in snapshots:
        _check_read_from(read, before, cut)


def _check_read_from(events: Sequence[e.Event], before: int, cut: int) -> None:
    """Who reads from a snapshot on comes to what he comes to who reads all."""
    later, whole = fold(events[cut:], before + cut), fold(events, before)
    for name in RunState.__slots__:
        found, expected = getattr(later, name), getattr(whole, name)
        assert found == expected, f"from snapshot {before + cut + 1}: {name} is {found}"


def _check_rest(facts: RunFacts) -> None:
    header = facts.rows.header
    if header is None or facts.in_queue:
        return
    assert facts.events or header.attention is not None, "it was accepted, and nothing began"
    if not facts.events:
        return
    state = fold_commits(facts.rows.commits)
    if header.attention is None:
        _check_header(state, header)
    waits = not header.status.terminal and header.attention is None
    if waits:
        check_timer_of(state, facts.timer)
        check_attempts_of(state, facts.attempts)
    if facts.attempts:
        return
    own = replace(
        facts.rows,
        hooks=tuple(row for row in facts.rows.hooks if is_of(state, row.hook_id, row.step)),
        steps=tuple(row for row in facts.rows.steps if is_of(state, row.step)),
    )
    if header.attention is None or header.attention.kind != "STUCK":
        check_recorded(state, own.hooks)
        check_taken(state, own.inbox)
    if header.attention is None and not state.terminal:
        check_open_hooks(state, own.hooks)
        pending = {row.hook_id for row in facts.rows.hooks if row.status == "PENDING"}
        left = sorted(pending - {row.hook_id for row in own.hooks})
        assert not left, f"hooks of signals that are through are open: {left}"
    if waits:
        check_waits(state, facts)
        check_reports(state, own.steps)
    if facts.open_hooks is not None:
        check_listed_hooks(facts.rows.hooks, facts.open_hooks)


def _check_header(state: RunState, header: RunHeader) -> None:
    """The header says what the log says, also of how the subscription stands."""
    assert state.status is not None
    expected = STATUS[state.status]
    assert header.status is expected, f"header: {header.status}, the log: {state.status}"
    assert header.last_event == state.last, f"header: event {header.last_event} of {state.last}"
    assert header.snapshot == state.snapshot, f"header: snapshot {header.snapshot}"
    types = () if header.subscription is None else header.subscription.types
    shown = glance(state.subscription, types)
    assert header.subscription == shown, f"header: {header.subscription}, the log: {shown}"
    if state.terminal:
        assert header.waiting == (), f"header: an ended run waits for {header.waiting}"
    else:
        check_shown(state.waits(), header)


def taken_in(facts: RunFacts) -> Mapping[int, list[str]]:
    """What each signal came to, by number, as the log has it: where it is whole."""
    found: dict[int, list[str]] = {}
    for _, event in numbered(facts.rows.commits):
        if isinstance(event, e.SignalHandled):
            found.setdefault(event.sequence, []).append("handled")
            for number in event.acknowledged or ():
                found.setdefault(number, []).append("acknowledged")
        elif isinstance(event, e.SignalParked):
            found.setdefault(event.sequence, []).append("parked")
        elif isinstance(event, e.SignalDiscarded):
            found.setdefault(event.sequence, []).append("discarded")
    return found


def subscription_of(facts: RunFacts) -> Subscription | None:
    """What a subscription has come to."""
    return fold_commits(facts.rows.commits).subscription if facts.events else None
