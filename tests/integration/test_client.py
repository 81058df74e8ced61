"""The client: starting once, waiting, looking, answering."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Client, hook, resume_hook, sleep, step, step_guard, workflow
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.core.messages import Wake
from stepwell.core.records import Guards, RunHeader, RunStatus
from stepwell.errors import (
    IdempotencyConflict,
    ResultTimeout,
    RunBlocked,
    RunCancelled,
    RunFailed,
    RunNotFound,
    UsageError,
)
from stepwell.testing import Environment
from tests.integration.histories import check_history, crashes_of, kinds


@pytest.fixture
def counted() -> list[int]:
    """Every time the step of `flow_of` ran."""
    return []


def flow_of(counted: list[int]) -> Any:
    @step
    async def count(number: int) -> int:
        counted.append(number)
        return number

    @workflow
    async def flow(number: int, note: str = "") -> int:
        await count(number)
        await sleep("1h")
        return number

    return flow


def test_the_same_key_and_input_are_the_same_run_running_or_ended(
    env: Environment, counted: list[int]
) -> None:
    flow = flow_of(counted)
    once = env.client.with_options(idempotency_key="order-7")
    first = env.wait_for(once.start(flow, 1))
    env.run_until_idle()
    during = env.wait_for(once.start(flow, number=1))
    env.advance("1h")
    after = env.wait_for(once.start(flow, 1, ""))
    env.run_until_idle()
    assert first.id == during.id == after.id
    assert env.result(after) == 1
    assert counted == [1]
    assert len(env.wait_for(env.client.list_runs()).items) == 1


def test_the_same_key_with_another_input_is_a_conflict(
    env: Environment, counted: list[int]
) -> None:
    flow = flow_of(counted)
    once = env.client.with_options(idempotency_key="order-7")
    run = env.wait_for(once.start(flow, 1))
    for _ in range(2):
        with pytest.raises(IdempotencyConflict) as conflict:
            env.wait_for(once.start(flow, 2))
        assert (conflict.value.run_id, conflict.value.key) == (run.id, "order-7")
        env.run_to_end(run)
    assert counted == [1]


def test_another_workflow_or_key_is_another_run(env: Environment, counted: list[int]) -> None:
    flow = flow_of(counted)

    @workflow
    async def other(number: int) -> int:
        return number

    once = env.client.with_options(idempotency_key="order-7")
    ids = {
        env.wait_for(once.start(flow, 1)).id,
        env.wait_for(once.start(other, 1)).id,
        env.wait_for(env.client.with_options(idempotency_key="order-8").start(flow, 1)).id,
        env.start(flow, 1).id,
        env.start(flow, 1).id,
    }
    assert len(ids) == 5


def test_many_starts_at_once_make_one_run(env: Environment, counted: list[int]) -> None:
    flow = flow_of(counted)
    once = env.client.with_options(idempotency_key="order-7")

    async def all_at_once(*numbers: int) -> list[Any]:
        return await asyncio.gather(
            *(once.start(flow, number) for number in numbers), return_exceptions=True
        )

    same = env.wait_for(all_at_once(1, 1, 1))
    mixed = env.wait_for(all_at_once(1, 2, 1))
    env.run_until_idle()
    assert len({run.id for run in same}) == 1
    assert [type(each) is IdempotencyConflict for each in mixed] == [False, True, False]
    assert counted == [1]
    assert env.run_to_end(same[0]) == 1


def test_starts_from_several_processes_make_one_run(tmp_path: Path, counted: list[int]) -> None:
    flow = flow_of(counted)
    path = tmp_path / "stepwell.db"
    with Environment(path=path, seed=1) as one, Environment(path=path, seed=2) as two:
        runs = [
            each.wait_for(each.client.with_options(idempotency_key="k").start(flow, 1))
            for each in (one, two)
        ]
        assert runs[0].id == runs[1].id
        for each in (one, two, one):
            each.run_until_idle()
        assert counted == [1]
        assert one.run_to_end(runs[0]) == 1
        check_history(two.wait_for(two.client.history(runs[0].id)))


def test_options_of_a_start_stand_on_the_run(env: Environment, counted: list[int]) -> None:
    client = env.client.with_options(idempotency_key="k", tags=("eu", "vip"))
    run = env.wait_for(client.start(flow_of(counted), 1))
    header = env.get(run)
    assert (header.idempotency_key, header.tags) == ("k", ("eu", "vip"))
    assert header.status is RunStatus.PENDING
    assert header.input == '{"number":1,"note":""}'


def test_options_add_up_and_can_be_taken_away(env: Environment, counted: list[int]) -> None:
    @step_guard(name="client.watching")
    def watching(payload: dict[str, Any]) -> dict[str, Any]:
        return {"power": "observe"}

    @step_guard(name="client.reviewing")
    def reviewing(payload: dict[str, Any]) -> dict[str, Any]:
        return {"power": "observe"}

    def header(client: Client) -> RunHeader:
        return env.get(env.wait_for(client.start(flow, 1)))

    flow = flow_of(counted)
    guarded = env.client.with_options(prepare_step=watching, tags=("eu",))
    keyed = guarded.with_options(idempotency_key="k", review_step=[reviewing])
    found = header(keyed)
    assert (found.idempotency_key, found.tags) == ("k", ("eu",))
    assert found.guards == Guards(before=("client.watching",), after=("client.reviewing",))
    bare = header(keyed.with_options(tags=(), prepare_step=[], idempotency_key="other"))
    assert (bare.tags, bare.guards) == ((), Guards(after=("client.reviewing",)))
    none = keyed.with_options(prepare_step=[], review_step=[], idempotency_key="x")
    assert header(none).guards is None
    assert header(env.client).guards is None, "the client itself is as it was"


def test_waiting_for_a_result_has_an_end(env: Environment, counted: list[int]) -> None:
    run = env.start(flow_of(counted), 1)
    env.run_until_idle()
    with pytest.raises(ResultTimeout):
        env.wait_for(run.result(timeout="20ms"))
    with pytest.raises(ResultTimeout):
        env.wait_for(env.client.result(run.id, timeout=0))
    assert env.run_to_end(run) == 1


def test_waiting_sees_the_end_while_an_engine_works(tmp_path: Path) -> None:
    @workflow
    async def flow() -> str:
        answer: str = await hook("q")
        return answer

    async def scenario() -> str:
        with LocalEngine.open(tmp_path / "stepwell.db") as engine:
            until = asyncio.Event()
            serving = asyncio.create_task(engine.serve(until=until))
            run = await engine.client.start(flow)
            waiting = asyncio.create_task(run.result())
            while not (page := await engine.client.list_hooks()).items:
                await asyncio.sleep(0)
            await engine.client.resume_hook(page.items[0].token, "yes")
            result = await waiting
            check_history(await run.history())
            until.set()
            await serving
            return result

    assert asyncio.run(scenario()) == "yes"


def test_each_end_of_a_run_is_told_apart(env: Environment) -> None:
    @workflow
    async def fails() -> None:
        raise LookupError("nothing there")

    @workflow
    async def waits() -> None:
        await hook("q")

    failed = env.start(fails)
    cancelled = env.start(waits)
    env.run_until_idle()
    env.cancel(cancelled, "not needed")
    with pytest.raises(RunFailed) as failure:
        env.result(failed)
    assert failure.value.run_id == failed.id
    assert failure.value.failure.type == "LookupError"
    assert failure.value.failure.message == "nothing there"
    with pytest.raises(RunCancelled) as cancellation:
        env.result(cancelled)
    assert cancellation.value.reason == "not needed"


def test_no_run_is_an_error_of_its_own(env: Environment) -> None:
    for look in (
        env.client.get("no-run"),
        env.client.history("no-run"),
        env.client.result("no-run", timeout=0),
        env.client.cancel("no-run"),
    ):
        with pytest.raises(RunNotFound) as missing:
            env.wait_for(look)
        assert missing.value.run_id == "no-run"
    assert env.wait_for(env.client.list_hooks(run_id="no-run")).items == ()


def test_a_run_whose_code_does_not_fit_is_blocked_until_it_does(env: Environment) -> None:
    @step
    async def first() -> int:
        return 1

    @step
    async def second() -> int:
        return 2

    def deploy(body: Callable[[], Any]) -> Any:
        @workflow(name="flow")
        async def flow() -> int:
            result: int = await body()
            return result

        return flow

    async def old() -> int:
        await first()
        await hook("q")
        return 1

    async def new() -> int:
        await second()
        await hook("q")
        return 2

    run = env.start(deploy(old))
    env.run_until_idle()
    [waiting] = env.hooks()
    deploy(new)
    env.resume_hook(waiting.token, "yes")
    with pytest.raises(RunBlocked, match="first"):
        env.result(run)
    assert "RunFailed" not in kinds(env, run)
    deploy(old)
    env.wait_for(env._ports.queue.send(Wake(run_id=run.id, cause="deployed")))
    env.run_until_idle()
    assert env.result(run) == 1


def test_runs_are_listed_newest_first_in_pages(env: Environment, counted: list[int]) -> None:
    flow = flow_of(counted)

    @workflow
    async def other() -> None: ...

    started = []
    for number in range(7):
        started.append(env.start(flow, number).id)
        env.clock.advance(1)
    env.start(other)
    env.run_until_idle()

    async def pages(**options: Any) -> list[list[str]]:
        found, cursor = [], None
        while True:
            page = await env.client.list_runs(limit=3, cursor=cursor, **options)
            found.append([header.run_id for header in page.items])
            cursor = page.cursor
            if cursor is None:
                return found

    listed = env.wait_for(pages(workflow="flow"))
    assert [len(page) for page in listed] == [3, 3, 1]
    assert [run for page in listed for run in page] == started[::-1]
    assert env.wait_for(pages(workflow="flow", status=RunStatus.COMPLETED)) == [[]]
    assert len(env.wait_for(pages(status=RunStatus.COMPLETED))[0]) == 1
    with pytest.raises(ValueError, match="cursor"):
        env.wait_for(env.client.list_runs(cursor="nonsense"))


def test_hooks_are_listed_oldest_first_in_pages(env: Environment) -> None:
    @workflow
    async def asks(number: int) -> None:
        await hook("q", timeout="1d")

    runs = []
    for number in range(5):
        runs.append(env.start(asks, number))
        env.run_until_idle()
        env.clock.advance(1)

    async def pages() -> list[list[Any]]:
        found, cursor = [], None
        while True:
            page = await env.client.list_hooks(limit=2, cursor=cursor)
            found.append(list(page.items))
            cursor = page.cursor
            if cursor is None:
                return found

    listed = env.wait_for(pages())
    assert [len(page) for page in listed] == [2, 2, 1]
    everything = [each for page in listed for each in page]
    assert [each.run_id for each in everything] == [run.id for run in runs]
    assert [each.run_id for each in env.hooks(runs[3])] == [runs[3].id]
    env.resume_hook(everything[0].token)
    assert len(env.hooks()) == 4


def test_start_takes_a_workflow(env: Environment) -> None:
    @step
    async def single() -> None: ...

    for wrong in (single, lambda: None, "flow"):
        with pytest.raises(UsageError, match="@workflow"):
            env.start(wrong)  # type: ignore[call-overload]


def test_a_crash_anywhere_in_a_start_still_starts_once(counted: list[int]) -> None:
    flow = flow_of(counted)
    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        once = env.client.with_options(idempotency_key="k")
        runs.append(env.wait_for(once.start(flow, 1)))
        env.run_until_idle()
        runs.append(env.wait_for(once.start(flow, 1)))
        env.advance("1h")

    for env in crashes_of(scenario):
        assert runs[-1].id == runs[-2].id
        assert env.result(runs[-1]) == 1


ANSWERING = """
import asyncio, sys
import stepwell

