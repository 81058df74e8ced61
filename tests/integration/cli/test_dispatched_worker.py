"""`stepwell worker` and dispatched steps: killed in the body, and several on one file."""

from __future__ import annotations

import signal
import time

from tests.integration.cli.shell import Shell
from tests.integration.cli.test_worker import completed


def test_a_worker_makes_attempts_of_dispatched_steps(shell: Shell) -> None:
    run = shell.started("app:holds_away", ["door"])
    shell.answered(run)
    shell.release("door")
    assert shell("worker", "app", "--until-idle", "--json").code == 0
    shown = shell.run_of(run["run_id"])
    assert (shown["status"], shown["result"]) == ("COMPLETED", 1)


def test_run_stays_while_a_dispatched_step_is_worked_on(shell: Shell) -> None:
    running = shell.begin("run", "app:holds_away_now", "--input", '["door"]', "--wait", "0s")
    running.says("holding door")
    [run] = shell("runs", "list", "--json").json["runs"]  # takes longer than a look at the run
    assert [wait["kind"] for wait in run["waiting"]] == ["step"]
    shell.release("door")
    done = running.end()
    assert (done.code, "COMPLETED" in done.out) == (0, True)


def test_run_stays_while_an_item_of_a_map_is_made_elsewhere(shell: Shell) -> None:
    running = shell.begin("run", "app:holds_item_away", "--input", '["door"]', "--wait", "0s")
    running.says("holding door")
    [run] = shell("runs", "list", "--json").json["runs"]  # takes longer than a look at the run
    assert {wait["kind"] for wait in run["waiting"]} == {"hook", "map"}
    shell.release("door")
    done = running.end()
    assert done.code == 6
    assert "map" not in done.out


def test_run_ends_when_items_made_elsewhere_wait_for_answers(shell: Shell) -> None:
    done = shell("run", "app:maps_away", "--json")
    assert done.code == 6
    assert [hook["name"] for hook in done.json["hooks"]] == ["number", "number"]
    assert [wait["kind"] for wait in done.json["waiting"]] == ["map", "hook", "hook"]


def test_an_attempt_whose_worker_is_killed_is_made_again_by_another_one(shell: Shell) -> None:
    run = shell.started("app:holds_away", ["door"])
    shell.answered(run)
    killed = shell.begin("worker", "app", "--lease", "200ms")
    killed.says("holding door")
    killed.send(signal.SIGKILL)
    assert killed.end().code == -signal.SIGKILL
    shell.release("door")
    other = shell.begin("worker", "app")
    assert shell.wait_for(run["run_id"], completed)["result"] == 2
    other.send(signal.SIGTERM)
    assert other.end().code == 0


def test_a_second_worker_leaves_an_attempt_alone_that_outlasts_its_lease(shell: Shell) -> None:
    run = shell.started("app:holds_away", ["door"])
    shell.answered(run)
    first = shell.begin("worker", "app", "--lease", "2s")
    first.says("holding door")
    over = time.monotonic() + 2.5  # the lease that it began with has ended by then
    while time.monotonic() < over:
        assert shell("worker", "app", "--until-idle", "--lease", "2s").code == 0
    shell.release("door")
    assert shell.wait_for(run["run_id"], completed)["result"] == 1
    assert (shell.folder / "door.entries").read_text().split() == ["entered"]
    first.send(signal.SIGTERM)
    assert first.end().code == 0


def test_a_run_shows_how_far_its_map_has_come(shell: Shell) -> None:
    run = shell.started("app:maps_away")
    [wait] = [each for each in shell.run_of(run["run_id"])["waiting"] if each["kind"] == "map"]
    assert (wait["done"], wait["total"]) == (1, 3)
    assert "1 of 3 done" in shell("runs", "show", run["run_id"]).out
