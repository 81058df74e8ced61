"""Laws of runs that belong together: parents and children, and runs that go on as new ones.

Those between two runs hold when no message of either is in the run queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.core import events as e
from stepwell.core.parts import ChildState
from stepwell.core.records import RunHeader, RunStatus
from stepwell.core.state import RunState, fold
from stepwell.engine.past import ChildEvent
from stepwell.testing.facts import RunFacts


def check_children(events: Sequence[e.Event]) -> None:
    """A child is started once at most, cancelled once at most and while it is open, and ends once.

    Only one that was refused ends without having been started. After a retry it may all be said
    again, of another run.
    """
    seen: dict[str, list[ChildEvent]] = {}
    runs: set[str] = set()
    retried: set[str] = set()
    for number, event in enumerate(events, 1):
        if isinstance(event, e.RunRetried):
            retried |= set(seen)
        if not isinstance(event, ChildEvent):
            continue
        run_id = getattr(event, "run_id", "")
        # A stream run is the same one in each life of its parent: it has ended well, or is retried.
        same = isinstance(event, e.ChildStarted) and event.stream_run is not None
        if event.child in retried and run_id and (same or run_id not in runs):
            del seen[event.child]
            retried.remove(event.child)
        runs.add(run_id)
        where = f"event {number}: {event.type} of child {event.child!r}"
        before = seen.setdefault(event.child, [])
        kinds = [each.type for each in before]
        assert event.type not in kinds, f"{where}: the second one"
        assert "ChildEnded" not in kinds, f"{where}: after its end"
        assert not before or before[0].name == event.name, f"{where}: {event.name!r}, was another"
        refused = isinstance(event, e.ChildEnded) and event.status == "refused"
        begins = isinstance(event, e.ChildStarted) or refused
        # Whether a stream run is another's shows when its start is tried.
        error = event.error if isinstance(event, e.ChildEnded) and refused else None
        taken = error is not None and error.type.endswith("StreamRunTaken")
        assert begins == (not before) or taken, f"{where}: after {kinds}"
        before.append(event)


def check_families(found: Mapping[str, RunFacts]) -> None:
    """All laws between runs of a deployment."""
    for facts in found.values():
        header = facts.rows.header
        if header is None or header.deleted_at is not None:
            continue
        _check_parent(header, found)
        _check_chain(facts, header, found)
        if facts.events and not facts.in_queue:
            _check_own_children(facts, header, found)


def _check_own_children(facts: RunFacts, header: RunHeader, found: Mapping[str, RunFacts]) -> None:
    state = fold(facts.events)
    for child in state.children.values():
        if child.order and child.ending not in ("missing", "refused"):
            where = f"run {facts.run_id!r}, child {child.id!r}"
            last = _last_link(child.run_id, found)
            assert last is not None, f"{where}: it was started, and there is no run of it"
            if _is_deleted(last):
                continue
            _check_knows(state, header, child, last, where)
            _check_cancelled(state, header, child, last, where)


def _check_knows(
    state: RunState, header: RunHeader, child: ChildState, last: RunFacts, where: str
) -> None:
    """A parent that goes on knows that its child has ended."""
    ended = last.rows.header is not None and last.rows.header.status.terminal
    if ended and not last.in_queue and not state.terminal and header.attention is None:
        assert not child.open, f"{where}: it has ended, and its parent does not know"
    if not child.open:
        assert ended, f"{where}: its parent takes it for {child.ending}, and it goes on"


def _check_cancelled(
    state: RunState, header: RunHeader, child: ChildState, last: RunFacts, where: str
) -> None:
    """A child that nobody is to wait for any more is told so."""
    closed = state.terminal and child.on_parent_close == "cancel"
    unwanted = child.open and (closed or child.status == "cancelling")
    row = last.rows.header
    if not unwanted or header.attention is not None or last.in_queue or row is None:
        return
    stuck = row.attention is not None and row.attention.kind == "STUCK"
    told = row.status.terminal or stuck or fold(last.events).cancel is not None
    assert told, f"{where}: it is to be cancelled, and goes on as if not"


def _check_parent(header: RunHeader, found: Mapping[str, RunFacts]) -> None:
    """A child's header names a parent that has started just this run, or the one it goes on for."""
    if header.parent is None:
        return
    where = f"run {header.run_id!r}, child of {header.parent}"
    parent = found.get(header.parent.run_id)
    if parent is None or _is_deleted(parent):
        return
    first = header
    while first.continued_from is not None:
        before = found[first.continued_from].rows.header
        assert before is not None, f"{where}: it goes on for a run that is not there"
        if before.deleted_at is not None:
            return
        first = before
    started = [
        event
        for event in parent.events
        if isinstance(event, e.ChildStarted) and event.child == header.parent.child
    ]
    started = [each for each in started if each.run_id == first.run_id]
    if first.stream_run is not None:
        started = started[:1]  # a stream run is the same one in each life of its parent
    assert len(started) == 1, f"{where}: it was started {len(started)} times"
    begun = (first.workflow, first.input_digest, first.context, first.guards)
    asked = (started[0].name, started[0].digest, started[0].context, started[0].guards)
    assert begun == asked, f"{where}: it is not what was started"
    above = parent.rows.header.parent if parent.rows.header is not None else None
    depth = 1 if above is None else above.depth + 1
    assert header.parent.depth == depth, f"{where}: its parent is at depth {depth - 1}"


def _check_chain(facts: RunFacts, header: RunHeader, found: Mapping[str, RunFacts]) -> None:
    """Two links of a chain name each other, and have parent and tags in common."""
    continued = header.status is RunStatus.CONTINUED
    assert continued == (header.continued_to is not None), f"{header.status} {header.continued_to}"
    if header.continued_to is None or facts.in_queue:
        return
    where = f"run {header.run_id!r} goes on as {header.continued_to!r}"
    after = found.get(header.continued_to)
    successor = None if after is None else after.rows.header
    assert successor is not None, f"{where}: there is no such run"
    if successor.deleted_at is not None:
        return
    assert successor.continued_from == header.run_id, f"{where}, which is not of it"
    shared = (header.workflow, header.parent, header.tags)
    same = (successor.workflow, successor.parent, successor.tags) == shared
    assert same, f"{where}: with other {shared}"


def _is_deleted(facts: RunFacts) -> bool:
    return facts.rows.header is not None and facts.rows.header.deleted_at is not None


def _last_link(run_id: str, found: Mapping[str, RunFacts]) -> RunFacts | None:
    facts = found.get(run_id)
    while facts is not None and facts.rows.header is not None:
        after = found.get(facts.rows.header.continued_to or "")
        if after is None:
            break
        facts = after
    return facts
