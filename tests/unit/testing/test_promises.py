"""What callers are told is noted, and held against what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell import hook, workflow
from stepwell.core.records import HookStatus
from stepwell.errors import HookAlreadyDecided, HookExpired, IdempotencyConflict
from stepwell.testing import Environment
from stepwell.testing.facts import RunFacts
from stepwell.testing.laws import check_deployment
from stepwell.testing.local_facts import all_local_facts
from stepwell.testing.promises import Promises


@workflow(name="asks")
async def asks(number: int) -> Any:
    """Waits for an answer, and then for another."""
    return [await hook("first", timeout="1h"), await hook("second")]


@pytest.fixture
def answered(stepwell_env: Environment) -> RunFacts:
    """A run that has taken an answer and waits for another."""
    env = stepwell_env
    run = env.start(asks, 1)
    env.run_until_idle()
    env.resume_hook(env.hooks()[0].token, "yes")
    return env.facts(run.id)


def told(facts: RunFacts, note: Any) -> None:
    """Check a promise."""
    promises = Promises()
    note(promises)
    promises.check(facts)


def test_what_is_true_of_a_run(answered: RunFacts) -> None:
    header = answered.rows.header
    assert header is not None
    [first] = [row for row in answered.rows.hooks if row.name == "first"]
    run_id, digest, decided = answered.run_id, header.input_digest, str(first.decision_id)
    told(answered, lambda p: p.started(run_id, digest))
    told(answered, lambda p: p.conflicted(run_id, "other"))
    told(answered, lambda p: p.answered(run_id, "first:1", decided))
    told(answered, lambda p: p.answered_otherwise(run_id, "first:1", "other"))


@pytest.mark.parametrize(
    ("note", "says"),
    [
        (lambda p, run: p.started(run, "other"), "a start with input other"),
        (lambda p, run: p.answered(run, "first:1", "other"), "told 200: (<HookStatus.RECEIVED"),
        (lambda p, run: p.answered(run, "second:1", "x"), "told 200: (<HookStatus.PENDING"),
        (lambda p, run: p.answered(run, "third:1", "x"), "it has no row"),
        (lambda p, run: p.answered_otherwise(run, "second:1", "x"), "told 409"),
        (lambda p, run: p.too_late(run, "first:1"), "told 410: it is RECEIVED"),
        (lambda p, run: p.too_late(run, "second:1"), "told 410: it is PENDING"),
        (lambda p, run: p.cancelled(run), "the run waits and does not know"),
    ],
)
def test_what_is_not_true_of_a_run(answered: RunFacts, note: Any, says: str) -> None:
    with pytest.raises(AssertionError) as broken:
        told(answered, lambda promises: note(promises, answered.run_id))
    assert says in str(broken.value)


def test_a_refusal_that_names_the_standing_answer_is_a_lie(answered: RunFacts) -> None:
    [first] = [row for row in answered.rows.hooks if row.name == "first"]
    header = answered.rows.header
    assert header is not None
    with pytest.raises(AssertionError, match="told 409"):
        told(
            answered,
            lambda p: p.answered_otherwise(answered.run_id, "first:1", str(first.decision_id)),
        )
    with pytest.raises(AssertionError, match="a start with input"):
        told(answered, lambda p: p.conflicted(answered.run_id, header.input_digest))


def test_an_accepted_answer_has_to_come_to_the_run_by_the_time_it_rests(
    answered: RunFacts,
) -> None:
    row = next(row for row in answered.rows.hooks if row.name == "second")
    taken = replace(row, status=HookStatus.RECEIVED, decision_id="x", decided_at=1, payload="1")
    others = tuple(each for each in answered.rows.hooks if each is not row)
    facts = replace(answered, rows=replace(answered.rows, hooks=(*others, taken)))
    with pytest.raises(AssertionError, match="the run was told 0 times"):
        told(facts, lambda p: p.answered(facts.run_id, "second:1", "x"))
    told(replace(facts, in_queue=True), lambda p: p.answered(facts.run_id, "second:1", "x"))


def test_a_run_that_was_promised_has_to_be_there(stepwell_env: Environment) -> None:
    promises = Promises()
    promises.started("nobody", "digest")
    assert promises.run_ids == {"nobody"}
    with pytest.raises(AssertionError, match=r"nothing is known of them: \['nobody'\]"):
        check_deployment(
            *stepwell_env.wait_for(all_local_facts(stepwell_env._local)),
            stepwell_env.workflow,
            promises,
        )
    with pytest.raises(AssertionError, match="there is no such run"):
        promises.check(stepwell_env.facts("nobody"))


def test_an_environment_notes_what_its_client_tells(stepwell_env: Environment) -> None:
    env = stepwell_env
    client = env.client.with_options(idempotency_key="k")
    run = env.wait_for(client.start(asks, 1))
    assert env.wait_for(client.start(asks, 1)).repeated
    with pytest.raises(IdempotencyConflict):
        env.wait_for(client.start(asks, 2))
    env.run_until_idle()
    [first] = env.hooks()
    env.resume_hook(first.token, "yes")
    assert env.resume_hook(first.token, "yes").repeated
    with pytest.raises(HookAlreadyDecided):
        env.resume_hook(first.token, "no")
    [second] = env.hooks()
    env.cancel(run)
    with pytest.raises(HookExpired):
        env.resume_hook(second.token, "late")
    noted = env.promises
    assert [start.accepted for start in noted._starts[run.id]] == [True, True, False]
    assert [answer.status for answer in noted._answers[run.id]] == [200, 200, 409, 410]
    assert noted._cancels == {run.id: 1}
    env.check()
