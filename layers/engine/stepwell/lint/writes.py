"""Writing to variables of others: of the module, and from steps of the workflow around them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set

from stepwell.lint.names import Function, Names
from stepwell.lint.reach import outside

#: Methods that change what they are called on.
_CHANGING = frozenset(
    (
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "setdefault",
        "sort",
        "update",
    )
)


def local_names(function: Function | ast.Lambda, code: Iterable[ast.AST]) -> set[str]:
    """Names that are the function's own: these hide what has the same name outside."""
    every = function.args
    given = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    bound = {each.arg for each in given if each is not None}
    shared: set[str] = set()
    for node in code:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            shared.update(node.names)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return bound - shared


def writes(node: ast.AST, shared: Set[str]) -> Iterator[ast.expr | ast.stmt]:
    """The node, if it declares a variable of the module for writing, or changes a shared one."""
    if isinstance(node, ast.Global) or (_changed(node, shared) and isinstance(node, ast.expr)):
        yield node


def writes_from_outside(
    names: Names, function: Function, bound: Set[str]
) -> Iterator[ast.expr | ast.stmt]:
    """Where a body that runs outside of the replay changes variables of workflow code around it."""
    for body in outside(names, function):
        code = list(ast.walk(body))
        of_workflow = bound - local_names(body, code)
        for node in code:
            if isinstance(node, ast.Nonlocal):
                if not bound.isdisjoint(node.names):
                    yield node
            elif isinstance(node, ast.expr) and _changed(node, of_workflow):
                yield node


def shown(node: ast.expr | ast.stmt) -> str:
    """How a write reads."""
    if isinstance(node, ast.Call):
        return f"{ast.unparse(node.func)}()"
    return ast.unparse(node)


def _changed(node: ast.AST, shared: Set[str]) -> bool:
    if isinstance(node, ast.Subscript | ast.Attribute):
        return not isinstance(node.ctx, ast.Load) and _root(node.value) in shared
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _CHANGING and _root(node.func.value) in shared
    return False


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
