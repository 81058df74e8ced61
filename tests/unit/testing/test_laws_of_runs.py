"""Each law of rows, of rest and of lists is seen to fail when a fact of its kind is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from stepwell import RetryableError, RetryPolicy, hook, sleep, step, step_hook, workflow
from stepwell.core.events import Commit, HookClosed, StepCompleted
from stepwell.core.records import Attention, Chunk, HookRow, HookStatus, RunStatus
from stepwell.core.state import fold
from stepwell.testing import Environment
from stepwell.testing.facts import Lists, RunFacts, gather_lists
from stepwell.testing.laws import (
    check_facts,
    check_forks,
    check_lists,
    check_reports,
    check_rest,
    check_run,
)
from stepwell.testing.local_facts import all_local_facts

Change = Callable[[RunFacts], RunFacts]


@step(name="laws.asks")
async def asks() -> Any:
    """Waits in its middle."""
    return await step_hook("inside")


@step(name="laws.fails", retry=RetryPolicy(initial="1h", jitter="none"))
async def fails() -> None:
    """Is tried again."""
    raise RetryableError("later")


@step(name="laws.away", dispatch="worker")
async def away() -> None:
    """Made elsewhere."""


@step(name="laws.talks", stream=True)
async def talks() -> Any:
    """Puts out two chunks."""
    for number in range(2):
        yield number


@workflow(name="laws.everything")
async def everything() -> None:
    """Waits for one of each."""
    await talks()
    await hook("decided", timeout="1h")
    await asyncio.gather(away(), asks(), fails(), sleep("2h"), hook("open", timeout="3h"))


@pytest.fixture
def waiting(stepwell_env: Environment) -> RunFacts:
    """A run that waits for one of each; the attempt of its dispatched step is sent."""
    env = stepwell_env
    run = env.start(everything)
    env.run_until_idle()
    env.resume_hook(env.hooks()[0].token, 1)
    facts = env.facts(run.id)
    check_run(env, run)
    return facts


@pytest.fixture
def sent(stepwell_env: Environment) -> RunFacts:
    """A run that waits for a dispatched attempt."""

    @workflow
    async def goes() -> None:
        await away()

    env = stepwell_env
    run = env.start(goes)
    assert env.take_turn()
    facts = env.facts(run.id)
    assert facts.attempts == {2}
    check_facts(facts)
    return facts


def header(**changes: Any) -> Change:
    def change(facts: RunFacts) -> RunFacts:
        assert facts.rows.header is not None
        return rows(facts, header=replace(facts.rows.header, **changes))

    return change


def rows(facts: RunFacts, **changes: Any) -> RunFacts:
    return replace(facts, rows=replace(facts.rows, **changes))


def hooks(which: str, /, **changes: Any) -> Change:
    """One hook's row otherwise."""

    def change(facts: RunFacts) -> RunFacts:
        found = tuple(
            replace(row, **changes) if row.name == which else row for row in facts.rows.hooks
        )
        return rows(replace(facts, open_hooks=None), hooks=found)

    return change


def without_hook(name: str) -> Change:
    def change(facts: RunFacts) -> RunFacts:
        found = tuple(row for row in facts.rows.hooks if row.name != name)
        return rows(replace(facts, open_hooks=None), hooks=found)

    return change


def another_hook(**changes: Any) -> Change:
    def change(facts: RunFacts) -> RunFacts:
        model = next(row for row in facts.rows.hooks if row.status is HookStatus.RECEIVED)
        more = replace(model, **{"hook_id": "more:1", **changes})
        return rows(replace(facts, open_hooks=None), hooks=(*facts.rows.hooks, more))

    return change


def chunks(change_of: Callable[[tuple[Chunk, ...]], Iterable[Chunk]]) -> Change:
    return lambda facts: replace(
        facts, output={step: tuple(change_of(found)) for step, found in facts.output.items()}
    )


