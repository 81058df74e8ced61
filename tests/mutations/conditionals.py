"""Every conditional expression in the adapters, found in their sources.

On AWS: `.exists()`, `.does_not_exist()`, comparisons with an attribute of an item, and S3's
`IfNoneMatch`. In SQL: each `ON CONFLICT` clause, and each term of each `WHERE`, apart from those
that only name the row by its key.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutations.mutation import PACKAGE, line_starts

#: The columns of each table that name a row.
_KEYS = {
    "runs": {"run_id"},
    "commits": {"run_id", "first"},
    "hooks": {"run_id", "hook_id"},
    "inbox": {"run_id", "entry_id"},
    "steps": {"run_id", "step"},
    "checkpoints": {"run_id", "step"},
    "map_shards": {"run_id", "map", "map_order", "shard"},
    "map_items": {"run_id", "map", "map_order", "shard", "member"},
    "chunks": {"run_id", "step", "position"},
    "blobs": {"sha256"},
    "definitions": {"workflow", "digest"},
    "current_definitions": {"workflow"},
    "timers": {"run_id", "wait_id", "arm"},
    "messages": {"place"},
    "step_messages": {"place"},
    "dead_letters": {"message_id"},
    "step_dead_letters": {"message_id"},
    "stream_heads": {"stream", "stream_run"},
    "signal_batches": {"stream", "stream_run", "first"},
    "signal_messages": {"message_id"},
    "signal_holds": {"owner"},
    "signal_dead_letters": {"message_id"},
    "signal_timers": {"owner", "signal_id"},
}
#: What a list holds decides nothing, and has its own contract.
_LISTS = ("adapters/local/lists.py",)
_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b")
_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+(\w+)")
_CONFLICT = re.compile(r"ON CONFLICT\b[^\n]*")
_WHERE = re.compile(
    r"\bWHERE\b(?P<terms>.*?)(?=\bORDER BY\b|\bRETURNING\b|\bLIMIT\b|\bWHERE\b|\"|\)\s*THEN|$)",
    re.DOTALL,
)
#: Terms that stand in a text of their own.
_TERMS = re.compile(r"(?P<terms>\s*\w+ = \? AND .*)", re.DOTALL)
_NAMES_ROW = re.compile(r"(\w+) = \?")


@dataclass(frozen=True, slots=True)
class Conditional:
    """A conditional expression: its module, its text, and where in the source it stands."""

    module: str
    text: str
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.module}: {' '.join(self.text.split())}"


def conditionals() -> Iterator[Conditional]:
    """All of them."""
    for adapter in ("aws", "local"):
        for path in sorted((PACKAGE / "adapters" / adapter).rglob("*.py")):
            module = path.relative_to(PACKAGE).as_posix()
            if module in _LISTS:
                continue
            yield from conditionals_of(module, path.read_text(encoding="utf-8"))


def conditionals_of(module: str, source: str) -> Iterator[Conditional]:
    """Those of one module."""
    starts = line_starts(source)
    lines = source.splitlines(keepends=True)
    tree = ast.parse(source)
    paths = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_path(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def found(node: ast.expr | ast.keyword) -> Conditional:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = place(node.lineno, node.col_offset)
        end = place(node.end_lineno, node.end_col_offset)
        return Conditional(module, source[begin:end], begin, end)

    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= set(ast.walk(node)) - {node}
        if node in inside:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("exists", "does_not_exist"):
                yield found(node)
        elif _is_comparison(node, paths) or _is_if_none_match(node):
            assert isinstance(node, ast.Compare | ast.keyword)
            yield found(node)
        elif isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            yield from _of_sql(found(node))


def _is_comparison(node: ast.AST, paths: set[str]) -> bool:
    return isinstance(node, ast.Compare) and _is_attribute(node.left, paths)


def _is_if_none_match(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "IfNoneMatch"


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Path"


def _is_attribute(node: ast.expr, paths: set[str]) -> bool:
    """Whether it stands for an attribute of an item: `RunItem.last_event`, or a path."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id.endswith("Item")
    return _is_path(node) or (isinstance(node, ast.Name) and node.id in paths)


def _of_sql(literal: Conditional) -> Iterator[Conditional]:
    text = re.sub(r"^[fr]*(\"\"\"|\"|')", lambda quote: " " * len(quote[0]), literal.text)
    # A statement may be made of pieces: those behind the first begin in its middle.
    piece = re.match(r"\s*(ON CONFLICT|WHERE)\b", text)
    if not _STATEMENT.match(text) and not piece and not _TERMS.fullmatch(text):
        return
    keys = {key for table in _TABLE.findall(text) for key in _KEYS.get(table, ())}
    for clause in _CONFLICT.finditer(text):
        yield _part(literal, clause.start(), clause.end())
    for where in (_WHERE if "WHERE" in text else _TERMS).finditer(text):
        for term in _terms(where["terms"]):
            begin = where.start("terms") + term[0]
            end = where.start("terms") + term[1]
            named = _NAMES_ROW.fullmatch(text[begin:end])
            if named is None or named[1] not in keys:
                yield _part(literal, begin, end)


def _part(literal: Conditional, begin: int, end: int) -> Conditional:
    text = literal.text[begin:end].rstrip("\"' \n")
    return Conditional(
        literal.module, text, literal.begin + begin, literal.begin + begin + len(text)
    )


def _terms(text: str) -> Iterator[tuple[int, int]]:
    """Where each term of a conjunction stands; what is in parentheses is one."""
    depth, begin = 0, 0
    for match in re.finditer(r"[()]|\bAND\b|$", text):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth -= 1
        elif depth <= 0:
            piece = text[begin : match.start()]
            stripped = piece.strip("\n \"'")
            if stripped:
                at = begin + piece.index(stripped)
                yield at, at + len(stripped)
            begin = match.end()
