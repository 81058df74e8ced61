"""A mutation: one condition of the package taken away or weakened, and the tests that miss it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "layers/engine/stepwell"


class Drifted(Exception):
    """The text of an entry does not stand in the source as the entry says: update the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """`was` becomes `becomes` in a module, and then each of the tests `killed_by` has to fail.

    `was` stands exactly once in the module, or in the function `within` it, whose name is
    qualified by its class. `hangs` says that the tests may never end instead of failing.
    """

    id: str
    module: str
    was: str
    becomes: str
    protects: str
    killed_by: tuple[str, ...]
    within: str | None = None
    hangs: bool = False

    @property
    def path(self) -> Path:
        """The file of the module."""
        return PACKAGE / self.module

    @property
    def module_name(self) -> str:
        """The module as it is imported."""
        return ".".join(("stepwell", *Path(self.module).with_suffix("").parts))

    def span(self, source: str) -> tuple[int, int]:
        """Where `was` stands in the source. Raises `Drifted`."""
        begin, end = 0, len(source)
        where = self.module
        if self.within is not None:
            where = f"{self.within} of {self.module}"
            found = [span for name, span in functions(source) if name == self.within]
            if len(found) != 1:
                raise Drifted(f"entry {self.id!r}: there are {len(found)} functions {where}")
            begin, end = found[0]
        times = source.count(self.was, begin, end)
        if times != 1:
            raise Drifted(
                f"entry {self.id!r}: its text stands {times} times in {where}, it has to be once; "
                f"update the entry:\n{self.was}"
            )
        at = source.index(self.was, begin, end)
        return at, at + len(self.was)

    def apply(self, source: str) -> str:
        """The source with the mutation. Raises `Drifted`."""
        begin, end = self.span(source)
        return source[:begin] + self.becomes + source[end:]


def functions(source: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The functions of a module by qualified name, and where in the source each stands."""
    starts = line_starts(source)

    def walk(node: ast.AST, outer: str) -> Iterator[tuple[str, tuple[int, int]]]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = f"{outer}{child.name}"
            if not isinstance(child, ast.ClassDef):
                assert child.end_lineno is not None
                yield name, (starts[child.lineno - 1], starts[child.end_lineno])
            yield from walk(child, f"{name}.")

    yield from walk(ast.parse(source), "")


def line_starts(source: str) -> list[int]:
    """Where each line begins, and where the last one ends."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts
