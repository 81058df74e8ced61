"""Annotations of functions, resolved one at a time, behind whatever wraps the function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import partial
from inspect import Parameter
from types import SimpleNamespace
from typing import Any

from stepwell.errors import DefinitionError


def resolve(function: Callable[..., Any], name: str, owner: str) -> Any:
    """The annotation of one parameter, or of "return"; `Parameter.empty` if there is none.

    One at a time, so that an annotation nobody needs may stay unresolved. `owner` says in errors
    whose it is. Raises `DefinitionError` if it cannot be resolved.
    """
    function = _defining(function)
    annotations = getattr(function, "__annotations__", {})
    if name not in annotations:
        return Parameter.empty
    scope = {**getattr(function, "__globals__", {}), **_closure(function)}
    holder = SimpleNamespace(
        __annotations__={name: annotations[name]},
        __type_params__=getattr(function, "__type_params__", ()),
    )
    try:
        return typing.get_type_hints(holder, scope, include_extras=True)[name]
    except Exception as error:
        place = "the return value" if name == "return" else f"parameter {name!r}"
        raise DefinitionError(
            f"{owner}: annotation {annotations[name]!r} of {place} cannot be resolved ({error}); "
            "define or import its names at module level"
        ) from error


def _defining(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries the annotations, behind partials and decorators."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isroutine(function):
        return function
    method = "__init__" if isinstance(function, type) else "__call__"
    kind = function if isinstance(function, type) else type(function)
    return typing.cast("Callable[..., Any]", getattr(kind, method))


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """Names of enclosing functions that the function itself uses."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(names, cells, strict=False)
        if _is_filled(cell)
    }


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading is the test
    except ValueError:
        return False
    return True
