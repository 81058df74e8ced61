"""Laws of a log by itself: its numbers, its beginning and end, its times, its folds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from stepwell.client import Recorded
from stepwell.core import events as e
from stepwell.core.records import Millis
from stepwell.core.state import RunState, fold

#: Events that end a run.
ENDS = (e.RunCompleted, e.RunFailed, e.RunCancelled, e.RunContinued)
_STEP_ENDS = (e.StepCompleted, e.StepFailed)
_DECISIONS = (e.HookReceived, e.HookExpired, e.HookClosed)
#: Up to here a log is cut everywhere, a longer one at so many places; at fewer where it is so long
#: that its parts would have more events than this together.
_CUTS = 60
_EVENTS = 20_000


def cuts(count: int) -> Sequence[int]:
    """Where to cut a log of so many events: everywhere, or at places spread evenly over it."""
    if count <= _CUTS:
        return range(count + 1)
    places = min(_CUTS, max(2 * _EVENTS // count, 4))
    return sorted({round(place * count / places) for place in range(places + 1)})


def check_numbers(recorded: Sequence[Recorded]) -> None:
    """Events are numbered 1, 2, 3 … without gaps."""
    for number, each in enumerate(recorded, 1):
        assert each.number == number, f"event {number} is numbered {each.number}"


def check_commits(commits: Sequence[e.Commit]) -> None:
    """Each commit goes on where the one before ends, and was written once.

    A turn numbers its commits 1, 2, 3 …; whoever takes over from it does not come back. A log that
    begins with a snapshot goes on from before that.
    """
    snapshot = bool(commits) and isinstance(commits[0].events[0], e.SubscriptionSnapshot)
    last, written = commits[0].first - 1 if snapshot else 0, Counter[str]()
    if snapshot:
        written[commits[0].turn] = commits[0].number - 1
    for before, commit in zip([None, *commits], commits, strict=False):
        assert commit.events, f"event {commit.first}: a commit without events"
        assert commit.first == last + 1, f"event {commit.first}: a commit after event {last}"
        last = commit.last
        again = before is not None and before.turn != commit.turn and commit.turn in written
        assert not again, f"event {commit.first}: turn {commit.turn!r} writes after another turn"
        written[commit.turn] += 1
        assert commit.number == written[commit.turn], (
            f"event {commit.first}: commit {commit.number} of turn {commit.turn!r}, "
            f"which has written {written[commit.turn]}"
        )


def check_order(events: Sequence[e.Event]) -> None:
    """The first event starts the run; nothing but a retry follows an end, and not any end."""
    assert events, "a history has a first event"
    assert isinstance(events[0], e.RunStarted), f"event 1 is {events[0].type}"
    ended = False
    for number, event in enumerate(events, 1):
        started = isinstance(event, e.RunStarted)
        assert not started or number == 1, f"event {number}: the run is started again"
        if isinstance(event, e.RunRetried):
            again = isinstance(events[number - 2], e.RunFailed | e.RunCancelled)
            assert again, f"event {number}: retried after {events[number - 2].type}"
        else:
            assert not ended, f"event {number}: {event.type} after the end of the run"
        ended = isinstance(event, ENDS)


def lives_of(events: Sequence[e.Event]) -> list[Sequence[e.Event]]:
    """The log up to each end of the run, and whole, without what was forgotten by then."""
    ends = [n for n, event in enumerate(events) if isinstance(event, e.RunRetried)]
    return [own_events(one_life(events[:end])) for end in [*ends, len(events)]]


def one_life(events: Sequence[e.Event]) -> Sequence[e.Event]:
    """The log as if the run had lived once: without what a retry does again."""
    lives = fold(events).lives
    if not lives.retried:
        return events
    shown = zip(events, lives.effective(events), strict=True)
    return [event for event, same in shown if event is same and not isinstance(event, ENDS)]


def own_events(events: Sequence[e.Event]) -> Sequence[e.Event]:
    """Without those that a fork has copied, whose beginnings it has not."""
    copied = [n for n, event in enumerate(events, 1) if isinstance(event, e.RunForked)]
    return events[max(copied, default=0) :]


def check_outcomes(events: Sequence[e.Event]) -> None:
    """Each step has at most one outcome, each hook one decision, each timer fires once."""
    for kinds, field in ((_STEP_ENDS, "step"), (_DECISIONS, "hook"), ((e.TimerFired,), "timer")):
        times = Counter(getattr(event, field) for event in events if isinstance(event, kinds))
        twice = sorted(identity for identity, count in times.items() if count > 1)
        assert not twice, f"more than one {field} outcome: {twice}"


def check_times(events: Sequence[e.Event]) -> None:
    """Time never runs backwards, and nothing that has a time happens before it."""
    expires: dict[str, Millis] = {}
    retries: dict[str, Millis] = {}
    last: Millis = 0
    for number, event in enumerate(events, 1):
        assert event.at >= last, f"event {number}: {event.at} is before {last}"
        last = event.at
        early: Millis = 0
        if isinstance(event, e.HookOpened) and event.expires_at is not None:
            expires[event.hook] = event.expires_at
        elif isinstance(event, e.HookExpired):
            early = expires.get(event.hook, 0)
        elif isinstance(event, e.TimerFired):
            early = event.due
        elif isinstance(event, e.StepRetryScheduled):
            early = retries.get(event.step, 0)
            retries[event.step] = event.due
        elif isinstance(event, (e.StepStarted, e.StepSuspended, *_STEP_ENDS)):
            early = retries.pop(event.step, 0)
        assert event.at >= early, f"event {number}: {event.type} at {event.at}, due at {early}"


def check_cancels(events: Sequence[e.Event]) -> None:
    """A run is told of its cancellation once, and ends cancelled only when it was told."""
    told = 0
    for number, event in enumerate(events, 1):
        if isinstance(event, e.CancelRequested):
            assert not told, f"event {number}: cancelled again, by request {event.request_id!r}"
            told = number
        elif isinstance(event, e.RunCancelled):
            assert told, f"event {number}: it ended cancelled, and nobody asked for that"


def check_folds(events: Sequence[e.Event]) -> None:
    """Folding a prefix and then the rest is folding all, also of events written and read back."""
    whole = state_facts(fold(events))
    read = e.load_events(e.dump_events(events))
    for number, (before, after) in enumerate(zip(events, read, strict=True), 1):
        assert before == after, f"event {number} changes when it is written and read: {after}"
    for cut in cuts(len(events)):
        state = fold(events[:cut])
        assert state.last == cut, f"event {cut}: the fold counts {state.last}"
        for event in read[cut:]:
            state.apply(event)
        assert state_facts(state) == whole, f"the fold depends on a cut after event {cut}"


def state_facts(state: RunState) -> dict[str, Any]:
    """All that a fold has come to."""
    return {name: getattr(state, name) for name in RunState.__slots__}
