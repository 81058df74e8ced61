"""Journaled scripts: `workflow.run(...)` and `.resume(...)`, and what they come to."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

from stepwell import (
    CommandHook,
    PayloadError,
    RetryPolicy,
    Run,
    RunNotFound,
    RunProblem,
    Suspend,
    UsageError,
    ask,
    current,
    hook,
    sleep,
    start_child,
    step,
    step_guard,
    step_hook,
    workflow,
)
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.client import Client

RAN: list[str] = []


@pytest.fixture(autouse=True)
def forget_what_ran() -> None:
    RAN.clear()


@step
def gather_facts(name: str) -> dict[str, Any]:
    RAN.append(name)
    return {"name": name, "size": 42}


@step
def approve(summary: str) -> bool:
    if not current.run.inbox.get("approved"):
        raise Suspend("waiting on sign-off")
    return True


@workflow
def sign_off_script(summary: str) -> bool:
    """Ask for a sign-off."""
    gather_facts(summary)
    return approve(summary)


@workflow
async def adding(*numbers: int) -> int:
    return sum(numbers)


@step(retry=RetryPolicy(max_attempts=1))
def breaks() -> None:
    RAN.append("breaks")
    raise ValueError("boom")


@workflow
def breaking() -> None:
    gather_facts("before")
    breaks()


def send(folder: Path, run_id: str, key: str, value: Any) -> None:
    """Put an entry into a run's inbox, as another process would."""
    on(folder, lambda client: client.put_inbox(run_id, key, value))


def on(folder: Path, what: Any) -> Any:
    with LocalEngine.open(folder / "stepwell.db") as engine:

        async def call(client: Client) -> Any:
            return await what(client)

        return asyncio.run(call(engine.client))


def test_a_run_that_completes_has_its_result(tmp_path: Path) -> None:
    run = adding.run(1, 2, journal_dir=tmp_path)
    assert (run.status, run.result, run.error) == ("completed", 3, None)
    assert (tmp_path / "stepwell.db").exists()


def test_a_run_that_waits_for_input_is_suspended_and_resumed(tmp_path: Path) -> None:
    run = sign_off_script.run("looks good", journal_dir=tmp_path)
    assert run.status == "suspended"
    assert run.error == RunProblem("suspended", "waiting on sign-off")
    again = sign_off_script.resume(run.id, journal_dir=tmp_path)
    assert (again.status, again.id) == ("suspended", run.id)
    send(tmp_path, run.id, "approved", True)
    ended = sign_off_script.resume(run.id, journal_dir=tmp_path)
    assert ended == Run(run.id, "completed", True)
    assert RAN == ["looks good"], "recorded steps stay"


def test_a_run_that_has_completed_gives_its_result_and_runs_nothing(tmp_path: Path) -> None:
    @workflow
    def remembering() -> str:
        RAN.append("workflow")
        return "result"

    run = remembering.run(journal_dir=tmp_path)
    RAN.clear()
    assert remembering.resume(run.id, journal_dir=tmp_path, prepare_step=refuse) == run
    assert RAN == []


def test_a_failure_is_returned_and_not_raised(tmp_path: Path) -> None:
    run = breaking.run(journal_dir=tmp_path)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.kind == "step"
    assert "ValueError: boom" in run.error.message


def test_an_error_of_the_workflow_itself_counts_as_one_of_a_step(tmp_path: Path) -> None:
    @workflow
    def wrong() -> None:
        raise KeyError("missing")

    run = wrong.run(journal_dir=tmp_path)
    assert run.error is not None
    assert (run.status, run.error.kind) == ("failed", "step")
    assert "missing" in run.error.message


def test_a_timeout_has_its_kind(tmp_path: Path) -> None:
    release = threading.Event()

    @step(timeout="50ms", retry=RetryPolicy(max_attempts=1))
    def too_slow() -> None:
        release.wait(5)

    @workflow
    def slow_script() -> None:
        too_slow()

    run = slow_script.run(journal_dir=tmp_path)
    release.set()
    assert run.error is not None
    assert (run.status, run.error.kind) == ("failed", "timeout")


