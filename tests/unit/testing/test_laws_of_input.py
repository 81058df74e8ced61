"""The laws of input let good runs pass, and are seen to fail."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from stepwell import Suspend, current, workflow
from stepwell.core import events as e
from stepwell.core.state import fold
from stepwell.testing import Environment, laws
from stepwell.testing.facts import RunFacts
from stepwell.testing.promises import Promises

START = e.RunStarted(at=1, workflow="w", version="1", input="{}", seed="s")
CAME = e.InboxReceived(at=1, entry="one", key="k", payload="1")
WAITS = e.RunSuspended(at=1, reason="input")
LOOK = e.LookRequested(at=1, request_id="r")
OTHERS = e.GuardsReplaced(at=1, request_id="g")


@workflow(name="laws.wants")
async def wants() -> str:
    if "k" not in current.run.inbox:
        raise Suspend("input")
    raise Suspend("more")


@pytest.fixture
def facts(stepwell_env: Environment) -> RunFacts:
    run = stepwell_env.start(wants)
    stepwell_env.run_until_idle()
    stepwell_env.put_inbox(run, "k", 1, entry_id="one")
    return stepwell_env.facts(run.id)


def test_input_that_came_once_is_as_it_should_be() -> None:
    other = replace(CAME, entry="two")
    laws.check_inbox([START, WAITS, CAME, WAITS, LOOK, WAITS, OTHERS, other])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([CAME, CAME], "event 3: entry 'one' is recorded again"),
        ([LOOK, WAITS, LOOK], "event 4: request 'r' is recorded again"),
        ([OTHERS, OTHERS], "event 3: request 'g' is recorded again"),
        ([WAITS, WAITS], "event 3: the workflow is suspended already"),
    ],
)
def test_input_that_came_twice_is_seen(line: list[Any], says: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(says)):
        laws.check_inbox([START, *line])


def test_what_was_received_stands_in_a_row(facts: RunFacts) -> None:
    laws.check_entries(facts)
    [row] = facts.rows.inbox
    for rows in ((), (replace(row, payload="2"),), (replace(row, key="other"),)):
        broken = replace(facts, rows=replace(facts.rows, inbox=rows))
        with pytest.raises(AssertionError, match="its row"):
            laws.check_entries(broken)


def test_a_run_that_goes_on_has_been_told_of_all_its_entries(facts: RunFacts) -> None:
    [row] = facts.rows.inbox
    laws.check_taken(fold(facts.events), [row])
    with pytest.raises(AssertionError, match="'late'"):
        laws.check_taken(fold(facts.events), [row, replace(row, entry_id="late")])


def test_an_entry_that_was_promised_is_there(facts: RunFacts) -> None:
    promises = Promises()
    promises.sent(facts.run_id, "one")
    promises.check(facts)
    promises.sent(facts.run_id, "two")
    with pytest.raises(AssertionError, match="entry 'two'"):
        promises.check(facts)


def test_a_replay_suspends_for_what_the_log_says(facts: RunFacts) -> None:
    definition = wants.definition
    laws.check_replay(facts.events, definition)
    events = [*facts.events[:-1], e.RunSuspended(at=facts.events[-1].at, reason="else")]
    with pytest.raises(AssertionError, match="the log says"):
        laws.check_replay(events, definition)
