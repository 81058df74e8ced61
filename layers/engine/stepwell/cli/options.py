"""Options that several commands share, and the file that they are about."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from stepwell.adapters.local.environment import DB_VARIABLE, DEFAULT_DB
from stepwell.adapters.local.runtime import LEASE, LocalEngine
from stepwell.cli.failing import BadInput, NotFound
from stepwell.core.durations import to_millis
from stepwell.core.records import Millis


class Command(typer.core.TyperCommand):
    """A command whose help shows flags as what they are, without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` among them."""
        return _bare(super().get_params(ctx))


class Group(typer.core.TyperGroup):
    """The same for a command that has commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` among them."""
        return _bare(super().get_params(ctx))


def _bare(parameters: Sequence[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return list(parameters)


Db = Annotated[
    Path | None,
    typer.Option(
        "--db",
        metavar="PATH",
        help=f"File of the local engine; by default ${DB_VARIABLE}, else {DEFAULT_DB}.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, errors as JSON on stderr.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=200, help="How many to show at most.")]
Cursor = Annotated[
    str | None,
    typer.Option(
        "--cursor", metavar="TEXT", help="Where the list before ended.", show_default=False
    ),
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]


@dataclass(frozen=True, slots=True)
class File:
    """The file of a local engine. `named` says that the command line names it."""

    path: Path
    named: bool

    @classmethod
    def of(cls, db: Path | None) -> File:
        """The file that flag, environment or default names, in this order."""
        if db is not None:
            return cls(db, named=True)
        return cls(Path(os.environ.get(DB_VARIABLE) or DEFAULT_DB), named=False)

    @property
    def flag(self) -> str:
        """What a command that we suggest needs, in order to find the same file."""
        return f" --db {shlex.quote(str(self.path))}" if self.named else ""

    def open(self, lease: Millis = LEASE) -> LocalEngine:
        """The engine on the file, which is made if it is not there.

        From here on the workflows' own code finds the same file through the environment.
        """
        os.environ[DB_VARIABLE] = str(self.path.absolute())
        return LocalEngine.open(self.path, lease=lease)

    def open_existing(self) -> LocalEngine:
        """The engine on the file. Raises `NotFound` if it is not there, and makes none."""
        if not self.path.is_file():
            raise NotFound(
                f"no file {str(self.path)!r}: name one with --db or ${DB_VARIABLE}, "
                "or make it with stepwell run"
            )
        return LocalEngine.open(self.path)


def duration(text: str, option: str) -> Millis:
    """A duration of the command line; 0 needs no unit. Raises `BadInput`."""
    if text.strip() == "0":
        return 0
    try:
        return to_millis(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None
