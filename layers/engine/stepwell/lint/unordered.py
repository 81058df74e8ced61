"""Sets in workflow code: where one is gone through, the order is that of this process.

But for those of asyncio tasks, such as `asyncio.wait` gives: these have one order on every replay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from stepwell.lint.names import Names

_MAKERS = frozenset({"set", "frozenset"})
#: What goes through its argument and keeps the order.
_KEEPERS = frozenset({"list", "tuple", "enumerate", "iter", "next", "map", "zip", "filter"})
_COMBINED = (ast.BitAnd, ast.BitOr, ast.Sub, ast.BitXor)


class Sets:
    """The local names of a function that are bound to sets, and nothing else."""

    def __init__(self, names: Names, code: Iterable[ast.AST]) -> None:
        self._names = names
        self._local: set[str] = set()
        others: set[str] = set()
        for node in code:
            for name, value in _bindings(node):
                (self._local if self._is_set(value) else others).add(name)
        self._local -= others

    def gone_through(self, node: ast.AST) -> Iterator[ast.expr]:
        """The sets that a node goes through in their order."""
        for each in _iterated(self._names, node):
            if self._is_set(each):
                yield each

    def _is_set(self, node: ast.expr | None) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Name):
            return node.id in self._local
        if isinstance(node, ast.BinOp) and isinstance(node.op, _COMBINED):
            return self._is_set(node.left) or self._is_set(node.right)
        return isinstance(node, ast.Call) and self._names.dotted(node.func) in _MAKERS


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Names that a node binds, each with what to."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple):
                yield from (
                    (each.id, node.value) for each in target.elts if isinstance(each, ast.Name)
                )
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.For | ast.AsyncFor) and isinstance(node.target, ast.Name):
        yield node.target.id, None


def _iterated(names: Names, node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.For):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
        yield from (each.iter for each in node.generators)
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call):
        name = names.dotted(node.func) or ""
        if name in _KEEPERS:
            yield from node.args
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "pop"):
            yield from node.args if node.func.attr == "join" else [node.func.value]
