"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from stepwell.cli.failing import BadInput
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


AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, errors as JSON on stderr.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=200, help="How many to show at most.")]
Cursor = Annotated[
    str | None,
    typer.Option(
        "--cursor", metavar="TEXT", help="Where the list before ended.", show_default=False
    ),
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]


def duration(text: str, option: str) -> Millis:
    """A duration of the command line; 0 needs no unit. Raises `BadInput`."""
    if text.strip() == "0":
        return 0
    try:
        return to_millis(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None
