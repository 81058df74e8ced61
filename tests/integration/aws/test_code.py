"""The package that holds the workflows of a deployment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.adapters.aws.handlers.code import import_workflows
from stepwell.authoring.registry import registry
from stepwell.errors import DefinitionError

FLOW = "from stepwell import workflow\n@workflow\nasync def {0}() -> int:\n    return 1\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "some_flows"
    (folder / "deeper").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "deeper" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [each for each in sys.modules if each.split(".")[0] == "some_flows"]:
        del sys.modules[name]


def test_every_module_of_the_package_is_imported(package: Path) -> None:
    (package / "first.py").write_text(FLOW.format("first"))
    (package / "deeper" / "second.py").write_text(FLOW.format("second"))
    (package / "__main__.py").write_text("raise SystemExit('not to be run')")
    import_workflows("some_flows")
    assert {"first", "second"} <= set(registry.workflows())


def test_a_single_module_will_do(package: Path) -> None:
    (package.parent / "some_flows.py").unlink(missing_ok=True)
    (package / "first.py").write_text(FLOW.format("first"))
    import_workflows("some_flows.first")
    assert "first" in registry.workflows()


@pytest.mark.parametrize(
    "code",
    ["import not_there", "1 / 0", "def broken(:", "raise SystemExit(1)", "from stepwell import no"],
)
@pytest.mark.parametrize("where", ["__init__.py", "bad.py", "deeper/__init__.py", "deeper/bad.py"])
def test_a_module_that_cannot_be_imported_is_named(package: Path, where: str, code: str) -> None:
    (package / where).write_text(code)
    module = "some_flows." + where.removesuffix(".py").replace("/", ".")
    name = module.removesuffix(".__init__")
    with pytest.raises(DefinitionError, match=f"module '{name}' of the workflows") as caught:
        import_workflows("some_flows")
    assert caught.value.__cause__ is not None


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(DefinitionError, match="module 'no_flows'"):
        import_workflows("no_flows")
