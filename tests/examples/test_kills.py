"""The examples over process deaths: real ones, and a fresh environment for each leg."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.outside import Outside, connect
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.examples.given import EXAMPLES, SOMETIMES, Example, go_on, let_fail, started

START = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1000)


def leg(folder: Path, before: int) -> Environment:
    """A new process's deployment on the same file, minutes after the one before, in milliseconds.

    By then the message that a killed process held is visible, and no deadline has passed.
    """
    start = datetime.fromtimestamp(before / 1000, UTC) + timedelta(minutes=5)
    return Environment(path=folder / "stepwell.sqlite3", seed=before, start=start)


def check_end(env: Environment, run: RunHandle[Any], example: Example, world: Outside) -> None:
    """The run ended well, each thing was done as often as it should, and nothing is left over."""
    while env.advance_to_next():  # messages that the killed process had not given back
        pass
    cancelled = example.cancelled_at is not None
    assert env.get(run).status is (RunStatus.CANCELLED if cancelled else RunStatus.COMPLETED)
    assert all(each.status.terminal for each in env.wait_for(env.client.list_runs()).items)
    for kind in {*SOMETIMES, *example.effects}:
        assert len(world.effects(kind)) == example.effects.get(kind, 0), kind
    assert env.hooks() == ()
    check_run(env, run)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_leg_may_be_another_process(name: str, tmp_path: Path, world: Outside) -> None:
    example: Example = EXAMPLES[name]
    before = START
    let_fail(world, example)
    for _ in range(example.waits):
        with leg(tmp_path, before) as env:
            run = started(env, example)
            assert not env.get(run).status.terminal
            go_on(env, run, example)
            before = env.clock.now()
    with leg(tmp_path, before) as env:
        check_end(env, started(env, example), example, world)
    for kind, times in example.effects.items():
        assert world.requests(kind) == times + example.outages.get(kind, 0), kind


def killed(name: str, folder: Path, kind: str, occurrence: int) -> int:
    """Work the example in another process, and kill that where it hangs. Gives its time then."""
    command = [sys.executable, "-m", "tests.examples.process"]
    command += [name, str(folder), kind, str(occurrence)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, _, time = process.stdout.readline().partition(" ")
            assert word == "hanging"
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL
    return int(time)


def taken_over(name: str, folder: Path, time: int, world: Outside) -> None:
    """Work the example to its end, from what a process that was killed then has left."""
    example = EXAMPLES[name]
    with leg(folder, time) as env:
        run = started(env, example)
        while not env.get(run).status.terminal:
            go_on(env, run, example)
        check_end(env, run, example, world)


def kills() -> list[tuple[str, str, int]]:
    """Where processes are killed: at each wait, and after the first effect of each kind."""
    found = [("agent", "model turn", 2)]
    for name, example in EXAMPLES.items():
        if name != "cancelled trip":  # which is a trip up to there
            found += [(name, "waiting", wait + 1) for wait in range(example.waits)]
            found += [(name, kind, 1) for kind in example.effects]
    undone = EXAMPLES["cancelled trip"].effects.keys() & SOMETIMES
    return found + [("cancelled trip", kind, 1) for kind in sorted(undone)]


@pytest.mark.parametrize(("name", "kind", "occurrence"), kills())
def test_a_process_killed_for_good_is_taken_over_by_another(
    name: str, kind: str, occurrence: int, tmp_path: Path, world: Outside
) -> None:
    time = killed(name, tmp_path, kind, occurrence)
    taken_over(name, tmp_path, time, world)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("chance", range(2))
def test_a_process_killed_at_any_call_is_taken_over_by_another(
    name: str, chance: int, tmp_path: Path
) -> None:
    drawn = random.Random(f"{name} {chance}")
    calls = calls_of(name)
    world = connect(tmp_path / "outside.sqlite3")
    when = drawn.choice(["before", "after"])
    time = killed(name, tmp_path, when, drawn.randint(1, calls))
    taken_over(name, tmp_path, time, world)


def calls_of(name: str) -> int:
    """How many calls to store, queue and timers the turns of an example make."""
    let_fail(connect(":memory:"), EXAMPLES[name])
    with Environment() as env:
        run = started(env, EXAMPLES[name])
        while not env.get(run).status.terminal:
            go_on(env, run, EXAMPLES[name])
        return len(env.port_calls)


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
