"""What commands say to somebody who does not know what to do now."""

from __future__ import annotations

import pytest

from tests.integration.cli.shell import Shell

SCRIPT = """
from stepwell import Suspend, current, hook, patched, step, workflow

@step
async def first() -> int: return 1

@step
async def second() -> int: return 2

@workflow
async def waits() -> int:
    return await {step}() + await hook("go")

@workflow
async def wants_input() -> int:
    raise Suspend("please")
"""


def written(shell: Shell, step: str) -> None:
    (shell.folder / "hinted.py").write_text(SCRIPT.format(step=step))


def shown(shell: Shell, run_id: str) -> str:
    return shell("runs", "show", run_id).err


def test_a_run_that_waits_says_how_it_is_answered(shell: Shell) -> None:
    written(shell, "first")
    run_id = shell.started("hinted:waits")["run_id"]
    assert shown(shell, run_id) == f"its open hooks: stepwell hooks list --run {run_id}\n"
    assert shell("runs", "pause", run_id).code == 0
    assert f"it goes on with: stepwell runs resume {run_id}\n" in shown(shell, run_id)


def test_a_run_that_wants_input_says_how_it_is_given(shell: Shell) -> None:
    written(shell, "first")
    run_id = shell.started("hinted:wants_input")["run_id"]
    assert f"stepwell runs inbox put {run_id} KEY --value JSON\n" in shown(shell, run_id)


def test_a_blocked_run_says_how_it_is_looked_at_again(shell: Shell) -> None:
    written(shell, "first")
    run = shell.started("hinted:waits")
    written(shell, "second")
    shell.answered(run, 1)
    shell("worker", "hinted", "--until-idle")
    assert f"stepwell runs wake {run['run_id']}\n" in shown(shell, run["run_id"])


def test_a_text_without_quotes_is_told_of_them(shell: Shell) -> None:
    done = shell("hooks", "resume", "--run", "x", "--payload", "Ada L.")
    assert done.err.endswith("""a text has quotes of its own: '"Ada L."'\n""")
    assert "a text has" not in shell("hooks", "resume", "--run", "x", "--payload", "{a: 1}").err


def test_the_folder_of_a_file_is_not_the_file(shell: Shell) -> None:
    assert shell("run", "app:total", "--db", "journal/stepwell.db").code == 0
    done = shell("runs", "list", "--db", "journal")
    assert done.code == 4
    assert "journal/stepwell.db" in done.err


@pytest.mark.parametrize("command", ["run", "worker"])
def test_an_error_of_a_module_is_shown_from_its_own_line_on(shell: Shell, command: str) -> None:
    (shell.folder / "broken.py").write_text("def f():\n    raise ValueError('no')\nf()\n")
    done = shell(command, "broken:x")
    assert done.code == 1
    files = [line.split('"')[1] for line in done.err.splitlines() if line.startswith("  File")]
    assert files == [str(shell.folder / "broken.py")] * 2
    assert "ValueError: no\nError: module 'broken' cannot be imported" in done.err
    (shell.folder / "broken.py").write_text("def x(:\n")
    assert "load.py" not in shell(command, "broken:x").err


def test_a_worker_reports_nothing_that_a_fork_has_copied(shell: Shell) -> None:
    run_id = shell("run", "app:fails", "--json").json["run_id"]
    assert shell("runs", "retry", run_id).code == 0
    assert "failed" in shell("worker", "app", "--until-idle").err
    assert shell("runs", "fork", run_id).code == 0
    told = shell("worker", "app", "--until-idle").err
    assert "it was the last one" not in told
    assert told.count(": failed: ") == 1, "that of the fork itself"
