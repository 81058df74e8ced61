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
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STEPWELL")}
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