def last_event(**changes: Any) -> Change:
    """The last event otherwise."""

    def change(facts: RunFacts) -> RunFacts:
        *before, last = facts.rows.commits
        events = (*last.events[:-1], replace(last.events[-1], **changes))
        return rows(facts, commits=(*before, replace(last, events=events)))

    return change


def not_begun(facts: RunFacts) -> RunFacts:
    return replace(
        header(last_event=0, status=RunStatus.PENDING, waiting=())(facts), output={}, open_hooks=()
    )


PENDING: Any = {
    "status": HookStatus.PENDING,
    "decision_id": None,
    "decided_at": None,
    "payload": None,
    "actor": None,
}
CLOSED: Any = {"status": HookStatus.CLOSED, "decision_id": "closed", "decided_at": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (header(last_event=1_000), "header: event 1000 of"),
        (header(last_event=1), "header: event 1 of"),
        (header(input='{"x":1}'), "event 1: RunStarted"),
        (header(version="9"), "from the header"),
        (header(status=RunStatus.COMPLETED), "the run goes on"),
        (header(status=RunStatus.PENDING), "header: PENDING, the log: running"),
        (header(result="1"), "header: ('1', None)"),
        (header(waiting=()), "header: waits ()"),
        (header(waits_not_shown=1), "header: 1 more"),
        (lambda facts: rows(facts, header=None), "a log without a header"),
        (lambda facts: rows(facts, commits=()), "header: event 11 of 0"),
        (lambda facts: rows(not_begun(facts), commits=(), hooks=(), steps=()), "nothing began"),
        (lambda facts: rows(facts, commits=facts.rows.commits[1:]), "a commit after event 0"),
        (lambda facts: replace(facts, timer=None), "timer: None"),
        (lambda facts: replace(facts, timer=2**52), f"timer: {2**52}"),
        (without_hook("decided"), "it has no row"),
        (without_hook("open"), "it has no row"),
        (hooks("decided", decision_id="other"), "of the row: ('other'"),
        (hooks("decided", payload="2"), "of the row:"),
        (hooks("decided", actor="somebody"), "of the row:"),
        (hooks("decided", payload=None), "an answer without value"),
        (hooks("decided", decided_at=None), "its decision: (True, False)"),
        (hooks("decided", **PENDING), "the row is PENDING"),
        (hooks("decided", **CLOSED), "the row is CLOSED"),
        (hooks("decided", name="d"), "the row is of 'd'"),
        (hooks("open", decision_id="early"), "is PENDING, its decision: (True, False)"),
        (hooks("open", expires_at=5), "of the row: (5, None)"),
        (hooks("open", **CLOSED), "is CLOSED, and the log does not say so"),
        (hooks("inside", **CLOSED), "is CLOSED, and the log does not say so"),
        (another_hook(), "'more:1' is RECEIVED, and the log does not say so"),
        (another_hook(**PENDING), "'5/open:1', 'more:1'], in the log: ["),
        (lambda facts: replace(facts, open_hooks=()), "hooks listed: []"),
        (
            lambda facts: replace(facts, open_hooks=tuple(reversed(facts.open_hooks or ()))),
            "hooks listed:",
        ),
        (
            lambda facts: replace(
                facts, open_hooks=tuple(replace(h, key_id="k9") for h in facts.open_hooks or ())
            ),
            "listed otherwise than they are",
        ),
        (chunks(lambda found: found[1:]), "row 1: it is numbered 2"),
        (chunks(lambda found: found[:1]), "2 chunks, a reader finds 1"),
        (chunks(lambda found: [replace(each, number=1) for each in found]), "chunk 1 after 1"),
        (chunks(lambda found: [found[0], replace(found[1], value=None)]), "a mark at 2, of 1"),
        (lambda facts: replace(facts, output={}), "2 chunks, a reader finds 0"),
        (last_event(at=0), "is before"),
    ],
)
def test_a_waiting_run_with_one_fact_wrong(waiting: RunFacts, change: Change, says: str) -> None:
    check_facts(waiting)
    with pytest.raises(AssertionError, match=f"run '{waiting.run_id}': ") as broken:
        check_facts(change(waiting))
    assert says in str(broken.value)


