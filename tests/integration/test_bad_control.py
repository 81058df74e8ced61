"""What cannot be asked of a run is refused by name, and nothing has happened."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stepwell import hook, step, workflow
from stepwell.client import Client, RunHandle
from stepwell.core.records import RunStatus
from stepwell.errors import (
    DefinitionError,
    ForkRefused,
    IdempotencyConflict,
    NotRetryable,
    PayloadError,
    PayloadTooLarge,
    RunDeleted,
    RunEnded,
    RunNotEnded,
    RunNotFound,
    UsageError,
)
from stepwell.testing import Environment

Ask = Callable[[Client, str], Coroutine[Any, Any, Any]]
LONG = "x" * 1_001
CALLS = (
    "cancel",
    "chain",
    "delete",
    "export",
    "fork",
    "get",
    "history",
    "list_inbox",
    "pause",
    "progress",
    "resume",
    "retry",
    "wake",
)


@step(name="control.note")
async def note(what: str) -> str:
    return what


@workflow(name="control.asks")
async def asks(what: str) -> Any:
    return [await note(what), await hook("question")]


@pytest.fixture
def open_run(env: Environment) -> RunHandle[Any]:
    run = env.start(asks, "open")
    env.run_until_idle()
    return run


@pytest.fixture
def ended(env: Environment) -> RunHandle[Any]:
    run = env.start(asks, "ended")
    env.run_until_idle()
    [held] = env.hooks(run)
    env.resume_hook(held.token, 1)
    return run


@pytest.fixture
def deleted(env: Environment) -> RunHandle[Any]:
    run = env.start(asks, "deleted")
    env.run_until_idle()
    env.cancel(run)
    env.wait_for(env.client.delete(run.id))
    env.run_until_idle()
    return run


@pytest.mark.parametrize("run_id", ["nowhere", "", "a/b#c\n\x00", "x" * 3_000])
@pytest.mark.parametrize("call", CALLS)
def test_a_run_that_is_not_there_is_not_found(env: Environment, call: str, run_id: str) -> None:
    with pytest.raises(RunNotFound) as caught:
        env.wait_for(getattr(env.client, call)(run_id))
    assert repr(run_id)[:50] in str(caught.value)


@pytest.mark.parametrize("call", [each for each in CALLS if each != "delete"])
def test_a_deleted_run_is_said_to_be_deleted(
    env: Environment, deleted: RunHandle[Any], call: str
) -> None:
    with pytest.raises(RunDeleted, match=deleted.id):
        env.wait_for(getattr(env.client, call)(deleted.id))


@pytest.mark.parametrize(
    ("call", "error"),
    [("pause", RunEnded), ("resume", RunEnded), ("retry", NotRetryable)],
)
def test_a_run_that_has_ended_is_named_with_what_it_is(
    env: Environment, ended: RunHandle[Any], call: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"{ended.id}.*COMPLETED.*fork it"):
        env.wait_for(getattr(env.client, call)(ended.id))
    assert env.wait_for(env.client.cancel(ended.id, wait=True)) is RunStatus.COMPLETED


@pytest.mark.parametrize("call", ["retry", "delete"])
def test_a_run_that_goes_on_is_named(env: Environment, open_run: RunHandle[Any], call: str) -> None:
    with pytest.raises(RunNotEnded, match=open_run.id):
        env.wait_for(getattr(env.client, call)(open_run.id))


@pytest.mark.parametrize(
    ("ask", "error", "told"),
    [
        (lambda c, run: c.cancel(run, LONG), UsageError, "reason"),
        (lambda c, run: c.cancel(run, 5), UsageError, "reason"),
        (lambda c, run: c.cancel(run, "\ud800"), UsageError, "reason"),
        (lambda c, run: c.cancel(run, actor=LONG), UsageError, "actor"),
        (lambda c, run: c.cancel(run, wait=-1), ValueError, "-1 is not a duration"),
        (lambda c, run: c.cancel(run, wait="soon"), ValueError, "'soon' is not a duration"),
        (lambda c, run: c.pause(run, LONG), UsageError, "reason"),
        (lambda c, run: c.pause(run, 5), UsageError, "reason"),
        (lambda c, run: c.pause(run, actor=LONG), UsageError, "actor"),
        (lambda c, run: c.retry(run, actor=LONG), UsageError, "actor"),
        (lambda c, run: c.resume(run, actor=LONG), UsageError, "actor"),
        (lambda c, run: c.resume(run, prepare_step=[print]), UsageError, "print"),
        (lambda c, run: c.delete(run, actor=LONG), UsageError, "actor"),
        (lambda c, run: c.history(run, after=-1), ValueError, "-1"),
        (lambda c, run: c.history(run, limit=0), ValueError, "limit"),
        (lambda c, run: c.put_inbox(run, "", 1), DefinitionError, "inbox key ''"),
        (lambda c, run: c.put_inbox(run, 5, 1), DefinitionError, "inbox key 5"),
        (lambda c, run: c.put_inbox(run, "k", 1, entry_id=""), DefinitionError, "entry key ''"),
        (lambda c, run: c.put_inbox(run, "k", object()), PayloadError, "inbox value 'k'"),
        (lambda c, run: c.list_runs(tags="eu"), UsageError, "'eu'"),
        (lambda c, run: c.list_runs(attributes={"a": [1]}), UsageError, "'a'"),
        (lambda c, run: c.list_runs(limit=0), ValueError, "limit"),
    ],
)
def test_a_wrong_request_is_refused_by_name_and_nothing_happens(
    env: Environment, open_run: RunHandle[Any], ask: Ask, error: type[Exception], told: str
) -> None:
    before = (env.get(open_run), env.history(open_run))
    with pytest.raises(error, match=told):
        env.wait_for(ask(env.client, open_run.id))
    env.run_until_idle()
    assert (env.get(open_run), env.history(open_run)) == before


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"at": 0}, ForkRefused, "none numbered 0"),
        ({"at": -1}, ForkRefused, "none numbered -1"),
        ({"at": 99}, ForkRefused, "has events 1 to 5"),
        ({"at": "2"}, ForkRefused, "none numbered '2'"),
        ({"at": 1.5}, ForkRefused, "none numbered 1.5"),
        ({"at": True}, ForkRefused, "none numbered True"),
        ({"edits": {1: 5}}, ForkRefused, "event 1 is a RunStarted"),
        ({"edits": {3: 5}}, ForkRefused, "event 3 is a HookOpened"),
        ({"edits": {5: 5}}, ForkRefused, "event 5 is not among those that are copied"),
        ({"edits": {-1: 5}}, ForkRefused, "event -1 is not"),
        ({"edits": {"2": 5}}, ForkRefused, "event '2' is not"),
        ({"edits": {4: 5}, "at": 2}, ForkRefused, "event 4 is not"),
        ({"edits": {2: object()}}, PayloadError, "value for event 2"),
        ({"edits": {2: "x" * 5_000_000}}, PayloadTooLarge, "value for event 2"),
        ({"edits": [1]}, UsageError, "edits"),
        ({"input": 5}, UsageError, "input"),
        ({"fork_id": ""}, DefinitionError, "''"),
        ({"fork_id": "x" * 3_000}, DefinitionError, "256 characters"),
        ({"idempotency_key": ""}, DefinitionError, "''"),
        ({"actor": LONG}, UsageError, "actor"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_by_name_and_is_not_there(
    env: Environment,
    ended: RunHandle[Any],
    options: dict[str, Any],
    error: type[Exception],
    told: str,
) -> None:
    with pytest.raises(error, match=told):
        env.wait_for(env.client.fork(ended.id, **options))
    env.run_until_idle()
    assert [each.run_id for each in env.wait_for(env.client.list_runs()).items] == [ended.id]


def test_a_fork_takes_no_id_of_another_run(
    env: Environment, ended: RunHandle[Any], open_run: RunHandle[Any], deleted: RunHandle[Any]
) -> None:
    with pytest.raises(IdempotencyConflict, match=open_run.id):
        env.wait_for(env.client.fork(ended.id, fork_id=open_run.id))
    with pytest.raises(RunDeleted, match=deleted.id):
        env.wait_for(env.client.fork(ended.id, fork_id=deleted.id))


def test_tags_are_a_list(env: Environment) -> None:
    with pytest.raises(UsageError, match=r"such as \['eu'\]"):
        env.client.with_options(tags="eu")  # type: ignore[arg-type]
