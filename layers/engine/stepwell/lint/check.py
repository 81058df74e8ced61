"""Checking a module: each node of its workflow code against the rules.

A line that says `# stepwell: ignore[SW101]` is left alone by that rule; without a code, by all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stepwell.errors import StepwellError
from stepwell.lint.finding import Finding
from stepwell.lint.names import AWAITED, Function, Names, names_of
from stepwell.lint.reach import code_of, reachable
from stepwell.lint.rules import METHODS, READS, advice, broken_by_call
from stepwell.lint.unordered import Sets
from stepwell.lint.writes import local_names, shown, writes, writes_from_outside

_IGNORE = re.compile(r"#\s*stepwell:\s*ignore(?:\[([A-Z0-9, ]*)\])?")
#: A node that breaks a rule, the rule's code, and how the code reads.
_Broken = tuple[ast.expr | ast.stmt, str, str]


class Unreadable(StepwellError):
    """A file is no Python that this version can read."""


def check_source(source: str, path: str) -> list[Finding]:
    """What is found in the workflow code of a module, in the order of the text.

    Raises `Unreadable`.
    """
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from None
    names = names_of(tree)
    lines = source.splitlines()
    found: dict[tuple[int, int, str], Finding] = {}
    for workflow in names.workflows:
        for function in reachable(names, workflow):
            for node, code, what in _broken(names, function):
                if _is_ignored(lines, node, code):
                    continue
                place = (node.lineno, node.col_offset + 1, code)
                tip = advice(code, what)
                found.setdefault(place, Finding(path, *place, what, tip, workflow.name))
    return sorted(found.values())


def _is_ignored(lines: list[str], node: ast.expr | ast.stmt, code: str) -> bool:
    for number in {node.lineno, node.end_lineno or node.lineno}:
        said = _IGNORE.search(lines[number - 1])
        if said is not None and (said[1] is None or code in re.split(r"[, ]+", said[1])):
            return True
    return False


def _broken(names: Names, function: Function) -> Iterator[_Broken]:
    code = list(code_of(names, function))
    sets = Sets(names, code)
    bound = local_names(function, code)
    for node in code:
        if isinstance(node, ast.Call):
            yield from _broken_call(names, node, bound, function)
        elif isinstance(node, ast.Attribute | ast.Name):
            yield from _broken_read(names, node)
        elif isinstance(node, ast.Expr) and isinstance(function, ast.AsyncFunctionDef):
            yield from _never_awaited(names, node, function)
        for written in writes(node, names.mutable - bound):
            yield written, "SW109", shown(written)
        for each in sets.gone_through(node):
            yield each, "SW108", ast.unparse(each)
    if isinstance(function, ast.AsyncFunctionDef):
        yield from _def_steps(names, code, function)
    for written in writes_from_outside(names, function, bound):
        yield written, "SW113", shown(written)


def _broken_call(
    names: Names, call: ast.Call, bound: set[str], within: Function
) -> Iterator[_Broken]:
    name = names.dotted(call.func)
    if name is not None and (names.is_imported(call.func) or name not in bound):
        # A bare name that is no import is a builtin, unless the module defines it.
        own = names.function(name, within) is not None
        plain = names.is_imported(call.func) or isinstance(call.func, ast.Name)
        code = broken_by_call(name) if plain and not own else None
        if code is not None:
            yield call, code, f"{ast.unparse(call.func)}()"
            return
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS:
        yield call, METHODS[call.func.attr], f"{ast.unparse(call.func)}()"


def _broken_read(names: Names, node: ast.Attribute | ast.Name) -> Iterator[_Broken]:
    if isinstance(node.ctx, ast.Load) and names.is_imported(node):
        code = READS.get(names.dotted(node) or "")
        if code is not None:
            yield node, code, ast.unparse(node)


def _never_awaited(names: Names, statement: ast.Expr, within: Function) -> Iterator[_Broken]:
    call = statement.value
    if not isinstance(call, ast.Call):
        return
    called = call.func
    if isinstance(called, ast.Attribute) and called.attr == "aio":
        yield call, "SW110", f"{ast.unparse(called)}()"
        return
    known = names.function(called.id, within) if isinstance(called, ast.Name) else None
    if isinstance(known, ast.AsyncFunctionDef) or names.dotted(called) in AWAITED:
        yield call, "SW110", f"{ast.unparse(called)}()"


def _def_steps(names: Names, code: list[ast.AST], within: Function) -> Iterator[_Broken]:
    """Plain calls of `def` steps, which an async workflow refuses."""
    for node in code:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            known = names.function(node.func.id, within)
            if isinstance(known, ast.FunctionDef) and names.is_step(known):
                yield node, "SW111", node.func.id