def test_a_result_that_cannot_be_carried_has_its_kind(tmp_path: Path) -> None:
    @step(retry=RetryPolicy(max_attempts=1))
    def unfit() -> Any:
        return object()

    @workflow
    def unfit_step() -> None:
        unfit()

    @workflow
    def unfit_result() -> Any:
        return object()

    for script in (unfit_step, unfit_result):
        run = script.run(journal_dir=tmp_path)
        assert run.error is not None
        assert (run.status, run.error.kind) == ("failed", "serialize")


def test_arguments_that_do_not_fit_raise_before_there_is_a_run(tmp_path: Path) -> None:
    with pytest.raises(PayloadError):
        gathering.run({object()}, journal_dir=tmp_path)
    with pytest.raises(TypeError):
        gathering.run(journal_dir=tmp_path)
    assert not (tmp_path / "stepwell.db").exists()


@workflow
def gathering(items: Any) -> Any:
    return items


def test_a_run_that_was_cancelled_is_told_of_as_one(tmp_path: Path) -> None:
    run = sign_off_script.run("x", journal_dir=tmp_path)
    on(tmp_path, lambda client: client.cancel(run.id, "no longer wanted"))
    with LocalEngine.open(tmp_path / "stepwell.db") as engine:
        asyncio.run(engine.run_until_idle())
        header = asyncio.run(engine.client.get(run.id))
    assert header.status == "CANCELLED"


def test_a_hook_and_a_question_suspend_a_script(tmp_path: Path) -> None:
    @workflow
    def asking_script() -> list[Any]:
        return [hook("verdict"), ask("Which colour?")]

    run = asking_script.run(journal_dir=tmp_path)
    assert run.error == RunProblem("suspended", "hook verdict:1")

    async def answer(client: Client) -> None:
        [found] = (await client.list_hooks(run_id=run.id)).items
        await client.resume_hook(found.token, "yes")

    on(tmp_path, answer)
    run = asking_script.resume(run.id, journal_dir=tmp_path)
    assert run.error == RunProblem("suspended", "Which colour?")
    on(tmp_path, answer)
    assert asking_script.resume(run.id, journal_dir=tmp_path).result == ["yes", "yes"]


def test_timers_and_retries_are_waited_for(tmp_path: Path) -> None:
    @step(retry=RetryPolicy(max_attempts=3, initial="10ms", jitter="none"))
    def flaky_script() -> int:
        RAN.append("try")
        if len(RAN) < 3:
            raise ConnectionError("down")
        return len(RAN)

    @workflow
    def patient() -> int:
        sleep("20ms")
        return flaky_script()

    assert patient.run(journal_dir=tmp_path).result == 3


def test_a_timer_beyond_the_wait_suspends_the_script(tmp_path: Path) -> None:
    @workflow
    def far_off() -> None:
        sleep("30d")

    run = far_off.run(journal_dir=tmp_path, wait="1s")
    assert run.error == RunProblem("suspended", "timer sleep:1")


def test_dispatched_steps_and_children_are_part_of_the_script(tmp_path: Path) -> None:
    @step(dispatch="worker")
    async def far_step() -> str:
        return "far"

    @workflow
    async def child_script() -> str:
        return await far_step()

    @workflow
    async def parent_script() -> str:
        result: str = await start_child(child_script)
        return f"{result} and near"

    assert parent_script.run(journal_dir=tmp_path).result == "far and near"


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_a_script_ends_when_items_of_its_map_wait_for_answers(
    tmp_path: Path, dispatch: Literal["inline", "worker"]
) -> None:
    @step(dispatch=dispatch)
    async def asks_in_script(n: int) -> int:
        return n if n == 0 else int(await step_hook("number", key=str(n)))

    @workflow
    async def script_of_askers() -> list[int]:
        return await asks_in_script.map(range(3))

    run = script_of_askers.run(journal_dir=tmp_path)
    assert run.status == "suspended"
    assert "hook asks_in_script*:1#2>number@2" in str(run.error)
    with LocalEngine.open(tmp_path / "stepwell.db") as engine:
        for asked in asyncio.run(engine.client.list_hooks(run_id=run.id)).items:
            asyncio.run(engine.client.resume_hook(asked.token, 7))
    assert script_of_askers.resume(run.id, journal_dir=tmp_path).result == [0, 7, 7]


