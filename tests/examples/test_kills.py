"""The examples over process deaths: real ones, and a fresh environment for each leg."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.outside import Outside
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.examples.given import EXAMPLES, Example, answer_all, answer_next, started

#: Requests that the workflows make, each with its effect once, whatever died.
KINDS = {
    "approval": ("draft", "review asked", "payment", "confirmation"),
    "agent": ("credit", "seat held"),
}


def leg(folder: Path, number: int) -> Environment:
    """A new process's deployment on the same file, minutes after the one before.

    By then the message that a killed process held is visible, and no deadline has passed.
    """
    later = datetime(2030, 1, 1, 0, 5 * number, tzinfo=UTC)
    return Environment(path=folder / "stepwell.sqlite3", seed=number, start=later)


def check_end(env: Environment, run: RunHandle[Any], name: str, world: Outside) -> None:
    """The run ended well, and each thing was done once."""
    assert env.get(run).status is RunStatus.COMPLETED
    for kind in KINDS[name]:
        assert len(world.effects(kind)) == 1, kind
    check_run(env, run)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_leg_may_be_another_process(name: str, tmp_path: Path, world: Outside) -> None:
    example: Example = EXAMPLES[name]
    for number in range(10):
        with leg(tmp_path, number) as env:
            run = started(env, example)
            if env.get(run).status.terminal:
                check_end(env, run, name, world)
                break
            answer_next(env, example)
    assert number == len(example.answers)
    assert all(world.requests(kind) == 1 for kind in KINDS[name])


def killed(name: str, folder: Path, kind: str, occurrence: int) -> None:
    """Work the example in another process, and kill that where it hangs."""
    command = [sys.executable, "-m", "tests.examples.process"]
    command += [name, str(folder), kind, str(occurrence)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "hanging\n"
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "kind", "occurrence"),
    [
        ("approval", "draft", 1),
        ("approval", "review asked", 1),
        ("approval", "waiting", 1),
        ("approval", "payment", 1),
        ("approval", "confirmation", 1),
        ("agent", "credit", 1),
        ("agent", "model turn", 2),
        ("agent", "seat held", 1),
        ("agent", "waiting", 1),
        ("agent", "waiting", 2),
    ],
)
def test_a_process_killed_for_good_is_taken_over_by_another(
    name: str, kind: str, occurrence: int, tmp_path: Path, world: Outside
) -> None:
    killed(name, tmp_path, kind, occurrence)
    with leg(tmp_path, 1) as env:
        run = started(env, EXAMPLES[name])
        answer_all(env, EXAMPLES[name])
        check_end(env, run, name, world)


def test_the_demo_proves_what_it_says() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "examples.approval.demo"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "is killed with SIGKILL (signal 9)" in done.stdout
    assert "Proved: set-up ran once, 48.50 was paid once" in done.stdout


def test_the_demo_does_not_touch_a_folder_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    command = [sys.executable, "-m", "examples.approval.demo", "--folder", str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