async def main():
    resumed = await stepwell.resume_hook(sys.argv[1], {"ok": True}, actor="other process")
    print(resumed.hook_id, resumed.repeated)

asyncio.run(main())
"""


def test_another_process_answers_by_the_file_that_its_environment_names(tmp_path: Path) -> None:
    @workflow
    async def flow() -> Any:
        return await hook("approve")

    path = tmp_path / "stepwell.db"

    async def scenario() -> None:
        with LocalEngine.open(path) as engine:
            run = await engine.client.start(flow)
            await engine.run_until_idle()
            page = await engine.client.list_hooks()
            token = page.items[0].token
            for expected in ("approve:1 False", "approve:1 True"):
                answered = await asyncio.to_thread(
                    subprocess.run,
                    [sys.executable, "-c", ANSWERING, token],
                    env={**os.environ, "STEPWELL_DB": str(path)},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                assert answered.stdout.strip() == expected
            await engine.run_until_idle()
            assert await run.result(timeout=0) == {"ok": True}
            check_history(await run.history())

    asyncio.run(scenario())


def test_without_an_environment_the_answer_says_what_to_set() -> None:
    code = (
        "import asyncio, stepwell\n"
        "try:\n"
        "    asyncio.run(stepwell.resume_hook('token'))\n"
        "except stepwell.errors.UsageError as error:\n"
        "    print(error)\n"
    )
    environment = {name: v for name, v in os.environ.items() if not name.startswith("STEPWELL_")}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "STEPWELL_TABLE" in told.stdout
    assert "STEPWELL_DB" in told.stdout
    assert asyncio.iscoroutinefunction(resume_hook)
    assert asyncio.iscoroutinefunction(Client.resume_hook)
