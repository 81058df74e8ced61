"""The author's code in a function: the package that holds it, imported whole when it starts."""

from __future__ import annotations

import importlib
import pkgutil

from stepwell.errors import DefinitionError


def import_workflows(package: str) -> None:
    """Import a package and all modules in it, so that its workflows and steps are registered.

    Raises `DefinitionError` if one cannot be: the function then fails to start, and its messages
    come back until it can, or become dead letters. With a part of the code it would take runs of
    the other part for runs that no code fits.
    """
    module = _import(package)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{package}."):
        if not found.name.endswith(".__main__"):
            _import(found.name)


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}"
        raise DefinitionError(
            f"module {name!r} of the workflows cannot be imported: {told}"
        ) from error
