"""`stepwell check` in a user's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwell.cli.main import run_command

ROOT = Path(__file__).parents[3]
BAD = (
    "import time\nfrom stepwell import workflow\n@workflow\nasync def flow():\n    time.sleep(1)\n"
)
GOOD = "from stepwell import workflow\n@workflow\nasync def flow():\n    return 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('nothing is imported')\n")
    (package / "bad.py").write_text(BAD)
    (package / "good.py").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize("name", ["shop", "shop.bad", "shop/bad.py", "./shop"])
def test_modules_packages_files_and_folders_are_looked_at(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["check", name]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("shop/bad.py:5:5: SW104 time.sleep(): ")
    assert out.rstrip().endswith("[flow]")
    assert err.startswith("1 finding in ")


def test_without_findings_it_succeeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", "shop.good"]) == 0
    assert capsys.readouterr() == ("", "0 findings in 1 file\n")


def test_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", "shop", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == 3
    [finding] = told["findings"]
    assert {**finding, "advice": ""} == {
        "path": "shop/bad.py",
        "line": 5,
        "column": 5,
        "code": "SW104",
        "what": "time.sleep()",
        "advice": "",
        "workflow": "flow",
    }


@pytest.mark.parametrize("name", ["nothing", "shop.nothing", "shop/nothing.py", "a b", "..."])
def test_what_is_not_there_is_said(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["check", name]) == 2
    assert name in capsys.readouterr().err


def test_the_examples_are_clean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run_command(["check", "examples", "functions", "benchmarks"]) == 0
    assert capsys.readouterr().out == ""
