"""Laws of stream runs and subscriptions: each finds what it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepwell import (
    emit,
    get_current_signal,
    save_checkpoint,
    step,
    stream_step,
    stream_workflow,
    suspend,
)
from stepwell.core import events as e
from stepwell.core.signals import StreamKey
from stepwell.core.state import fold
from stepwell.core.stream_state import dump_snapshot
from stepwell.testing import Environment
from stepwell.testing.facts import RunFacts, StreamFacts, streams_of
from stepwell.testing.laws import (
    check_handlings,
    check_notes,
    check_replays_of,
    check_streams,
    check_subscription,
)
from stepwell.testing.local_facts import all_local_facts, local_streams

KEY = StreamKey("judged", "default")


@step(name="judged.noted")
async def noted(number: int) -> int:
    return number


@stream_workflow(name="judged")
async def judged() -> None:
    await emit("judged", "seen", {"first": True})


@stream_step(stream=judged, signals=["seen", "held"], name="judge")
async def judge() -> None:
    """Takes three, then waits for a person."""
    signal = await get_current_signal()
    if signal is not None:
        await save_checkpoint(await noted(signal.sequence))
        if signal.sequence == 3:
            await suspend("somebody looks", resume_signals=["seen"])


class Judged:
    """What is to be judged, to be changed before it is."""

    def __init__(self, env: Environment) -> None:
        env.start(judged)
        env.run_until_idle()
        for kind in ("seen", "seen", "held"):
            env.wait_for(env.client.emit("judged", kind, {}))
            env.run_until_idle()
        _, facts = env.wait_for(all_local_facts(env._local))
        self.runs: dict[str, RunFacts] = {each.run_id: each for each in facts}
        streams = env.wait_for(local_streams(env._local, streams_of(facts)))
        [self.stream] = streams
        [self.run] = [each for each in facts if each.run_id.startswith("sub-")]
        self.step = judge.definition
        self.promised: dict[StreamKey, set[str]] = {}

    def check(self) -> None:
        self.runs[self.run.run_id] = self.run
        check_subscription(self.run)
        check_replays_of(self.run, self.step)
        check_notes(self.runs)
        check_streams([self.stream], self.runs, self.promised)

    def change(self, kind: type, change: Callable[[Any], list[e.Event]], *, which: int = 0) -> None:
        """Have other events in place of one."""
        of_kind = [each for each in self.run.events if isinstance(each, kind)]
        wanted = of_kind[which]
        commits = [
            replace(
                commit,
                events=tuple(
                    new
                    for event in commit.events
                    for new in (change(event) if event is wanted else [event])
                ),
            )
            for commit in self.run.rows.commits
        ]
        fixed, last = [], 0
        for commit in commits:
            if commit.events:
                fixed.append(replace(commit, first=last + 1))
                last += len(commit.events)
        self.run = replace(self.run, rows=replace(self.run.rows, commits=tuple(fixed)))


@pytest.fixture
def case(stepwell_env: Environment) -> Judged:
    return Judged(stepwell_env)


def test_what_went_well_is_found_so(case: Judged) -> None:
    case.promised = {KEY: {signal.signal_id for _, signal in case.stream.signals}}
    case.check()


def _gap(stream: StreamFacts) -> StreamFacts:
    return replace(stream, signals=stream.signals[1:])


def _twice(stream: StreamFacts) -> StreamFacts:
    again = stream.signals[0]._replace(sequence=len(stream.signals) + 1)
    return replace(stream, signals=(*stream.signals, again))


def _lagging(stream: StreamFacts) -> StreamFacts:
    assert stream.head is not None
    return replace(stream, head=replace(stream.head, last=1))


def _wrong_number(stream: StreamFacts) -> StreamFacts:
    return replace(stream, numbers={**stream.numbers, stream.signals[0].signal.signal_id: 2})


def _one_more(stream: StreamFacts) -> StreamFacts:
    """A signal that nobody has taken."""
    assert stream.head is not None
    _, signal = stream.signals[0]
    new = replace(signal, signal_id="new")
    last = len(stream.signals) + 1
    return replace(
        stream,
        signals=(*stream.signals, stream.signals[0]._replace(sequence=last, signal=new)),
        head=replace(stream.head, last=last),
    )


def _never_sent(stream: StreamFacts) -> StreamFacts:
    _, signal = stream.signals[0]
    other = stream.signals[0]._replace(signal=replace(signal, signal_id="other"))
    return replace(stream, signals=(other, *stream.signals[1:]), numbers={})


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (_gap, "is numbered 2"),
        (_twice, "more than one number"),
        (_lagging, "its head says 1 of 4"),
        (_wrong_number, "its id is remembered as that of 2"),
        (_one_more, "it rests, and signal 5 waits for it"),
        (_never_sent, "was never sent"),
    ],
)
def test_a_broken_stream_run_is_found(
    case: Judged, break_it: Callable[[StreamFacts], StreamFacts], told: str
) -> None:
    case.stream = break_it(case.stream)
    with pytest.raises(AssertionError, match=told):
        case.check()


def test_a_signal_that_was_promised_and_is_not_there_is_found(case: Judged) -> None:
    case.promised = {KEY: {"sig_lost"}}
    with pytest.raises(AssertionError, match="promised to senders, and never numbered"):
        case.check()


def test_a_signal_that_is_left_out_is_found(case: Judged) -> None:
    """Its taking and its end are not in the log: the cursor passes it all the same."""
    events = case.run.events
    out = [each for each in events if getattr(each, "sequence", None) == 2]
    for each in out:
        case.change(type(each), lambda _: [], which=2)
    case.change(e.StepCompleted, lambda _: [], which=1)
    case.run = _without_header(case.run)
    with pytest.raises(AssertionError, match="signal 2 is settled, and came to"):
        case.check()


def _without_header(run: RunFacts) -> RunFacts:
    return replace(run, in_queue=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda event: [replace(event, status="waiting")], "the log says"),
        (lambda event: [replace(event, checkpoint="9")], "the log says"),
        (lambda event: [replace(event, checkpoint=None)], "the log says"),
    ],
)
def test_effects_that_the_code_has_not_had_are_found(
    case: Judged, change: Callable[[Any], list[e.Event]], told: str
) -> None:
    case.change(e.SignalHandled, change, which=3)
    case.run = _without_header(case.run)
    with pytest.raises(AssertionError, match=told):
        case.check()


def test_a_signal_that_is_taken_twice_is_found(case: Judged) -> None:
    taken = [each for each in case.run.events if isinstance(each, e.SignalTaken)][1]
    handled = [each for each in case.run.events if isinstance(each, e.SignalHandled)][1]
    with pytest.raises(AssertionError, match="signal 1 is taken again"):
        check_handlings([*case.run.events, taken, handled])


def test_a_step_that_is_done_twice_in_one_handling_is_found(case: Judged) -> None:
    [*_, done] = [each for each in case.run.events if isinstance(each, e.StepCompleted)]
    events = [
        each for event in case.run.events for each in ([event, event] if event is done else [event])
    ]
    with pytest.raises(AssertionError, match="another outcome of step"):
        check_handlings(events)


def test_a_snapshot_that_holds_something_else_is_found(case: Judged) -> None:
    events = list(case.run.events)
    cut = next(n for n, each in enumerate(events) if isinstance(each, e.SignalHandled)) + 1
    right = e.SubscriptionSnapshot(at=events[cut - 1].at, state=dump_snapshot(fold(events[:cut])))
    wrong = replace(right, state=right.state.replace('"handled":0', '"handled":7'))
    assert wrong != right
    for snapshot, found in ((right, False), (wrong, True)):
        commit = replace(case.run.rows.commits[0], events=(*events[:cut], snapshot, *events[cut:]))
        rows = replace(case.run.rows, commits=(replace(commit, number=1),))
        run = replace(case.run, rows=rows, in_queue=True)
        if not found:
            check_subscription(run)
            continue
        with pytest.raises(AssertionError, match="snapshot"):
            check_subscription(run)


def test_a_header_that_says_something_else_of_a_subscription_is_found(case: Judged) -> None:
    header = case.run.rows.header
    assert header is not None
    assert header.subscription is not None
    other = replace(header, subscription=replace(header.subscription, cursor=1))
    case.run = replace(case.run, rows=replace(case.run.rows, header=other))
    with pytest.raises(AssertionError, match="header"):
        case.check()


def test_a_parent_that_does_not_show_what_its_child_waits_for_is_found(case: Judged) -> None:
    owner = case.runs[KEY.owner]
    commits = tuple(
        replace(each, events=tuple(event for event in each.events if event.type != "ChildWaits"))
        for each in owner.rows.commits
    )
    assert commits != owner.rows.commits
    kept = tuple(each for each in commits if each.events)
    case.runs[KEY.owner] = replace(owner, rows=replace(owner.rows, commits=kept))
    with pytest.raises(AssertionError, match="'somebody looks'"):
        check_notes(case.runs)
