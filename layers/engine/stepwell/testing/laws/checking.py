"""All laws on a history, on a run, on a deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from stepwell.client import RunHandle
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.events import Event, dump_events
from stepwell.core.records import RunHeader, is_reference
from stepwell.core.signals import is_subscription
from stepwell.testing.facts import VALUES, Lists, RunFacts, StreamFacts
from stepwell.testing.laws.deleted import check_deleted
from stepwell.testing.laws.families import check_children, check_families
from stepwell.testing.laws.forks import check_forks
from stepwell.testing.laws.inbox import check_entries, check_inbox
from stepwell.testing.laws.lists import check_lists
from stepwell.testing.laws.log import (
    check_cancels,
    check_commits,
    check_folds,
    check_order,
    check_outcomes,
    check_times,
    lives_of,
)
from stepwell.testing.laws.maps import check_maps
from stepwell.testing.laws.replays import check_replay
from stepwell.testing.laws.rest import check_header, check_rest
from stepwell.testing.laws.rows import check_rows
from stepwell.testing.laws.steps import check_dispatches, check_steps
from stepwell.testing.laws.streams import check_notes, check_streams
from stepwell.testing.laws.subscriptions import check_subscription
from stepwell.testing.laws.waits import check_hooks, check_timers
from stepwell.testing.promises import Promises

WorkflowOf = Callable[[str], WorkflowDefinition | None]
#: Logs that were found sound lately, with the code that was replayed. Drives that differ in where
#: something dies mostly end with one and the same log, and that is judged once.
_SOUND: dict[tuple[object, ...], WorkflowDefinition | None] = {}
_SOUND_LIMIT = 256


class Inspectable(Protocol):
    """What can tell of its runs, such as an `Environment`."""

    def facts(self, run_id: str) -> RunFacts:
        """All that can be seen of a run."""

    def workflow(self, name: str) -> WorkflowDefinition | None:
        """The definition that the runs of a workflow have been played by, if it is known."""


def check_history(
    events: Sequence[Event],
    header: RunHeader | None = None,
    workflow: WorkflowDefinition | None = None,
) -> None:
    """The laws of a log by itself, of its header and of its replay, as far as those are given.

    Values of the events must be inline, as `Client.history` returns them.
    """
    _check_log(events)
    if header is not None:
        check_header(events, header)
    if workflow is not None and not (header is not None and header.attention is not None):
        check_replay(events, workflow, "a-run" if header is None else header.run_id)


def _check_log(events: Sequence[Event]) -> None:
    check_order(events)
    for life in lives_of(events):
        _check_life(life)
    check_maps(events)
    check_inbox(events)
    check_children(events)
    check_folds(events)


def _check_life(events: Sequence[Event]) -> None:
    check_outcomes(events)
    check_times(events)
    check_cancels(events)
    check_steps(events)
    check_dispatches(events)
    check_hooks(events)
    check_timers(events)


def check_run(env: Inspectable, run: RunHandle[Any]) -> None:
    """All laws, on one run of an environment."""
    facts = env.facts(run.id)
    header = facts.rows.header
    check_facts(facts, None if header is None else env.workflow(header.workflow))


def check_facts(facts: RunFacts, workflow: WorkflowDefinition | None = None) -> None:
    """All laws, on one run: those of its log and its rows always, more when it is at rest.

    Without its workflow it is not replayed. Nor is a run that a note says has no code that fits.
    """
    with _named(facts.run_id):
        header = facts.rows.header
        if header is not None and header.deleted_at is not None:
            check_deleted(facts)
            return
        if is_subscription(facts.run_id):
            check_subscription(facts)
            return
        check_commits(facts.rows.commits)
        if facts.events:
            noted = header is None or header.attention is not None
            _check_once(facts, None if noted else workflow)
        check_rows(facts)
        check_entries(facts)
        check_rest(facts)


def _check_once(facts: RunFacts, workflow: WorkflowDefinition | None) -> None:
    """The laws of the log and of its replay, unless just this was judged before."""
    events = facts.history
    key = (dump_events(events), id(workflow), facts.run_id, facts.at_rest)
    if key in _SOUND:
        return
    _check_log(facts.events)
    if workflow is not None and not any(_is_away(event) for event in events):
        check_replay(events, workflow, facts.run_id, at_rest=facts.at_rest)
    if len(_SOUND) >= _SOUND_LIMIT:
        _SOUND.clear()
    _SOUND[key] = workflow  # kept, so that no other gets its id


def _is_away(event: Event) -> bool:
    """Whether a value of an event is a blob that was not looked for, or is gone."""
    return any(is_reference(getattr(event, name, None) or "") for name in VALUES)


def check_deployment(
    lists: Lists,
    facts: Iterable[RunFacts],
    workflow_of: WorkflowOf,
    promises: Promises | None = None,
    streams: Iterable[StreamFacts] = (),
) -> None:
    """All laws, on all runs of a deployment: `facts` of each, gathered when nothing was under way.

    `workflow_of` finds the code of a workflow; where it finds none, nothing is replayed. `streams`
    are the facts of its stream runs.
    """
    found = {each.run_id: each for each in facts}
    for each in found.values():
        header = each.rows.header
        check_facts(each, None if header is None else workflow_of(header.workflow))
        if promises is not None:
            with _named(each.run_id):
                promises.check(each)
    if promises is not None:
        missing = sorted(promises.run_ids - set(found))
        assert not missing, f"promised to callers, and nothing is known of them: {missing}"
    check_families(found)
    check_notes(found)
    check_streams(streams, found, {} if promises is None else promises.signals)
    check_forks(found)
    headers = [each.rows.header for each in found.values() if each.rows.header]
    check_lists(lists, [header for header in headers if header.deleted_at is None])


@contextmanager
def _named(run_id: str) -> Iterator[None]:
    """Say which run a broken law is about."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"run {run_id!r}: {error}") from error
