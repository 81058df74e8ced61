"""Steps of scripts, as their authors use them: lists, keys, deadlines, and guards that fail."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stepwell import CommandHook, RetryPolicy, Suspend, current, step, workflow
from stepwell.adapters.local.runtime import LocalEngine

ONCE = RetryPolicy(max_attempts=1)
RAN: list[Any] = []


@pytest.fixture(autouse=True)
def forget_what_ran() -> None:
    RAN.clear()


@step(name="script.fetch")
def fetch(name: str) -> dict[str, Any]:
    RAN.append(name)
    return {"name": name, "size": 42}


@step(name="script.combine")
def combine(name: str, size: int) -> str:
    RAN.append((name, size))
    return f"{name}: {size}"


def test_lists_are_mapped_and_pairs_submitted(tmp_path: Path) -> None:
    @workflow
    def listing() -> list[str]:
        docs = fetch.map(["a.txt", "b.txt"])
        tickets = [combine.submit(each["name"], each["size"]) for each in docs]
        return [ticket.result() for ticket in tickets]

    assert listing.run(journal_dir=tmp_path).result == ["a.txt: 42", "b.txt: 42"]
    assert len(RAN) == 4


def test_a_resume_makes_the_items_that_have_no_record(tmp_path: Path) -> None:
    broken = [True]

    @step(retry=ONCE)
    def part_of(n: int) -> int:
        RAN.append(n)
        if n == 2 and broken:
            raise ValueError("down")
        return n

    @workflow
    def whole() -> list[int]:
        return list(part_of.map([0, 1, 2, 3], max_concurrency=1))

    run = whole.run(journal_dir=tmp_path)
    assert run.status == "failed"
    broken.clear()
    assert whole.resume(run.id, journal_dir=tmp_path).result == [0, 1, 2, 3]
    assert RAN == [0, 1, 2, 2, 3]


def fetch_one(name: str) -> dict[str, Any]:
    RAN.append(name)
    return {"name": name, "size": 42}


@workflow(name="script.batch")
def batch(names: list[str], extra: bool = False) -> list[Any]:
    if extra and current.run.inbox.get("insert"):
        names = ["new", *names]
    found = [current.step("fetch_one", fetch_one, name, key=name) for name in names]
    if extra and not current.run.inbox:
        raise Suspend("waiting for more")
    return found


def test_a_key_makes_a_plain_function_one_step_wherever_it_is_called(tmp_path: Path) -> None:
    run = batch.run(["a", "b", "a"], journal_dir=tmp_path)
    assert run.result == [{"name": name, "size": 42} for name in ("a", "b", "a")]
    assert RAN == ["a", "b"]


def test_outside_a_run_it_is_called_each_time() -> None:
    assert [each["name"] for each in batch(["a", "b", "a"])] == ["a", "b", "a"]
    assert RAN == ["a", "b", "a"]


def test_a_new_item_before_others_with_keys_makes_nothing_run_again(tmp_path: Path) -> None:
    run = batch.run(["a", "b"], extra=True, journal_dir=tmp_path)
    assert run.status == "suspended"
    batch_inbox(tmp_path, run.id)
    ended = batch.resume(run.id, journal_dir=tmp_path)
    assert [each["name"] for each in ended.result or []] == ["new", "a", "b"]
    assert RAN == ["a", "b", "new"]


def batch_inbox(folder: Path, run_id: str) -> None:
    """Put an entry into a run's inbox."""
    with LocalEngine.open(folder / "stepwell.db") as engine:
        asyncio.run(engine.client.put_inbox(run_id, "insert", True))


def test_a_resume_after_a_timeout_has_the_whole_time_again(tmp_path: Path) -> None:
    gate, left = threading.Event(), []

    @step(timeout="200ms", retry=ONCE)
    def slow_at_first() -> str:
        assert current.deadline is not None
        left.append(current.deadline - time.monotonic())
        if len(left) == 1:
            gate.wait(10)
        return "in time"

    @workflow
    def patient_script() -> str:
        return slow_at_first()

    run = patient_script.run(journal_dir=tmp_path)
    assert run.error is not None
    assert run.error.kind == "timeout"
    ended = patient_script.resume(run.id, journal_dir=tmp_path)
    gate.set()
    assert ended.result == "in time"
    assert left[1] > 0, "counted from where the second attempt began"


def test_a_body_that_gives_up_at_its_deadline_has_timed_out(tmp_path: Path) -> None:
    @step(timeout="50ms", retry=ONCE)
    def polls() -> None:
        while current.deadline is not None and time.monotonic() <= current.deadline:
            threading.Event().wait(0.005)
        raise TimeoutError("gave up polling")

    @workflow
    def polling_script() -> None:
        polls()

    run = polling_script.run(journal_dir=tmp_path)
    assert run.error is not None
    assert run.error.kind == "timeout"


def test_without_a_timeout_there_is_no_deadline(tmp_path: Path) -> None:
    @step
    def unlimited() -> bool:
        return current.deadline is None

    @workflow
    def unlimited_script() -> bool:
        return unlimited()

    assert unlimited_script.run(journal_dir=tmp_path).result is True


def program(path: Path, body: str) -> CommandHook:
    path.write_text(f"#!{sys.executable}\nimport json, sys\nasked = json.load(sys.stdin)\n{body}\n")
    path.chmod(0o700)
    return CommandHook([str(path)], timeout=20)


OBSERVE = f"print({json.dumps(json.dumps({'power': 'observe'}))})"


@pytest.mark.parametrize("failing", ["sys.exit(3)", "print('no answer')", "print('x' * 70_000)"])
def test_a_resume_asks_a_program_again_that_failed(tmp_path: Path, failing: str) -> None:
    @workflow
    def guarded_by_program() -> str:
        return combine("x", 1)

    path = tmp_path / "guard.py"
    run = guarded_by_program.run(journal_dir=tmp_path, prepare_step=program(path, failing))
    assert run.error is not None
    assert (run.status, run.error.kind, RAN) == ("failed", "hook", [])
    ended = guarded_by_program.resume(
        run.id, journal_dir=tmp_path, prepare_step=program(path, OBSERVE)
    )
    assert ended.result == "x: 1"
    assert RAN == [("x", 1)]
