"""`stepwell replay`: exported runs against the code of the working tree."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stepwell.authoring.registry import registry
from stepwell.cli.failing import BadInput, ExitCode
from stepwell.cli.history import history_files, read_history
from stepwell.cli.load import load_for_worker
from stepwell.cli.options import AsJson
from stepwell.cli.render import Output, count, plain, talk
from stepwell.core.lifecycle import CorruptHistory
from stepwell.engine.archive import load_archive
from stepwell.testing.checks import Checked, check_archive


def replay(
    *,
    history: Annotated[
        list[Path],
        typer.Option(
            "--history",
            metavar="PATH",
            help="A file of an exported run, or a folder of them. May be repeated.",
        ),
    ],
    module: Annotated[
        list[str],
        typer.Option(
            "--module", metavar="MODULE", help="Where the workflows are. May be repeated."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Replay exported runs against the code here, and say which of them it would not go on with.

    Nothing is performed. The exit code is 1 if a run would be blocked, cannot be read, has no
    workflow here, or has ended while the code asks for more.
    """
    out = Output(as_json=as_json)
    with redirect_stdout(sys.stderr):
        for name in module:
            load_for_worker(name)
    files = [file for path in history for file in history_files(path)]
    if not files:
        raise BadInput("no history was given")
    with redirect_stdout(sys.stderr):
        checked = {file: _checked(file) for file in files}
    if as_json:
        shapes = [{"path": str(file), **asdict(each)} for file, each in checked.items()]
        out.json({"histories": shapes})
    else:
        for file, each in checked.items():
            _show(out, file, each)
    unfit = sum(not each.fits for each in checked.values())
    told = f"{unfit} of them {'does' if unfit == 1 else 'do'} not fit" if unfit else "all fit"
    talk(f"{count(len(checked), 'run')} replayed: {told}")
    if unfit:
        raise typer.Exit(ExitCode.FAILURE)


def _checked(file: Path) -> Checked:
    try:
        archive = load_archive(read_history(file))
        started = archive.events[0]
        return check_archive(archive, registry.workflow(getattr(started, "workflow", "")))
    except (ValueError, CorruptHistory) as error:
        return Checked("unreadable", reason=f"{error}")


def _show(out: Output, file: Path, checked: Checked) -> None:
    note = f" ({checked.note})" if checked.note else ""
    word = checked.verdict.upper() if not checked.fits else checked.verdict
    out.line(f"{file}: {word} {checked.workflow}{note}".rstrip())
    for line in checked.reason.splitlines():
        out.line(f"    {plain(line)}")
