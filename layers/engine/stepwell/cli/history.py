"""`stepwell history`: runs as files, out of a deployment and into one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from stepwell.cli.failing import BadInput
from stepwell.cli.options import AsJson, Command, Group
from stepwell.cli.render import Output, count, talk
from stepwell.cli.target import Target, on_target

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Runs as files: to look at, to replay, to keep."
)


@app.command(cls=Command)
@on_target
def export(
    target: Target,
    *,
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A file, or a folder: for several runs, or with / at its end. Without it, one run "
            "goes to stdout.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write runs to files: header, history and hooks, with all values in place."""
    out = Output(as_json=as_json)
    if to is None and (len(runs) > 1 or as_json):
        raise BadInput("name a folder for several runs, or a file, with --output")
    with target.open_existing() as opened:
        texts = {run: asyncio.run(opened.client.export(run)) for run in runs}
    if to is None:
        out.line(texts[runs[0]].rstrip("\n"))
        return
    folder = len(runs) > 1 or to.endswith("/") or Path(to).is_dir()
    written = {run: Path(to, f"{run}.json") if folder else Path(to) for run in texts}
    for run, path in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[run], encoding="utf-8")
    if as_json:
        files = [{"run_id": run, "path": str(path)} for run, path in written.items()]
        out.json({"exported": files})
    else:
        for run, path in written.items():
            out.line(f"run {run}: {path}")


@app.command("import", cls=Command)
@on_target
def import_(
    target: Target,
    *,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files of runs, or folders of them.")
    ],
    as_json: AsJson = False,
) -> None:
    """Take runs from files into a local database. What is there is not overwritten.

    A run that has not ended is paused there, so that nothing of it is done a second time.
    """
    out = Output(as_json=as_json)
    if not target.is_local:
        raise BadInput("runs are imported into a local database only: leave out --stack")
    files = [file for path in paths for file in history_files(path)]
    taken = []
    with target.open() as opened:
        for file in files:
            try:
                taken.append(asyncio.run(opened.client.import_run(read_history(file))))
            except ValueError as error:
                raise BadInput(f"{file} is no exported run: {error}") from None
    if as_json:
        out.json({"imported": taken})
    else:
        for run in taken:
            out.line(f"run {run}: imported")
        talk(count(len(taken), "run"))


def history_files(path: Path) -> Iterator[Path]:
    """A file, or the files of a folder and those below it, in order. Raises `BadInput`."""
    if path.is_dir():
        found = sorted(path.rglob("*.json"))
        if not found:
            raise BadInput(f"no *.json in {str(path)!r}")
        yield from found
    elif path.is_file():
        yield path
    else:
        raise BadInput(f"no file or folder {str(path)!r}")


def read_history(file: Path) -> str:
    """The text of a file. Raises `BadInput`."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
