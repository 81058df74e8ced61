"""What workflow code is: the bodies of workflows, and functions of the module that they call.

Bodies of steps are free, and so is what is handed over to run outside of the replay: the function
that is told of a hook, and one that is run as a step by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stepwell.lint.names import FUNCTIONS, Function, Names

#: Keywords that take a function which runs outside of the replay.
_EFFECTS = frozenset({"on_created", "compensate"})
#: Calls that take one, by the place of that argument.
_RUNS = {"stepwell.current.step": 1}


def reachable(names: Names, workflow: Function) -> list[Function]:
    """The functions whose bodies are workflow code of this workflow, itself first."""
    found: dict[int, Function] = {}
    waiting = [workflow]
    while waiting:
        function = waiting.pop(0)
        if id(function) in found:
            continue
        found[id(function)] = function
        # A workflow that is called as a function is judged as its own.
        waiting += [
            called
            for called in _called(names, function)
            if not names.is_step(called) and not names.is_workflow(called)
        ]
    return list(found.values())


def _called(names: Names, function: Function) -> Iterator[Function]:
    for node in code_of(names, function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            known = names.function(node.func.id, function)
            if known is not None and node.func.id not in names.imports:
                yield known


def code_of(names: Names, function: Function) -> Iterator[ast.AST]:
    """All nodes of a function's body that run in the replay, in the order of the text."""
    free = _handed_over(names, function)
    for statement in function.body:
        yield from _walk(names, statement, free)


def _walk(names: Names, node: ast.AST, free: set[str]) -> Iterator[ast.AST]:
    if isinstance(node, FUNCTIONS) and (node.name in free or names.is_step(node)):
        return
    yield node
    skipped = {id(value) for value in _effects(names, node)}
    for child in ast.iter_child_nodes(node):
        if id(child) not in skipped:
            yield from _walk(names, child, free)


def _handed_over(names: Names, function: Function) -> set[str]:
    """Names of functions that are handed over, and not called here."""
    given = {
        value.id
        for node in ast.walk(function)
        for value in _effects(names, node)
        if isinstance(value, ast.Name)
    }
    called = {
        node.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return given - called


def outside(names: Names, function: Function) -> Iterator[Function | ast.Lambda]:
    """The bodies that stand in a function and run outside of the replay."""
    free = _handed_over(names, function)
    for node in ast.walk(function):
        if (
            isinstance(node, FUNCTIONS)
            and node is not function
            and (node.name in free or names.is_step(node))
        ):
            yield node
        yield from (each for each in _effects(names, node) if isinstance(each, ast.Lambda))


def _effects(names: Names, node: ast.AST) -> Iterator[ast.expr]:
    """The arguments of a call that run outside of the replay."""
    if isinstance(node, ast.keyword) and node.arg in _EFFECTS:
        yield node.value
    if isinstance(node, ast.Call):
        yield from (each.value for each in node.keywords if each.arg in _EFFECTS)
        place = _RUNS.get(names.dotted(node.func) or "")
        if place is not None and len(node.args) > place:
            yield node.args[place]
