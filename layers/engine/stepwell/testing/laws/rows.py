"""Laws of rows beside the log, whatever is under way: what both tell must be the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from stepwell.core import events as e
from stepwell.core.decide import first_event
from stepwell.core.records import Chunk, HookRow, HookStatus, RunHeader, StepRow
from stepwell.testing.facts import RunFacts
from stepwell.testing.laws.log import ENDS, one_life, own_events

_ENDED = {
    "HookReceived": HookStatus.RECEIVED,
    "HookExpired": HookStatus.EXPIRED,
    "HookClosed": HookStatus.CLOSED,
    "HookFailed": HookStatus.CLOSED,
}
_OUTCOMES = (e.StepCompleted, e.StepFailed, e.StepRetryScheduled, e.StepSuspended)


def check_rows(facts: RunFacts) -> None:
    """The laws of this module, on one run."""
    header, events = facts.rows.header, facts.events
    if header is None:
        assert not events, "a log without a header"
        return
    check_beginning(events, header)
    check_hook_rows(own_events(events), facts.rows.hooks)
    check_step_rows(events, facts.rows.steps)
    check_output(own_events(one_life(events)), facts.output)


def check_beginning(events: Sequence[e.Event], header: RunHeader) -> None:
    """The first event follows from the header, and the header is not ahead of the log."""
    assert header.last_event <= len(events), f"header: event {header.last_event} of {len(events)}"
    if events:
        expected = first_event(header)
        assert events[0] == expected, f"event 1: {events[0]}, from the header: {expected}"
    ended = bool(events) and isinstance(events[-1], ENDS)
    assert ended or not header.status.terminal, f"header: {header.status}, the run goes on"


def check_hook_rows(events: Sequence[e.Event], rows: Iterable[HookRow]) -> None:
    """A hook that the log knows has a row, which tells of the same opening and decision."""
    by_id = {row.hook_id: row for row in rows}
    for row in by_id.values():
        _check_row(row)
    for number, event in enumerate(events, 1):
        hook: str | None = getattr(event, "hook", None)
        if hook is not None:
            where = f"event {number}: {event.type} of hook {hook!r}"
            assert hook in by_id, f"{where}: it has no row"
            _check_told(event, by_id[hook], where)


def _check_row(row: HookRow) -> None:
    decided = row.status is not HookStatus.PENDING
    has = (row.decision_id is not None, row.decided_at is not None)
    assert has == (decided, decided), f"hook {row.hook_id!r} is {row.status}, its decision: {has}"
    answered = row.status is HookStatus.RECEIVED
    assert row.payload is not None or not answered, f"hook {row.hook_id!r}: an answer without value"


def _check_told(event: e.Event, row: HookRow, where: str) -> None:
    name, step = getattr(event, "name", None), getattr(event, "step", None)
    assert (name, step) == (row.name, row.step), f"{where}: the row is of {row.name!r}, {row.step}"
    if isinstance(event, e.HookOpened):
        deadlines = (event.expires_at, event.due_at)
        of_row = (row.expires_at, row.due_at)
        assert deadlines == of_row, f"{where}: deadlines {deadlines}, of the row: {of_row}"
    status = _ENDED.get(event.type)
    assert status in (None, row.status), f"{where}: the row is {row.status}"
    if isinstance(event, e.HookReceived):
        told = (event.decision_id, event.payload, event.actor)
        decided = (row.decision_id, row.payload, row.actor)
        assert told == decided, f"{where}: {told}, of the row: {decided}"
    elif isinstance(event, e.HookExpired):
        assert row.expires_at is not None, f"{where}: it has no deadline"
        assert event.at >= row.expires_at, f"{where}: at {event.at}, due at {row.expires_at}"
    elif isinstance(event, (e.HookClosed, e.HookFailed)):
        untold = row.decision_id == "unnotified"
        failed = isinstance(event, e.HookFailed)
        assert untold == failed, f"{where}: decision {row.decision_id!r}"


def check_step_rows(events: Sequence[e.Event], rows: Iterable[StepRow]) -> None:
    """A dispatched step's row is of a dispatched attempt, and what came of it is recorded as said.

    What was called off, or came too late, is not recorded at all.
    """
    for row in rows:
        where = f"the row of step {row.step!r}"
        start = events[row.order - 1] if 0 < row.order <= len(events) else None
        dispatched = (
            isinstance(start, e.StepStarted) and start.step == row.step and start.input is not None
        )
        assert dispatched, f"{where}: event {row.order} dispatches no attempt of it"
        if row.outcome is None:
            continue
        said = e.load_events(row.outcome)[-1]
        recorded = next(
            (
                event
                for event in _same_life(events[row.order :])
                if isinstance(event, _OUTCOMES) and event.step == row.step
            ),
            None,
        )
        if recorded is not None:
            same = _untimed(recorded) == _untimed(said)
            assert same, f"{where}: it says {said}, the log {recorded}"


def _same_life(events: Sequence[e.Event]) -> Iterator[e.Event]:
    return takewhile(lambda event: not isinstance(event, e.RunRetried), events)


def _untimed(event: e.Event) -> Mapping[str, object]:
    fields: Iterable[str] = type(event).__dataclass_fields__
    return {name: getattr(event, name) for name in fields if name != "at"}


def read_output(step: str, chunks: Iterable[Chunk]) -> int:
    """How many chunks a reader has in the end, who takes back what a reset mark supersedes.

    Chunks come one after the other, each once, and a mark takes back only what was there.
    """
    count = 0
    for position, chunk in enumerate(chunks, 1):
        where = f"output of step {step!r}, row {position}"
        assert chunk.position == position, f"{where}: it is numbered {chunk.position}"
        if chunk.value is None:
            assert chunk.number <= count, f"{where}: a mark at {chunk.number}, of {count} chunks"
        else:
            assert chunk.number == count + 1, f"{where}: chunk {chunk.number} after {count}"
        count = chunk.number
    return count


def check_output(events: Sequence[e.Event], output: Mapping[str, Sequence[Chunk]]) -> None:
    """A reader finds as many chunks as a completed step is recorded to have put out."""
    counts = {step: read_output(step, chunks) for step, chunks in output.items()}
    for number, event in enumerate(events, 1):
        if isinstance(event, e.StepCompleted):
            where = f"event {number}: StepCompleted of step {event.step!r}"
            count = counts.get(event.step, 0)
            assert event.output == count, f"{where}: {event.output} chunks, a reader finds {count}"