def test_a_run_with_a_message_may_be_on_its_way(waiting: RunFacts) -> None:
    check_facts(replace(header(last_event=1, waiting=())(waiting), timer=None, in_queue=True))


def test_a_dispatched_attempt_has_a_maker_and_its_outcome_is_recorded(sent: RunFacts) -> None:
    with pytest.raises(
        AssertionError, match=r"event 2: nobody makes the attempt of 'laws\.away:1'"
    ):
        check_facts(replace(sent, attempts=frozenset()))
    with pytest.raises(AssertionError, match="nobody makes the attempt"):
        check_facts(replace(sent, attempts=frozenset({7})))


def test_the_row_of_a_dispatched_step_tells_what_is_recorded(waiting: RunFacts) -> None:
    [row] = waiting.rows.steps
    assert row.outcome is not None
    for wrong, says in (
        (replace(row, order=1), "event 1 dispatches no attempt"),
        (replace(row, order=99), "event 99 dispatches no attempt"),
        (replace(row, outcome=row.outcome.replace('"attempt":1', '"attempt":2')), "it says"),
    ):
        with pytest.raises(AssertionError, match=says):
            check_facts(rows(waiting, steps=(wrong,)))


def test_an_outcome_that_nobody_recorded(sent: RunFacts, waiting: RunFacts) -> None:
    [row] = waiting.rows.steps
    unrecorded = replace(row, run_id=sent.run_id, step="laws.away:1", order=2)
    with pytest.raises(
        AssertionError, match=r"step 'laws\.away:1': its row has an outcome, unrecorded"
    ):
        check_reports(fold(sent.events), (unrecorded,))


def test_an_ended_run_leaves_nothing_open(stepwell_env: Environment) -> None:
    @workflow
    async def asks_once() -> int:
        return int(await hook("once"))

    env = stepwell_env
    run = env.start(asks_once)
    env.run_until_idle()
    env.resume_hook(env.hooks()[0].token, 1)
    facts = env.facts(run.id)
    check_facts(facts, asks_once.definition)
    for change, says in (
        (another_hook(**PENDING), "the run has ended, and hooks are open: ['more:1']"),
        (header(status=RunStatus.FAILED), "header: FAILED, the log: completed"),
        (header(waiting=(object(),)), "an ended run waits for"),
        (last_event(result="2"), "header: ('1', None), the log: ('2', None)"),
    ):
        with pytest.raises(AssertionError) as broken:
            check_facts(change(facts))
        assert says in str(broken.value)
    late = another_hook(**CLOSED, step="laws.asks:1")
    check_facts(late(facts))


def test_a_run_with_a_note_may_wait_for_an_operator_alone(waiting: RunFacts) -> None:
    note = header(attention=Attention(kind="STUCK", reason="r", since=1))
    check_facts(replace(note(waiting), timer=None))


def test_the_replay_of_a_run_at_rest_asks_for_what_the_log_waits_for(waiting: RunFacts) -> None:
    @workflow(name="other")
    async def more() -> None:
        await talks()
        await hook("decided", timeout="1h")
        await asyncio.gather(
            away(), asks(), fails(), sleep("2h"), hook("open", timeout="3h"), hook("new")
        )

    check_facts(waiting, everything.definition)
    with pytest.raises(AssertionError, match=r"asks for something new: \['6/new:1'\]"):
        check_facts(waiting, more.definition)


