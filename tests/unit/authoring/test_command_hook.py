"""`CommandHook`: a program that is spoken to in JSON, and is not let do as it likes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import CommandFailed, CommandHook

PAYLOAD = {"type": "pre_step", "args": ["tea é"], "kwargs": {}}


def python(code: str, *more: str, **options: Any) -> CommandHook:
    """A hook that runs a piece of Python, which takes a moment to begin."""
    return CommandHook(
        [sys.executable, "-I", "-S", "-c", code, *more], **{"timeout": 20, **options}
    )


def test_it_gets_the_payload_and_its_answer_is_taken() -> None:
    code = (
        "import sys, json; print(json.dumps({'power': 'replace', 'result': json.load(sys.stdin)}))"
    )
    assert python(code)(PAYLOAD) == {"power": "replace", "result": PAYLOAD}


def test_there_is_no_shell() -> None:
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    assert python(code, "$HOME; echo", "*")(PAYLOAD) == ["$HOME; echo", "*"]


def test_it_sees_only_the_variables_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s")
    monkeypatch.setenv("NAMED", "n")
    code = "import os, json; print(json.dumps([os.environ.get(n) for n in ('SECRET', 'NAMED')]))"
    assert python(code, env=["NAMED", "ABSENT"])(PAYLOAD) == [None, "n"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import sys; sys.exit('no idea')", "ended with 1; on its standard error: no idea"),
        ("pass", "wrote nothing"),
        ("print('{')", "wrote no JSON"),
        ("print('[' * 60_000)", "wrote no JSON"),
        ("import os; os.kill(os.getpid(), 9)", "ended with -9"),
    ],
)
def test_what_is_no_answer_is_an_error(code: str, told: str) -> None:
    with pytest.raises(CommandFailed, match=told):
        python(code)(PAYLOAD)


def test_an_endless_writer_is_killed_long_before_its_time() -> None:
    code = "import sys\nwhile True: sys.stdout.write('x' * 4096)"
    with pytest.raises(CommandFailed, match="more than 65,536 bytes"):
        python(code)(PAYLOAD)


def test_an_answer_of_64_kib_is_taken() -> None:
    code = "print('\"' + 'x' * (65536 - 3) + '\"')"
    assert len(python(code)(PAYLOAD)) == 65536 - 3


def test_it_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Its child holds the pipe open for as long as it lives.
    code = (
        "import subprocess, sys\n"
        f"subprocess.Popen(['sleep', '60'], stdin=open({str(pipe)!r}, 'w'))\n"
        "while True: sys.stdout.write('x' * 4096)"
    )
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(CommandFailed, match="was killed"):
            python(code, env=["PATH"])(PAYLOAD)
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b"", "nobody holds the pipe any more"
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "import os, time; os.close(1); os.close(2); os.close(0); time.sleep(60)",
    ],
)
def test_one_that_takes_too_long_is_killed(code: str) -> None:
    with pytest.raises(CommandFailed, match=r"took longer than 0\.2 s"):
        python(code, timeout="200ms")(PAYLOAD)


@pytest.mark.parametrize("held", ["", ">/dev/null", "2>/dev/null"])
def test_what_it_has_started_holds_nothing_up_and_is_killed(held: str, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    script = f"sleep 60 {held} 3>{alive} & echo '[1]'"
    try:
        assert CommandHook(["sh", "-c", script], timeout="30s")(PAYLOAD) == [1]
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b"", "nobody holds the pipe any more"
    finally:
        os.close(reader)


def test_one_that_does_not_read_is_none_the_worse() -> None:
    large = {"args": ["x" * 200_000]}
    assert python("import os; os.close(0); print(1)")(large) == 1


def test_a_payload_has_a_limit() -> None:
    with pytest.raises(CommandFailed, match="the limit is 262,144"):
        python("print(1)")({"args": ["x" * 262_144]})


def test_an_unknown_program_is_an_error() -> None:
    with pytest.raises(CommandFailed, match="cannot be run"):
        CommandHook(["/nowhere/at/all"])(PAYLOAD)


def test_of_its_standard_error_the_end_is_told() -> None:
    code = "import sys; sys.stderr.write('a' * 100_000 + 'the end'); sys.exit(3)"
    with pytest.raises(CommandFailed, match=r"ended with 3.*the end$") as raised:
        python(code)(PAYLOAD)
    assert len(str(raised.value)) < 3_000


@pytest.mark.parametrize("argv", [[], "ls", ["a", ""], ["a", 3], ["a\0"], ["a"] * 17, ["a" * 9000]])
def test_arguments_are_looked_at_when_it_is_made(argv: Any) -> None:
    with pytest.raises(ValueError, match="CommandHook"):
        CommandHook(argv)


@pytest.mark.parametrize("timeout", [0, -1, 31, "0ms", True, "soon"])
def test_so_is_its_time(timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"timeout|duration"):
        CommandHook(["ls"], timeout=timeout)


@pytest.mark.parametrize("env", ["PATH", [""], [3]])
def test_and_its_environment(env: Any) -> None:
    with pytest.raises(ValueError, match="names of variables"):
        CommandHook(["ls"], env=env)


def test_its_name_tells_what_it_runs() -> None:
    assert repr(CommandHook(["ls", "-l"])) == "CommandHook(['ls', '-l'])"
    assert json.dumps(CommandHook(["ls"]).argv) == '["ls"]'
