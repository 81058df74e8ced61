"""The briefing: a script that waits for a sign-off, with a guard before its steps."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from examples.briefing.script import main
from stepwell.adapters.local.runtime import LocalEngine

ROOT = Path(__file__).parents[2]


def test_it_waits_for_its_sign_off_and_goes_on_in_another_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path)
    run = main(["tea, coffee"], folder)
    assert run.error is not None
    assert (run.error.kind, run.error.message) == ("suspended", "waiting on sign-off of 2 lines")
    told = capsys.readouterr().err
    assert told.count("about to: briefing.gather") == 2
    assert main(["--resume", run.id], folder).status == "suspended"
    assert "gather" not in capsys.readouterr().err, "what was gathered is not gathered again"
    put = ["runs", "inbox", "put", run.id, "approved", "--value", '"Ada"']
    command = [sys.executable, "-m", "stepwell.cli.main", *put, "--db", f"{folder}/stepwell.db"]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    resumed = in_another_process(run.id, folder)
    assert "Which title shall it have?" in resumed.stdout
    assert "about to: briefing.approve" in resumed.stderr, "its guard goes with the run"
    with LocalEngine.open(tmp_path / "stepwell.db") as engine:
        [hook] = asyncio.run(engine.client.list_hooks(run_id=run.id)).items
        asyncio.run(engine.client.resume_hook(hook.token, "On drinks"))
    ended = in_another_process(run.id, folder)
    assert "On drinks: tea: 3 letters; coffee: 6 letters (signed off by Ada)" in ended.stdout
    assert ended.stderr == "", "no step is taken again, and so no guard is asked"


def in_another_process(run: str, folder: str) -> subprocess.CompletedProcess[str]:
    """What resuming it there says."""
    code = f"from examples.briefing.script import main; main(['--resume', {run!r}], {folder!r})"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )


def test_its_guard_lets_nothing_secret_out(tmp_path: Path) -> None:
    run = main(["a secret"], str(tmp_path))
    assert run.error is not None
    assert (run.status, run.error.kind) == ("failed", "hook")
    assert "nobody's business" in run.error.message
