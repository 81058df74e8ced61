"""Showing things: data on stdout, talk on stderr.

Colour only on a terminal, and not with NO_COLOR. Text of users is never markup, and what is shown
in a line stays in that line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from stepwell.core.durations import format_millis
from stepwell.core.records import Millis
from stepwell.shapes import Shape

_SHORT = 60
_STYLES = {
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "SUSPENDED": "cyan",
    "PENDING": "blue",
    "BLOCKED": "bold red",
    "STUCK": "bold red",
}


class Output:
    """Where a command's data goes: the stdout of the moment at which this was made."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._file: TextIO = sys.stdout

    def json(self, shape: Shape) -> None:
        """One line of JSON."""
        print(json.dumps(shape, ensure_ascii=False), file=self._file, flush=True)

    def line(self, text: str) -> None:
        """One line of text, as it is."""
        print(text, file=self._file, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table. No cell is wrapped or cut, so that ids and tokens can be copied."""
        grid = [columns, *rows]
        widths = [max(cell_len(row[n]) for row in grid) for n in range(len(columns))]
        console = self._console()
        for row in grid:
            line = Text()
            for text, width in zip(row, widths, strict=True):
                line += Text(text, style="bold") if row is columns else _cell(text)
                line += Text(" " * (width - cell_len(text) + 2))
            line.rstrip()
            console.print(line, soft_wrap=True)

    def facts(self, facts: Mapping[str, str]) -> None:
        """Names and what they are, one a line; what has more lines goes on below its first."""
        console = self._console()
        width = max(map(len, facts), default=0) + 2
        for name, text in facts.items():
            first, *more = text.split("\n")
            line = Text(name.ljust(width), style="bold") + _cell(first)
            console.print(line, soft_wrap=True)
            for each in more:
                console.print(Text(" " * width + each), soft_wrap=True)

    def _console(self) -> Console:
        return Console(file=self._file, highlight=False, markup=False, emoji=False)


def _cell(text: str) -> Text:
    return Text(text, style=_STYLES.get(text.partition(" ")[0], ""))


def talk(text: str) -> None:
    """Say something that is no data."""
    print(text, file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Text without line breaks and control characters, which could paint over the terminal."""
    return plain(" ".join(text.split()))


def lines(text: str) -> str:
    """Text with its line breaks, and no other control characters."""
    return "\n".join(plain(line) for line in text.splitlines())


def plain(text: str) -> str:
    """Text as it is, but for control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def short(text: str, limit: int = _SHORT) -> str:
    """One line of text, cut with an ellipsis where it is too long."""
    line = one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def compact(value: Any) -> str:
    """A value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False)


def count(number: int, noun: str) -> str:
    """How many there are of something: 1 turn, 2 turns."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def several(names: Iterable[str], limit: int = 8) -> str:
    """Names in one line, of many only the first."""
    every = list(names)
    shown = ", ".join(one_line(name) for name in every[:limit])
    return shown if len(every) <= limit else f"{shown} and {len(every) - limit} more"


def offset(ms: Millis) -> str:
    """How much later something was than a beginning."""
    return f"+{format_millis(ms)}"