@pytest.mark.parametrize("run_id", ["absent", "", "../x", "a\0b", None, 3])
def test_a_run_that_is_not_there_is_said_not_to_be(tmp_path: Path, run_id: Any) -> None:
    with pytest.raises(RunNotFound):
        adding.resume(run_id, journal_dir=tmp_path)
    assert not (tmp_path / "stepwell.db").exists(), "nothing is made of it"
    adding.run(1, journal_dir=tmp_path)
    with pytest.raises(RunNotFound) as raised:
        adding.resume(run_id, journal_dir=tmp_path)
    assert raised.value.__context__ is None, "nothing else is shown with it"


def test_a_run_of_another_workflow_is_refused(tmp_path: Path) -> None:
    run = adding.run(1, journal_dir=tmp_path)
    with pytest.raises(UsageError, match="'adding'"):
        breaking.resume(run.id, journal_dir=tmp_path)


def test_a_run_knows_its_id_and_its_folder(tmp_path: Path) -> None:
    @step
    def placed() -> list[str]:
        return [current.run.id, str(current.run.journal_dir)]

    @workflow
    def placing() -> list[str]:
        RAN.append(str(current.run.journal_dir))
        return [current.run.id, *placed()]

    run = placing.run(journal_dir=tmp_path / "journal")
    assert run.result == [run.id, run.id, str(tmp_path / "journal")]
    assert RAN[0] == str(tmp_path / "journal")


def test_without_a_folder_it_is_where_other_commands_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_DB", str(tmp_path / "here.db"))
    assert adding.run(1, 1).result == 2
    assert (tmp_path / "here.db").exists()
    monkeypatch.delenv("STEPWELL_DB")
    monkeypatch.chdir(tmp_path)
    assert adding.run(1, 1).result == 2
    assert (tmp_path / ".stepwell" / "stepwell.db").exists()


def test_inside_a_run_there_is_no_script(tmp_path: Path) -> None:
    @workflow
    def nesting() -> Any:
        return adding.run(1).result

    run = nesting.run(journal_dir=tmp_path)
    assert run.error is not None
    assert "start a child run" in run.error.message


def test_in_a_loop_a_script_runs_all_the_same(tmp_path: Path) -> None:
    async def notebook() -> Any:
        return adding.run(20, 22, journal_dir=tmp_path).result

    assert asyncio.run(notebook()) == 42


def test_a_parameter_that_is_named_as_an_option_is_refused(tmp_path: Path) -> None:
    @workflow
    def shadowed(journal_dir: str) -> str:
        return journal_dir

    @workflow
    def shadowed_wait(wait: str = "1h") -> str:
        return wait

    with pytest.raises(UsageError, match="'journal_dir'"):
        shadowed.run(journal_dir=tmp_path)
    with pytest.raises(UsageError, match="'wait'"):
        shadowed_wait.run(wait="2h", journal_dir=tmp_path)


@step(dispatch="worker")
def of_others() -> None:
    RAN.append("of others")


@workflow
async def others_far() -> None:
    await of_others.aio()


def test_other_runs_on_the_file_are_left_alone(tmp_path: Path) -> None:
    with LocalEngine.open(tmp_path / "stepwell.db") as engine:
        far = asyncio.run(engine.client.start(others_far))
        asyncio.run(engine.take_turn())
        other = asyncio.run(engine.client.start(breaking))
    assert adding.run(1, journal_dir=tmp_path).result == 1
    assert on(tmp_path, lambda client: client.get(other.id)).status == "PENDING"
    assert on(tmp_path, lambda client: client.get(far.id)).status == "SUSPENDED"
    assert RAN == []


