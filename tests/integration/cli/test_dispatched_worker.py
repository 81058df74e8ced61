"""`stepwell worker` and dispatched steps: killed in the body, and several on one file."""

from __future__ import annotations

import signal

from tests.integration.cli.shell import Shell
from tests.integration.cli.test_worker import completed


def test_a_worker_makes_attempts_of_dispatched_steps(shell: Shell) -> None:
    run = shell.started("app:holds_away", ["door"])
    shell.answered(run)
    shell.release("door")
    assert shell("worker", "app", "--until-idle", "--json").code == 0
    shown = shell.run_of(run["run_id"])
    assert (shown["status"], shown["result"]) == ("COMPLETED", 1)


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
    first = shell.begin("worker", "app", "--lease", "200ms")
    first.says("holding door")
    for _ in range(2):  # each of them takes longer than the lease to start
        assert shell("worker", "app", "--until-idle", "--lease", "200ms").code == 0
    shell.release("door")
    assert shell.wait_for(run["run_id"], completed)["result"] == 1
    assert (shell.folder / "door.entries").read_text().split() == ["entered"]
    first.send(signal.SIGTERM)
    assert first.end().code == 0
