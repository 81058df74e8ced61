"""What the README shows runs, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None, name
    return found.group(1)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(example("quickstart"), encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(example("test"), encoding="utf-8")
    (tmp_path / "desk.py").write_text(example("client"), encoding="utf-8")
    (tmp_path / "desk_stream.py").write_text(example("stream"), encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STEPWELL")} | more
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_test_of_the_readme_passes(shop: Path) -> None:
    ended = run(shop, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout


#: Code of a user's own that drives `desk.py`, with a worker between its calls.
DRIVER = """
import asyncio, subprocess, sys
import desk
from shop import Review

def work():
    subprocess.run([sys.executable, "-m", "stepwell.cli.main", "worker", "shop", "--until-idle"],
                   check=True)

run_id = asyncio.run(desk.ask("o-1", 40))
assert asyncio.run(desk.ask("o-1", 40)) == run_id
work()
asyncio.run(desk.answer(run_id, Review(approved=False)))
work()
assert asyncio.run(desk.outcome("o-1", 40)) == "rejected"
assert asyncio.run(desk.said(run_id, "review_refund:1")) == []
"""


def test_the_client_of_the_readme_carries_a_refund_through(shop: Path) -> None:
    ended = run(shop, "-c", DRIVER, STEPWELL_DB=str(shop / "runs.db"))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_type_checker_takes_the_examples_of_the_readme(shop: Path, tmp_path: Path) -> None:
    checked = run(
        shop, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"),
        "shop.py", "desk.py", "desk_stream.py", "test_shop.py", MYPYPATH=str(ROOT / "layers" / "engine"),
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_commands_of_the_readme_carry_a_run_to_its_sleep(shop: Path) -> None:
    stepwell = ("-m", "stepwell.cli.main")
    given = '{"order": "o-1", "amount": 40}'
    started = run(shop, *stepwell, "run", "shop:refund", "--input", given)
    assert started.returncode == 6, started.stdout + started.stderr  # it waits for an answer
    listed = run(shop, *stepwell, "hooks", "list", "--json")
    token = re.search(r'"token": ?"([^"]+)"', listed.stdout)
    run_id = re.search(r'"run_id": ?"([^"]+)"', listed.stdout)
    assert token is not None, listed.stdout + listed.stderr
    assert run_id is not None
    answered = run(
        shop, *stepwell, "hooks", "resume", token.group(1), "--payload", '{"approved": true}'
    )
    assert answered.returncode == 0, answered.stderr
    worked = run(shop, *stepwell, "worker", "shop", "--until-idle")
    assert worked.returncode == 0, worked.stderr
    history = run(shop, *stepwell, "runs", "history", run_id.group(1))
    assert history.returncode == 0, history.stderr
    assert "review_refund:1" in history.stdout
    assert "sleep" in history.stdout


def test_the_stream_of_the_readme_waits_for_somebody_who_calls(shop: Path) -> None:
    stepwell = ("-m", "stepwell.cli.main")
    streams = (*stepwell, "streams")
    named = ("--input", '{"customer": "Ada"}', "--idempotency-key", "ada")
    started = run(shop, *stepwell, "run", "desk_stream:complaints", *named)
    assert "SUSPENDED" in started.stdout, started.stdout + started.stderr
    for what in ("cold tea", "no tea", "tea"):
        said = f'{{"what": "{what}"}}'
        sent = run(shop, *streams, "emit", "complaints", "complained", said, "--run", "ada")
        assert sent.returncode == 0, sent.stderr
    worked = run(shop, *stepwell, "worker", "desk_stream", "--until-idle")
    assert worked.returncode == 0, worked.stderr
    shown = run(shop, *streams, "show", "complaints", "--run", "ada")
    assert "suspended" in shown.stdout, shown.stdout + shown.stderr
    assert "somebody has to call" in shown.stdout