def test_steps_that_nothing_can_wake(waiting: RunFacts) -> None:
    """A suspended step whose hook is decided in the log, and which was not entered again."""
    *before, last = waiting.rows.commits
    inside = next(row for row in waiting.rows.hooks if row.name == "inside")
    closed = HookClosed(
        at=last.events[-1].at, hook=inside.hook_id, name=inside.name, step=inside.step
    )
    more = Commit(first=last.last + 1, turn="x", number=1, events=(closed,))
    changed = hooks("inside", **CLOSED)(rows(waiting, commits=(*before, last, more)))
    found = header(
        last_event=more.last,
        waiting=tuple(w for w in waiting.rows.header.waiting if w.id != inside.hook_id),  # type: ignore[union-attr]
    )(changed)
    with pytest.raises(AssertionError, match="its hook is decided, and it was not entered"):
        check_rest(found)


def listed(env: Environment) -> tuple[Lists, list[Any]]:
    lists, facts = env.wait_for(all_local_facts(env._local))
    return lists, [each.rows.header for each in facts]


def test_each_list_has_each_run_that_belongs_in_it_once(stepwell_env: Environment) -> None:
    @workflow
    async def quick() -> None: ...

    env = stepwell_env
    for flow in (quick, everything, quick):
        env.run(flow) if flow is quick else env.start(flow)
        env.advance("1s")
    lists, headers = listed(env)
    check_lists(lists, headers)
    twice = (*lists.runs, lists.runs[0])
    wrong = [
        (replace(lists, runs=lists.runs[1:]), "the list of all runs"),
        (replace(lists, runs=twice), "the list of all runs"),
        (replace(lists, runs=lists.runs[::-1]), "the list of all runs"),
        (replace(lists, runs=(replace(lists.runs[0], tags=("t",)), *lists.runs[1:])), "is listed"),
        (replace(lists, by_workflow={**lists.by_workflow, "quick": ()}), "workflow 'quick'"),
        (
            replace(lists, by_status={**lists.by_status, RunStatus.COMPLETED: ()}),
            "status COMPLETED",
        ),
        (
            replace(lists, by_attention={"STUCK": (lists.runs[0].run_id,), "BLOCKED": ()}),
            "attention STUCK",
        ),
    ]
    for each, says in wrong:
        with pytest.raises(AssertionError) as broken:
            check_lists(each, headers)
        assert says in str(broken.value)
    assert env.wait_for(gather_lists(env._local.store)) == lists


def test_leaving_an_environment_checks_it_unless_told_why_not() -> None:
    def tampered(**options: Any) -> None:
        with Environment(**options) as env:
            run = env.start(everything)
            env.run_until_idle()
            hook_row: HookRow = env.facts(run.id).rows.hooks[0]
            env._local.database.change("DELETE FROM hooks WHERE hook_id = ?", hook_row.hook_id)

    with pytest.raises(AssertionError, match="it has no row"):
        tampered()
    tampered(unchecked="a row is deleted")
    with pytest.raises(ZeroDivisionError):
        fails_meanwhile()


def fails_meanwhile() -> None:
    with Environment() as env:
        env.start(everything)
        env._local.database.change("DELETE FROM messages")
        raise ZeroDivisionError


def test_a_fork_that_says_something_else_than_its_original_is_seen(
    stepwell_env: Environment,
) -> None:
    env = stepwell_env
    run = env.start(everything)
    env.run_until_idle()
    env.wait_for(env.client.fork(run.id, fork_id="fork"))
    env.run_until_idle()
    found = {run_id: env.facts(run_id) for run_id in (run.id, "fork")}
    check_forks(found)
    fork, (first, *others) = found["fork"], found["fork"].rows.commits
    [place] = [n for n, each in enumerate(first.events) if isinstance(each, StepCompleted)]
    completed = first.events[place]
    assert isinstance(completed, StepCompleted)
    for wrong in ((replace(completed, result='"x"'),), ()):
        events = (*first.events[:place], *wrong, *first.events[place + 1 :])
        rows = replace(fork.rows, commits=(replace(first, events=events), *others))
        with pytest.raises(AssertionError, match="it begins with"):
            check_forks({**found, "fork": replace(fork, rows=rows)})
