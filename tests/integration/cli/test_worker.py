"""`stepwell worker`: several processes on one file, and what a stop or a kill leaves."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.integration.cli.shell import Shell


def completed(run: Any) -> bool:
    return bool(run["status"] == "COMPLETED")


def test_an_answer_from_another_process_is_carried_on_by_a_third(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    shell.answered(run, {"approved": False, "note": "later"})
    worker = shell("worker", "app", "--until-idle", "--json")
    assert worker.code == 0
    assert worker.json["turns"] == 1
    assert "approve" in worker.json["workflows"]
    shown = shell.run_of(run["run_id"])
    assert shown["status"] == "COMPLETED"
    assert shown["result"] == "PLAN: False, later"


def test_a_worker_fires_timers(shell: Shell) -> None:
    run = shell.started("app:nap_when_told", ["50ms"])
    shell.answered(run)
    worker = shell.begin("worker", "app")
    assert shell.wait_for(run["run_id"], completed)["result"] == "rested"
    worker.send(signal.SIGTERM)
    assert worker.end().code == 0


def test_a_killed_worker_loses_nothing(shell: Shell) -> None:
    run = shell.started("app:holds", ["door"])
    shell.answered(run)
    killed = shell.begin("worker", "app", "--lease", "200ms", "--concurrency", "1")
    killed.says("holding door")
    killed.send(signal.SIGKILL)
    assert killed.end().code == -signal.SIGKILL
    assert shell.run_of(run["run_id"])["status"] == "SUSPENDED"
    shell.release("door")
    other = shell.begin("worker", "app")
    assert shell.wait_for(run["run_id"], completed)["result"] == 2
    other.send(signal.SIGTERM)
    assert other.end().code == 0


def test_two_workers_share_one_file(shell: Shell) -> None:
    runs = [shell.started("app:meets", names) for names in (["a", "b"], ["b", "a"])]
    workers = [shell.begin("worker", "app", "--concurrency", "1") for _ in range(2)]
    for worker in workers:
        worker.says("working on")
    for run in runs:
        shell.answered(run)
    results = {shell.wait_for(run["run_id"], completed)["result"] for run in runs}
    assert results == {worker.process.pid for worker in workers}
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert worker.end().code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_turns_in_flight_finish(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    run = shell.started("app:holds", ["door"])
    shell.answered(run)
    worker = shell.begin("worker", "app", "--json")
    worker.says("holding door")
    worker.send(number)
    worker.says("stopping")
    shell.release("door")
    done = worker.end()
    assert done.code == code
    assert done.json["turns"] == 1
    assert shell.run_of(run["run_id"])["result"] == 1


def test_an_idle_worker_stops_at_once(shell: Shell) -> None:
    worker = shell.begin("worker", "app")
    worker.says("working on")
    worker.send(signal.SIGTERM)
    assert worker.end().code == 0


def test_runs_of_unknown_workflows_are_left_to_those_who_know_them(shell: Shell) -> None:
    (shell.folder / "other.py").write_text(
        "from stepwell import workflow\n\n@workflow\nasync def elsewhere() -> int:\n    return 1\n"
    )
    run = shell.started("app:approve", ["plan"])
    shell.answered(run, {"approved": True, "note": ""})
    assert shell("worker", "other", "--until-idle", "--json").json["turns"] == 0
    assert shell("run", "other:elsewhere").code == 0
    left = shell.run_of(run["run_id"])
    assert (left["status"], left["attention"]) == ("SUSPENDED", None)
    assert shell("worker", "other", "app", "--until-idle").code == 0
    assert shell.run_of(run["run_id"])["status"] == "COMPLETED"


def test_a_blocked_run_goes_on_with_code_that_fits(shell: Shell) -> None:
    fitting = shell.module.read_text()
    arguments = ("run", "app:approve", "--input", '["plan"]', "--idempotency-key", "k", "--json")
    run = shell(*arguments).json
    shell.change(fitting.replace("text = await draft(title)", "text = await refuse()"))
    shell.answered(run, {"approved": True, "note": "go"})
    assert shell("worker", "app:approve", "--until-idle").code == 0
    blocked = shell(*arguments)
    assert blocked.code == 1
    assert blocked.json["attention"]["kind"] == "BLOCKED"
    shell.change(fitting)
    assert shell("worker", "app", "--until-idle").code == 0
    shown = shell.run_of(run["run_id"])
    assert (shown["status"], shown["attention"]) == ("COMPLETED", None)


def test_a_worker_logs_failures_and_ends(shell: Shell) -> None:
    runs = {
        name: shell.started(f"app:{name}") for name in ("stumbles_when_told", "fails_when_told")
    }
    for run in runs.values():
        shell.answered(run)
    worker = shell.begin("worker", "app")
    worker.says(f"run {runs['stumbles_when_told']['run_id']}: completed")
    shell.wait_for(runs["fails_when_told"]["run_id"], lambda run: run["status"] == "FAILED")
    worker.send(signal.SIGTERM)
    lines = worker.end().err.splitlines()
    stumbles, fails = (run["run_id"] for run in runs.values())
    [retry] = [line for line in lines if f"run {stumbles}: attempt 1 of step stumble:1" in line]
    assert "failed: ConnectionError: the line is [bold]dead[/bold]; next attempt at 20" in retry
    [last] = [line for line in lines if f"run {fails}: attempt 1 of step refuse:1" in line]
    assert last.endswith("failed: stepwell.errors.FatalError: not today; it was the last one")
    [ended] = [line for line in lines if f"run {fails}: failed: " in line]
    assert "not today" in ended


def test_a_worker_says_that_a_run_is_blocked(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    shell.change(shell.module.read_text().replace("= await draft(title)", "= await refuse()"))
    shell.answered(run, {"approved": True, "note": "go"})
    worker = shell("worker", "app", "--until-idle")
    assert f"run {run['run_id']} is blocked: " in worker.err
    again = shell("worker", "app", "--until-idle")
    assert "trying 1 blocked run again" in again.err
    assert "stopped after 1 turn\n" in again.err


def test_a_worker_of_many_workflows_names_some(shell: Shell) -> None:
    (shell.folder / "many.py").write_text(
        "from stepwell import workflow\n\n"
        "for n in range(40):\n"
        "    workflow(name=f'w{n:02}')(lambda: None)\n"
    )
    started = shell("worker", "many", "--until-idle").err.splitlines()[0]
    assert "w00, w01" in started
    assert "w39" not in started
    assert "and 32 more in .stepwell" in started


def test_a_module_without_workflows_is_refused(shell: Shell) -> None:
    (shell.folder / "bare.py").write_text("x = 1\n")
    done = shell("worker", "bare", "--json")
    assert done.code == 2
    assert "no workflow is defined in bare" in done.error["message"]


def test_a_worker_names_what_it_cannot_find(shell: Shell) -> None:
    assert "no module 'absent'" in shell("worker", "absent", "--json").error["message"]
    assert "app:hello" in shell("worker", "app:absent", "--json").error["message"]