def test_a_run_that_another_process_holds_is_waited_for(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    @step
    def held() -> str:
        if not current.run.inbox:
            raise Suspend("begin")
        RAN.append("body")
        began.set()
        go_on.wait(5)
        return "once"

    @workflow
    def holding() -> str:
        return held()

    run = holding.run(journal_dir=tmp_path)
    send(tmp_path, run.id, "begin", True)
    results: list[Run[Any]] = []

    def resume() -> None:
        results.append(holding.resume(run.id, journal_dir=tmp_path))

    threads = [threading.Thread(target=resume), threading.Thread(target=resume)]
    threads[0].start()
    assert began.wait(5)
    # What it waits for stands on its header still, while the other one works on it.
    threads[1].start()
    threads[1].join(0.2)
    go_on.set()
    for each in threads:
        each.join(10)
    assert results == [Run(run.id, "completed", "once")] * 2
    assert RAN == ["body"]


# Guards


def refuse(_: dict[str, Any]) -> dict[str, Any]:
    return {"power": "block", "reason": "not today"}


def test_a_guard_that_blocks_fails_the_script(tmp_path: Path) -> None:
    run = sign_off_script.run("x", journal_dir=tmp_path, prepare_step=refuse)
    assert run.status == "failed"
    assert run.error == RunProblem("hook", "not today")
    assert RAN == []


def test_guards_are_kept_replaced_and_taken_away(tmp_path: Path) -> None:
    told: list[str] = []

    def notify(payload: dict[str, Any]) -> dict[str, Any]:
        told.append(payload["key"])
        return {"power": "observe"}

    run = sign_off_script.run("x", journal_dir=tmp_path, prepare_step=notify)
    assert told == ["gather_facts:1", "approve:1"]
    assert sign_off_script.resume(run.id, journal_dir=tmp_path).status == "suspended"
    assert told == ["gather_facts:1", "approve:1", "approve:1"]
    sign_off_script.resume(run.id, journal_dir=tmp_path, prepare_step=[])
    assert len(told) == 3
    instead = {"power": "replace", "result": True}
    ended = sign_off_script.resume(
        run.id, journal_dir=tmp_path, prepare_step=[notify, lambda _: instead]
    )
    assert ended.result is True
    assert len(told) == 4


def test_a_guard_after_the_step_has_its_say(tmp_path: Path) -> None:
    instead = {"power": "replace", "result": {"name": "other"}}

    @workflow
    def reviewed_script() -> Any:
        return gather_facts("x")

    run = reviewed_script.run(journal_dir=tmp_path, review_step=lambda _: instead)
    assert run.result == {"name": "other"}


def test_a_program_is_a_guard(tmp_path: Path) -> None:
    program = tmp_path / "notify.py"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "name = json.load(sys.stdin)['args'][0]\n"
        "print(json.dumps({'power': 'replace', 'result': {'by': name}}))\n"
    )
    program.chmod(0o700)

    @workflow
    def by_program() -> Any:
        return gather_facts("program")

    guard = CommandHook([str(program)], timeout=20)
    assert by_program.run(journal_dir=tmp_path, prepare_step=guard).result == {"by": "program"}
    failing = CommandHook([str(tmp_path / "absent")])
    run = by_program.run(journal_dir=tmp_path, prepare_step=failing)
    assert run.error is not None
    assert run.error.kind == "hook"
    told = run.error.message
    assert told.startswith("guard 'CommandHook' failed: ")
    assert "cannot be run" in told
    assert told.count(str(tmp_path / "absent")) == 2  # what was asked for, and what is not there
    assert RAN == []


_ELSEWHERE = """
import sys
sys.path.insert(0, {root!r})
from tests.integration.test_scripts import *
run = {script}.run("x", journal_dir={folder!r}, prepare_step={guard})
print(run.id)
"""


def elsewhere(folder: Path, guard: str, script: str = "sign_off_script") -> str:
    root = str(Path(__file__).parents[2])
    code = _ELSEWHERE.format(root=root, folder=str(folder), guard=guard, script=script)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root
    )
    return done.stdout.strip()


@step_guard(name="scripts.only_sign_off")
def only_sign_off(payload: dict[str, Any]) -> dict[str, Any]:
    if payload["step"] == "approve" and payload["inbox"].get("by_guard"):
        return {"power": "replace", "result": True}
    return {"power": "observe"}


def test_a_declared_guard_goes_with_the_run_to_another_process(tmp_path: Path) -> None:
    run_id = elsewhere(tmp_path, "only_sign_off")
    send(tmp_path, run_id, "by_guard", True)
    assert sign_off_script.resume(run_id, journal_dir=tmp_path).result is True


