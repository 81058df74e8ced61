"""Runs as files: exported, taken in again, and replayed against other code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.authoring.registry import registry
from stepwell.cli.main import run_command

Run = Callable[..., tuple[int, str, str]]

OLD = """
from stepwell import hook, step, workflow

@step(name="shop.charge")
async def charge(n: int) -> int:
    return n

@workflow(name="shop.order", version="1")
async def order(n: int, text: str = "") -> int:
    found = await charge(n)
    await hook("go")
    return found + await charge(n + 1)
"""
MORE = OLD.replace("return found +", "await hook('more')\n    return found +")
OTHER = OLD.replace('name="shop.charge"', 'name="shop.bill"')
NEWER = OLD.replace('version="1"', 'version="2"')
FAILING = OLD.replace("return found +", "raise ValueError(")
FAILING = FAILING.replace("await charge(n + 1)", "await charge(n + 1))")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPWELL_DB", raising=False)
    return tmp_path


@pytest.fixture
def cli(here: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with registry.isolated():

        def call(*arguments: str) -> tuple[int, str, str]:
            code = run_command(arguments)
            return (code, *capsys.readouterr())

        yield call


def write(here: Path, name: str, text: str) -> str:
    (here / f"{name}.py").write_text(text)
    return name


def runs(here: Path, cli: Run) -> dict[str, str]:
    """A run that waits and one that has ended."""
    module = write(here, f"old_{here.name}", OLD)
    found = {}
    for name in ("waiting", "ended"):
        given = json.dumps({"n": 1, "text": "x" * 20_000})
        code, out, err = cli(
            "run", f"{module}:order", "--input", given, "--wait", "0s", "--json", "--db", "a.db"
        )
        assert code == 6, err
        told = json.loads(out)
        found[name] = told["run_id"]
        if name == "ended":
            token = told["hooks"][0]["token"]
            assert cli("hooks", "resume", token, "--db", "a.db")[0] == 0
            assert cli("worker", module, "--until-idle", "--db", "a.db")[0] == 0
    return found


def exported(here: Path, cli: Run) -> dict[str, str]:
    """Both of them in a folder."""
    found = runs(here, cli)
    code, out, err = cli("history", "export", *found.values(), "-o", "kept", "--db", "a.db")
    assert code == 0, err
    assert all(f"{run}.json" in out for run in found.values())
    return found


def show(cli: Run, run: str, db: str) -> Any:
    code, out, err = cli("runs", "show", run, "--json", "--db", db)
    assert code == 0, err
    return json.loads(out)


def test_a_run_comes_back_as_it_was_and_is_paused_if_it_goes_on(here: Path, cli: Run) -> None:
    found = exported(here, cli)
    code, out, err = cli("history", "import", "kept", "--json", "--db", "b.db")
    assert code == 0, err
    assert sorted(json.loads(out)["imported"]) == sorted(found.values())
    before, after = (show(cli, found["ended"], db) for db in ("a.db", "b.db"))
    assert after == before
    before, after = (show(cli, found["waiting"], db) for db in ("a.db", "b.db"))
    assert after["attention"]["kind"] == "PAUSED"
    assert {**after, "attention": None} == before
    for run in found.values():
        told = [cli("runs", "history", run, "--json", "--db", db)[1] for db in ("a.db", "b.db")]
        assert told[0] == told[1]


def test_importing_twice_is_no_error_and_overwrites_nothing(here: Path, cli: Run) -> None:
    found = exported(here, cli)
    assert cli("history", "import", "kept", "--db", "b.db")[0] == 0
    assert cli("history", "import", "kept", "--db", "b.db")[0] == 0
    code, _, err = cli("history", "import", "kept", "--db", "a.db")
    assert code == 1
    assert "is there already" in err
    assert show(cli, found["waiting"], "a.db")["attention"] is None


def test_one_run_goes_to_stdout_or_to_a_file(here: Path, cli: Run) -> None:
    run = runs(here, cli)["waiting"]
    code, out, _ = cli("history", "export", run, "--db", "a.db")
    assert code == 0
    assert json.loads(out)["format"] == 2
    assert cli("history", "export", run, "-o", "deep/one.json", "--db", "a.db")[0] == 0
    assert (here / "deep" / "one.json").read_text() == out
    assert cli("history", "export", run, "-o", "folder/", "--db", "a.db")[0] == 0
    assert (here / "folder" / f"{run}.json").read_text() == out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("export", "nobody", "--db", "a.db"), "not found"),
        (("export", "a", "b", "--db", "a.db"), "--output"),
        (("import", "nothing", "--db", "b.db"), "no file or folder"),
        (("import", "old.py", "--db", "b.db"), "no exported run"),
        (("import", "empty", "--db", "b.db"), "no *.json"),
        (("import", "first.json", "--db", "b.db"), "history alone"),
    ],
)
def test_what_cannot_be_done_is_said(
    here: Path, cli: Run, arguments: tuple[str, ...], told: str
) -> None:
    runs(here, cli)
    (here / "empty").mkdir()
    (here / "old.py").write_text("no json")
    started = {"at": 1, "workflow": "w", "version": "1", "input": "{}", "seed": "s"}
    first = {"format": 1, "run_id": "r", "events": [{**started, "type": "RunStarted"}]}
    (here / "first.json").write_text(json.dumps(first))
    code, _, err = cli("history", *arguments)
    assert code != 0
    assert told in err


def replayed(here: Path, cli: Run, code: str, *more: str) -> tuple[int, dict[str, Any]]:
    """What a replay with other code says of both, by run."""
    module = write(here, f"new_{here.name}_{len(list(here.glob('new_*')))}", code)
    registry._workflows[-1].clear()  # another process, which has imported nothing yet
    registry._steps[-1].clear()
    with registry.isolated():
        status, out, err = cli("replay", "--history", "kept", "--module", module, "--json", *more)
    assert out, err
    return status, {each["run_id"]: each for each in json.loads(out)["histories"]}


@pytest.mark.parametrize(
    ("code", "status", "waiting", "ended"),
    [
        (OLD, 0, "fits", "fits"),
        (NEWER, 0, "fits", "fits"),
        (FAILING, 0, "fits", "fits"),
        (MORE, 1, "fits", "blocked"),
        (OTHER, 1, "blocked", "blocked"),
        ("", 1, "unknown", "unknown"),
    ],
)
def test_a_replay_says_which_runs_fit(
    here: Path, cli: Run, code: str, status: int, waiting: str, ended: str
) -> None:
    found = exported(here, cli)
    told, verdicts = replayed(here, cli, code)
    assert verdicts[found["waiting"]]["verdict"] == waiting
    assert verdicts[found["ended"]]["verdict"] == ended
    assert told == status


def test_a_replay_says_what_does_not_fit_and_what_only_differs(here: Path, cli: Run) -> None:
    found = exported(here, cli)
    _, verdicts = replayed(here, cli, OTHER)
    reason = verdicts[found["waiting"]]["reason"]
    assert "shop.charge:1" in reason
    assert "shop.bill:1" in reason
    _, verdicts = replayed(here, cli, NEWER)
    assert verdicts[found["ended"]]["note"] == "recorded by version 1, this is 2"
    _, verdicts = replayed(here, cli, FAILING)
    assert "this code raises ValueError" in verdicts[found["ended"]]["note"]


def test_code_that_asks_for_more_at_the_end_of_an_ended_run_is_told(here: Path, cli: Run) -> None:
    found = exported(here, cli)
    code = OLD.replace("return found + await charge(n + 1)", "found += await charge(n + 1)")
    told, verdicts = replayed(here, cli, code + "    await hook('more')\n    return found\n")
    assert told == 1
    assert verdicts[found["ended"]]["verdict"] == "new"
    assert "more:1" in verdicts[found["ended"]]["reason"]
    assert verdicts[found["waiting"]]["verdict"] == "fits"


def test_files_that_are_none_are_told_and_the_others_replayed(here: Path, cli: Run) -> None:
    exported(here, cli)
    for name, text in {"a": "{", "b": "[]", "c": '{"format": 9}', "d": '{"format": 2}'}.items():
        (here / "kept" / f"{name}.json").write_text(text)
    module = write(here, f"new_{here.name}", OLD)
    with registry.isolated():
        code, out, err = cli("replay", "--history", "kept", "--module", module)
    assert code == 1
    assert out.count("UNREADABLE") == 4
    assert out.count(": fits shop.order") == 2
    assert "6 runs replayed: 4 of them do not fit" in err
