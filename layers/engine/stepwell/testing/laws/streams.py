"""Laws of stream runs: how their signals are numbered, and what becomes of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stepwell.core import events as e
from stepwell.core.signals import StreamKey, SubscriptionRow
from stepwell.core.state import fold_commits
from stepwell.core.subscription import Subscription
from stepwell.engine.noting import note_of
from stepwell.streams.matching import next_signal, start_of
from stepwell.testing.facts import RunFacts, StreamFacts
from stepwell.testing.laws.subscriptions import subscription_of, taken_in


def check_streams(
    streams: Iterable[StreamFacts],
    runs: Mapping[str, RunFacts],
    promised: Mapping[StreamKey, Collection[str]],
) -> None:
    """All laws on stream runs: `runs` are those of the deployment, `promised` the ids of signals
    that callers were told are sent.
    """
    for stream in streams:
        owner = runs.get(stream.key.owner)
        header = None if owner is None else owner.rows.header
        if header is not None and header.deleted_at is not None:
            continue
        try:
            check_sequence(stream)
            if stream.quiet:
                _check_known(stream)
                lost = sorted({*promised.get(stream.key, ())} - stream.ids)
                assert not lost, f"promised to senders, and never numbered: {lost}"
                _check_emitted(stream, runs.values())
            for row in stream.subscriptions:
                if row.run_id in runs:
                    _check_subscription(stream, row, runs[row.run_id])
        except AssertionError as error:
            raise AssertionError(f"stream run {stream.key}: {error}") from error


def check_notes(runs: Mapping[str, RunFacts]) -> None:
    """A run that waits for others shows what they wait for, when all of them are at rest."""
    for run in runs.values():
        header = run.rows.header
        parent = None if header is None else header.parent
        told = None if parent is None else runs.get(parent.run_id)
        if parent is None or told is None or not (_waits(run) and _waits(told)):
            continue
        child = fold_commits(told.rows.commits).children.get(parent.child)
        if child is None or not child.open or child.run_id != run.run_id:
            continue
        note = note_of(fold_commits(run.rows.commits))
        shown = child.waits_for
        assert shown == note, f"run {told.run_id!r} shows {shown!r} of {run.run_id!r}, not {note!r}"


def _waits(run: RunFacts) -> bool:
    header = run.rows.header
    return header is not None and not header.status.terminal and _is_settled(run)


def check_sequence(stream: StreamFacts) -> None:
    """Signals are numbered 1, 2, 3 … without gaps, each id once."""
    for number, (sequence, signal) in enumerate(stream.signals, 1):
        assert sequence == number, f"signal {number}, {signal.signal_id!r}, is numbered {sequence}"
    twice = len(stream.signals) - len(stream.ids)
    assert not twice, f"{twice} signals have more than one number"
    last = 0 if stream.head is None else stream.head.last
    assert last <= len(stream.signals), f"its head says {last} of {len(stream.signals)} signals"


def _check_known(stream: StreamFacts) -> None:
    """Once all is numbered, the head says so, and ids that are remembered have their numbers."""
    last = 0 if stream.head is None else stream.head.last
    assert last == len(stream.signals), f"its head says {last} of {len(stream.signals)} signals"
    for number, signal in stream.signals:
        known = stream.numbers.get(signal.signal_id, number)
        assert known == number, f"signal {number}: its id is remembered as that of {known}"


def _check_emitted(stream: StreamFacts, runs: Iterable[RunFacts]) -> None:
    """What code emitted has been sent, once its run is at rest."""
    for run in runs:
        if not _is_settled(run):
            continue
        for event in run.events:
            if isinstance(event, e.SignalEmitted) and event.stream == stream.key.stream:
                sent = event.stream_run != stream.key.run or event.signal_id in stream.ids
                taken_back = event.signal_id in stream.withdrawn
                assert sent or taken_back, f"run {run.run_id!r}: {event.emit!r} was never sent"


def _is_settled(run: RunFacts) -> bool:
    header = run.rows.header
    if header is None or header.deleted_at is not None or header.attention is not None:
        return False
    return run.at_rest


def _check_subscription(stream: StreamFacts, row: SubscriptionRow, run: RunFacts) -> None:
    known = subscription_of(run)
    if known is None:
        return
    try:
        _check_places(stream, known)
        if not run.before:
            _check_taken_as_sent(stream, run)
            _check_ends(stream, row, known, run)
        if stream.quiet and _is_settled(run) and not _is_over(known, run):
            assert not row.ended, "it goes on, and its row says that it has ended"
            _check_nothing_left(stream, row, known)
    except AssertionError as error:
        raise AssertionError(f"subscription {row.step!r}: {error}") from error


def _is_over(known: Subscription, run: RunFacts) -> bool:
    header = run.rows.header
    return known.ended or header is None or header.status.terminal


def _check_places(stream: StreamFacts, known: Subscription) -> None:
    """What is settled is numbered; what stands ahead of the cursor is above it, and in order."""
    last = len(stream.signals)
    assert known.cursor <= last, f"its cursor is {known.cursor}, of {last} signals"
    assert [*known.ahead] == sorted({*known.ahead}), f"ahead: {known.ahead}"
    wrong = [n for n in known.ahead if not known.cursor + 1 < n <= last]
    assert not wrong, f"ahead of cursor {known.cursor}: {wrong}, of {last} signals"
    assert known.held <= last, f"it has looked at {known.held}, of {last} signals"
    parked = [each.sequence for each in known.parked]
    assert len(parked) == len({*parked}), f"parked twice: {parked}"
    unsettled = [n for n in parked if n > known.cursor and n not in known.ahead]
    assert not unsettled, f"parked, and not settled: {unsettled}"


def _check_taken_as_sent(stream: StreamFacts, run: RunFacts) -> None:
    """What was taken is what was sent, under its number."""
    sent = dict(stream.signals)
    for event in run.events:
        if isinstance(event, e.SignalTaken) and event.sequence:
            signal = sent.get(event.sequence)
            told = None if signal is None else (signal.signal_id, signal.type, signal.payload)
            said = (event.signal_id, event.signal_type, event.payload)
            assert told == said, f"signal {event.sequence}: it took {said}, sent was {told}"


def _check_ends(
    stream: StreamFacts, row: SubscriptionRow, known: Subscription, run: RunFacts
) -> None:
    """Each signal that it subscribes to has one end, or waits; none of another type has any."""
    ends = taken_in(run)
    under_way = None if known.current is None else known.current.sequence
    waiting = {each.sequence for each in known.parked}
    for number, signal in stream.signals:
        found = ends.get(number, [])
        final = [end for end in found if end in ("handled", "acknowledged", "discarded")]
        assert len(final) <= 1, f"signal {number} came to {found}"
        settled = number <= known.cursor or number in known.ahead
        if row.ended or signal.type not in row.types:
            continue
        due = settled and number != under_way and number not in waiting
        assert not due or len(final) == 1, f"signal {number} is settled, and came to {found}"
        early = bool(found) and not settled
        assert not early, f"signal {number} came to {found}, and is not settled"
    handled = sum(end in ("handled", "acknowledged") for n in ends if n for end in ends[n])
    assert known.handled == handled, f"it counts {known.handled} handled signals of {handled}"


def _check_nothing_left(stream: StreamFacts, row: SubscriptionRow, known: Subscription) -> None:
    """At rest, it has nothing to take: it has begun, and no signal is there that it would take."""
    if known.current is not None:
        return  # its code waits for something, as other laws hold
    assert known.begun, "it rests, and was never called"
    assert not known.redrive, f"it rests, and is to redrive {known.redrive}"
    if known.blocked_by is not None:
        return
    behind = [each for each in stream.signals if each.sequence > start_of(known)]
    found = next_signal(known, row.types, behind).signal
    assert found is None, f"it rests, and signal {found and found.sequence} waits for it"
