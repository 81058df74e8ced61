"""What the `Store` port finds overdue: runs and hooks that something should have seen to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell.core.records import UNHEARD, Attention, Decision, HookRow, HookStatus, RunStatus
from stepwell.engine.ports import Store
from tests.contract.given import START, Deployment, header, hook, run, waiting

DECISION = Decision(
    status=HookStatus.RECEIVED, decision_id="d1", decided_at=START + 5, payload="true"
)
NOTE = Attention(kind="BLOCKED", reason="code", since=START)


async def overdue_runs(store: Store, before: int, limit: int = 50) -> list[str]:
    return [row.run_id for row in await store.overdue_runs(before, limit)]


def test_overdue_runs_come_most_overdue_first_and_ties_by_id(deployment: Deployment) -> None:
    store = deployment.store

    async def scenario() -> None:
        for n in range(20):
            await store.put_header(header(f"r{n:02}", **waiting(("timer", START + n % 10))))
        due = [f"r{n:02}" for n in (0, 10, 1, 11, 2, 12)]
        for limit, expected in ((1, due[:1]), (3, due[:3]), (6, due), (50, due)):
            assert await overdue_runs(store, START + 3, limit) == expected
        assert await overdue_runs(store, START) == []

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        (waiting(("retry", START + 9), ("timer", START + 5)), START + 5),
        (waiting(("hook", START + 1), ("retry", START + 5)), START + 5),
        (waiting(("step", None)), START + UNHEARD),
        (waiting(("step", None), ("timer", START + 5)), START + 5),
        (waiting(("hook", None), ("step", None)), START + UNHEARD),
        (waiting(updated_at=START + 5), START + 5 + UNHEARD),
        (waiting(("of a later version", START + 5)), START + 5),
    ],
)
def test_a_suspended_run_is_overdue_once_something_should_have_woken_it(
    deployment: Deployment, fields: dict[str, Any], due: int
) -> None:
    row = header(**fields)

    async def scenario() -> None:
        await deployment.store.put_header(header())
        assert await deployment.store.update_header(row)
        assert await deployment.store.overdue_runs(due, 9) == ()
        assert await deployment.store.overdue_runs(due + 1, 9) == (row,)

    run(scenario())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        waiting(("hook", START)),
        waiting(("timer", START), attention=NOTE),
        waiting(("timer", START), status=RunStatus.PENDING),
        waiting(("timer", START), status=RunStatus.COMPLETED),
        waiting(("timer", START), status=RunStatus.FAILED),
        waiting(("timer", START), status=RunStatus.CANCELLED),
    ],
)
def test_no_other_run_is_overdue_and_a_run_that_was_is_so_no_more(
    deployment: Deployment, fields: dict[str, Any]
) -> None:
    async def scenario() -> None:
        store = deployment.store
        await store.put_header(header("put", **fields))
        await store.put_header(header("was", **waiting(("timer", START))))
        assert await overdue_runs(store, START + 1) == ["was"]
        await store.put_hook(hook("was", created_at=START, expires_at=START))
        assert await store.update_header(header("was", last_event=2, **fields))
        assert await overdue_runs(store, START + 2 * UNHEARD) == []

    run(scenario())


def test_a_run_is_found_with_its_cancel_flag(deployment: Deployment) -> None:
    late = header(**waiting(("timer", START)))

    async def scenario() -> None:
        await deployment.store.put_header(late)
        await deployment.store.request_cancel("run")
        expected = (replace(late, cancel_requested=True),)
        assert await deployment.store.overdue_runs(START + 1, 9) == expected

    run(scenario())


def test_overdue_hooks_come_most_overdue_first_and_ties_by_ids(deployment: Deployment) -> None:
    store = deployment.store

    async def scenario() -> None:
        for n in range(20):
            await store.put_hook(hook(f"r{n:02}", "h", expires_at=START + n % 10))
        await store.put_hook(hook("r00", "g", expires_at=START))
        await store.put_hook(hook("open"))
        decided = hook("decided", expires_at=START, status=HookStatus.EXPIRED)
        await store.put_hook(decided)
        late = [START, START, START, START + 1, START + 1, START + 2, START + 2]
        found: tuple[HookRow, ...] = ()
        for limit in (1, 4, 7, 50):
            found = await store.overdue_hooks(START + 3, limit)
            assert [row.expires_at for row in found] == late[:limit]
        names = [f"{row.run_id}/{row.hook_id}" for row in found]
        assert names == ["r00/g", "r00/h", "r10/h", "r01/h", "r11/h", "r02/h", "r12/h"]
        assert await store.overdue_hooks(START, 50) == ()

    run(scenario())


def test_a_decided_hook_is_not_overdue(deployment: Deployment) -> None:
    row = hook(expires_at=START)

    async def scenario() -> None:
        await deployment.store.put_hook(row)
        assert await deployment.store.overdue_hooks(START + 1, 9) == (row,)
        await deployment.store.decide_hook("run", "hook", DECISION)
        assert await deployment.store.overdue_hooks(START + 1, 9) == ()

    run(scenario())


def test_what_is_overdue_is_asked_for_with_a_limit_of_one_or_more(deployment: Deployment) -> None:
    for ask in (deployment.store.overdue_runs, deployment.store.overdue_hooks):
        with pytest.raises(ValueError, match="limit"):
            run(ask(START, 0))
