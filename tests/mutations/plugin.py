"""A pytest plugin: serves one module of the package with a mutation, and reports what failed.

`-p tests.mutations.plugin` installs it before anything of the package is imported. The mutation is
named by the environment; without a name nothing is changed. The source files are only read.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from tests.mutations.conditions import BY_ID
from tests.mutations.mutation import Mutation

#: Names the mutation, and the file that the report goes to.
MUTATION = "STEPWELL_MUTATION"
REPORT = "STEPWELL_MUTATION_REPORT"

_failed: list[str] = []
_loaded: list[str] = []


class _Loader(SourceFileLoader):
    """Compiles the mutated source, each time anew: no bytecode of it is kept."""

    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = self._mutation.apply(Path(self.path).read_text(encoding="utf-8"))
        _loaded.append(self._mutation.id)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.machinery.PathFinder):
    """Finds the one module before others do."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(  # type: ignore[override]
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutation.module_name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._mutation)
        return spec


def _install(name: str) -> None:
    mutation = BY_ID[name]
    if mutation.module_name in sys.modules:
        raise pytest.UsageError(f"{mutation.module_name} was imported before its mutation")
    sys.meta_path.insert(0, _Finder(mutation))


if os.environ.get(MUTATION):
    _install(os.environ[MUTATION])


def pytest_runtest_logreport(report: Any) -> None:
    """Note a test that fails by what it found, or whose runs do; a broken fixture shows nothing."""
    if report.failed and report.when != "setup":
        _failed.append(report.nodeid)


def pytest_unconfigure() -> None:
    """Write the report."""
    if os.environ.get(REPORT):
        told = {"failed": _failed, "loaded": _loaded}
        Path(os.environ[REPORT]).write_text(json.dumps(told), encoding="utf-8")
