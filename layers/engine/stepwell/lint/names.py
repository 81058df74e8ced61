"""Names of a module: what its imports stand for, and which functions it defines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_WORKFLOW = ("stepwell.workflow", "stepwell.authoring.decorators.workflow")
_STEP = ("stepwell.step", "stepwell.authoring.decorators.step")
#: Primitives that an `async` workflow has to await.
AWAITED = frozenset(
    f"stepwell.{name}" for name in ("sleep", "hook", "wait_for_condition", "ask", "start_child")
)


@dataclass(slots=True)
class Names:
    """What names mean in one module. Filled while it is read, and not changed after that."""

    imports: dict[str, str] = field(default_factory=dict)
    #: The functions that each function defines, and the module (None), by name.
    scopes: dict[Function | None, dict[str, Function]] = field(default_factory=dict)
    #: Which function each function stands in.
    parents: dict[Function, Function | None] = field(default_factory=dict)
    #: Names that the module binds to something that can be changed in place.
    mutable: set[str] = field(default_factory=set)
    workflows: list[Function] = field(default_factory=list)

    def dotted(self, node: ast.expr) -> str | None:
        """The full name that an expression such as `d.now` stands for, by the imports."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.imports.get(node.id, node.id), *reversed(parts)])

    def is_imported(self, node: ast.expr) -> bool:
        """Whether the first part of a dotted expression comes from an import."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.imports

    def function(self, name: str, within: Function | None) -> Function | None:
        """The function that a name means in the body of another one."""
        while name not in self.scopes.get(within, {}):
            if within is None:
                return None
            within = self.parents[within]
        return self.scopes[within][name]

    def is_workflow(self, function: Function) -> bool:
        """Whether a function is decorated as a workflow."""
        return self._is_decorated(function, _WORKFLOW)

    def is_step(self, function: Function) -> bool:
        """Whether a function is decorated as a step: its body is free."""
        return self._is_decorated(function, _STEP)

    def _is_decorated(self, function: Function, names: tuple[str, ...]) -> bool:
        for decorator in function.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self.dotted(called) in names:
                return True
        return False


def names_of(tree: ast.Module) -> Names:
    """The names of a module. Imports count wherever they stand; a later one wins."""
    names = Names()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                names.imports[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names.imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names.imports[alias.asname or alias.name] = f"{'.' * node.level}{alias.name}"
    _place(names, tree, None)
    for statement in tree.body:
        names.mutable.update(_bound_mutable(statement))
    names.workflows = [each for each in names.parents if names.is_workflow(each)]
    return names


def _place(names: Names, node: ast.AST, within: Function | None) -> None:
    """Note where each function stands. What a class defines, no bare name means."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            names.parents[child] = within
            if not isinstance(node, ast.ClassDef):
                names.scopes.setdefault(within, {})[child.name] = child
            _place(names, child, child)
        else:
            _place(names, child, within)


def _bound_mutable(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement of the module binds to a list, a dict, a set or an object."""
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    else:
        return
    if isinstance(
        value,
        ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Call,
    ):
        yield from (target.id for target in targets if isinstance(target, ast.Name))
