"""The log of a subscription, read from a snapshot on, and what lies before it cut off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stepwell.adapters.aws.rows import header_item
from stepwell.core.records import Glance
from tests.contract.given import (
    Deployment,
    commit,
    entry,
    header,
    hook,
    run,
    step_row,
)
from tests.contract.storage import Storage, open_storage

SUB = "sub-0123456789abcdef"


def begin(deployment: Deployment, run_id: str, commits: Sequence[int], **fields: Any) -> None:
    """A run with a hook, a dispatched step, an entry and commits of three events."""
    store = deployment.store
    run(store.put_header(header(run_id)))
    for first in commits:
        run(store.append(run_id, commit(first, events=3)))
    run(store.put_hook(hook(run_id)))
    run(store.put_step(step_row(run_id=run_id)))
    run(store.put_inbox(entry(run_id)))
    last = commits[-1] + 2 if commits else 0
    run(store.update_header(header(run_id, last_event=last, **fields)))


def firsts(deployment: Deployment, run_id: str) -> list[int]:
    return [each.first for each in run(deployment.store.load(run_id)).commits]


def test_a_subscription_is_loaded_from_its_snapshot_on(deployment: Deployment) -> None:
    begin(deployment, SUB, [1, 4, 7, 10], snapshot=7)
    rows = run(deployment.store.load(SUB))
    assert [each.first for each in rows.commits] == [7, 10]
    assert rows.header is not None
    assert rows.header.snapshot == 7
    assert [row.hook_id for row in rows.hooks] == ["hook"]
    assert [row.step for row in rows.steps] == ["step"]
    assert [row.entry_id for row in rows.inbox] == ["entry"]


def test_a_subscription_without_a_snapshot_is_loaded_whole(deployment: Deployment) -> None:
    begin(deployment, SUB, [1, 4])
    assert firsts(deployment, SUB) == [1, 4]


def test_a_subscription_that_is_not_there_has_nothing(deployment: Deployment) -> None:
    rows = run(deployment.store.load(SUB))
    assert (rows.header, rows.commits, rows.hooks, rows.steps) == (None, (), (), ())


def test_a_header_keeps_what_it_says_of_streams(deployment: Deployment) -> None:
    glance = Glance(step="answer", status="suspended", cursor=4, handled=3, parked=1, reason="x")
    told = header(SUB, stream_run="c1", snapshot=7, subscription=glance)
    run(deployment.store.put_header(told))
    assert run(deployment.store.get_header(SUB)) == told
    moved = replace(told, last_event=9, snapshot=9, subscription=replace(glance, cursor=9))
    assert run(deployment.store.update_header(moved))
    assert run(deployment.store.get_header(SUB)) == moved
    bare = replace(moved, stream_run=None, snapshot=0, subscription=None)
    assert run(deployment.store.update_header(bare))
    assert run(deployment.store.get_header(SUB)) == bare


def test_what_lies_before_a_number_is_trimmed(deployment: Deployment) -> None:
    begin(deployment, "run", [1, 4, 7])
    begin(deployment, "run2", [1, 4, 7])
    run(deployment.store.trim("run", 7))
    run(deployment.store.trim("run", 7))
    assert firsts(deployment, "run") == [7]
    assert firsts(deployment, "run2") == [1, 4, 7]


def test_a_commit_that_begins_at_the_number_stays(deployment: Deployment) -> None:
    begin(deployment, "run", [1, 4, 7])
    for before in (-1, 0, 1):
        run(deployment.store.trim("run", before))
        assert firsts(deployment, "run") == [1, 4, 7]
    run(deployment.store.trim("run", 2))
    assert firsts(deployment, "run") == [4, 7]


def test_hooks_and_steps_are_trimmed_by_id(deployment: Deployment) -> None:
    begin(deployment, "run", [1])
    begin(deployment, "run2", [1])
    for other in ("hook:2", "hook#3"):
        run(deployment.store.put_hook(hook(hook_id=other)))
    run(deployment.store.put_step(step_row(step="step#2")))
    gone = {"hooks": ["hook", "hook#3", "hook", "none"], "steps": ["step#2", "none"]}
    run(deployment.store.trim("run", 0, **gone))
    rows = run(deployment.store.load("run"))
    assert [row.hook_id for row in rows.hooks] == ["hook:2"]
    assert [row.step for row in rows.steps] == ["step"]
    assert len(rows.inbox) == len(rows.commits) == 1
    assert len(run(deployment.store.load("run2")).hooks) == 1


def test_many_commits_are_trimmed(deployment: Deployment) -> None:
    begin(deployment, SUB, range(1, 181, 3), snapshot=178)
    run(deployment.store.trim(SUB, 178))
    assert firsts(deployment, SUB) == [178]


# On AWS alone


@pytest.fixture
def storage() -> Iterator[Storage]:
    with open_storage() as opened:
        yield opened


def test_a_subscription_is_loaded_by_two_queries(storage: Storage) -> None:
    run(storage.store.put_header(header(SUB)))
    for first in (1, 2, 3):
        run(storage.store.append(SUB, commit(first)))
    run(storage.store.update_header(header(SUB, last_event=3, snapshot=3)))
    storage.requests.clear()
    assert len(run(storage.store.load(SUB)).commits) == 1
    assert storage.requests == ["Query", "Query"]


def test_a_log_that_was_trimmed_while_it_was_read_is_read_again(storage: Storage) -> None:
    for first in (1, 2, 3):
        run(storage.store.append(SUB, commit(first)))
    run(storage.store.put_header(header(SUB, last_event=3, snapshot=2)))
    events = storage.table.client.meta.events
    queries: list[int] = []

    def overtake(params: object, **_: object) -> None:
        queries.append(1)
        if len(queries) == 2:  # the header was read
            told = header(SUB, last_event=4, snapshot=3)
            storage.table.put(header_item(told))
            key = {"pk": {"S": f"R#{SUB}"}, "sk": {"S": "E#000000000002"}}
            storage.table.client.delete_item(TableName=storage.table.name, Key=key)

    events.register("before-call.dynamodb.Query", overtake)
    rows = run(storage.store.load(SUB))
    assert rows.header == header(SUB, last_event=4, snapshot=3)
    assert [each.first for each in rows.commits] == [3]
    assert len(queries) == 4