def test_a_function_of_another_process_fails_closed(tmp_path: Path) -> None:
    run_id = elsewhere(tmp_path, "lambda payload: {'power': 'observe'}")
    send(tmp_path, run_id, "approved", True)
    run = sign_off_script.resume(run_id, journal_dir=tmp_path)
    assert run.status == "suspended"
    assert run.error is not None
    assert run.error.kind == "hook"
    assert "function of the process" in run.error.message
    ended = sign_off_script.resume(run_id, journal_dir=tmp_path, prepare_step=[])
    assert ended.result is True


@workflow
async def parent_of_sign_off(summary: str) -> bool:
    return await start_child(sign_off_script, summary)


def test_the_guards_of_a_script_are_asked_before_the_steps_of_its_children(tmp_path: Path) -> None:
    run = parent_of_sign_off.run("x", journal_dir=tmp_path, prepare_step=refuse)
    assert run.status == "failed"
    assert RAN == []


def test_guards_of_a_resume_reach_children_whose_own_nobody_knows(tmp_path: Path) -> None:
    run_id = elsewhere(tmp_path, "lambda payload: {'power': 'observe'}", "parent_of_sign_off")
    told: list[str] = []

    def watch(payload: dict[str, Any]) -> dict[str, Any]:
        told.append(payload["workflow"])
        return {"power": "observe"}

    run = parent_of_sign_off.resume(run_id, journal_dir=tmp_path, prepare_step=watch)
    assert run.status == "suspended"
    assert told == ["sign_off_script"]
    # The child has a guard that is known now, and keeps it.
    [child] = [
        each.run_id
        for each in on(tmp_path, lambda client: client.list_runs()).items
        if each.parent is not None
    ]
    kept = on(tmp_path, lambda client: client.history(child))
    parent_of_sign_off.resume(run_id, journal_dir=tmp_path, prepare_step=[])
    assert on(tmp_path, lambda client: client.history(child)) == kept
    send(tmp_path, child, "approved", True)
    ended = parent_of_sign_off.resume(run_id, journal_dir=tmp_path)
    assert ended.result is True
    assert set(told) == {"sign_off_script"}


# Failed and cancelled runs


def test_a_failed_script_is_retried_with_its_records(tmp_path: Path) -> None:
    mended: list[bool] = []

    @step(retry=RetryPolicy(max_attempts=1))
    def mends() -> str:
        RAN.append("try")
        if not mended:
            raise ValueError("boom")
        return "mended"

    @workflow
    def mending() -> str:
        gather_facts("once")
        return mends()

    run = mending.run(journal_dir=tmp_path)
    assert run.status == "failed"
    mended.append(True)
    ended = mending.resume(run.id, journal_dir=tmp_path)
    assert ended == Run(run.id, "completed", "mended")
    assert RAN == ["once", "try", "try"]


def test_a_step_that_a_guard_blocked_is_tried_again_by_a_resume(tmp_path: Path) -> None:
    @workflow
    def guarded_script() -> Any:
        return gather_facts("x")["size"]

    run = guarded_script.run(journal_dir=tmp_path, prepare_step=refuse)
    assert run.error == RunProblem("hook", "not today")
    assert guarded_script.resume(run.id, journal_dir=tmp_path).error == run.error
    ended = guarded_script.resume(run.id, journal_dir=tmp_path, prepare_step=[])
    assert (ended.status, ended.result) == ("completed", 42)


def test_a_cancelled_script_is_told_of_as_one_and_can_be_resumed(tmp_path: Path) -> None:
    run = sign_off_script.run("x", journal_dir=tmp_path)
    on(tmp_path, lambda client: client.cancel(run.id, "no longer wanted"))
    cancelled = sign_off_script.resume(run.id, journal_dir=tmp_path)
    assert cancelled.status == "cancelled"
    assert cancelled.error == RunProblem("cancelled", "no longer wanted")
    send_to = on(tmp_path, lambda client: client.get(run.id))
    assert send_to.status == "CANCELLED"
    again = sign_off_script.resume(run.id, journal_dir=tmp_path)
    assert again.error == RunProblem("suspended", "waiting on sign-off")
    send(tmp_path, run.id, "approved", True)
    assert sign_off_script.resume(run.id, journal_dir=tmp_path).result is True
    assert RAN == ["x"]
