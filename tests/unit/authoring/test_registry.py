"""Names are global: taken ones are refused, loading the same file again is not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepwell import step, workflow
from stepwell.authoring.registry import Registry, registry
from stepwell.errors import DefinitionError

SOURCE = """
from stepwell import step, workflow

@step
async def weigh_parcel(order: str) -> str:
    return order

@workflow
async def parcel_back(order: str) -> str:
    return await weigh_parcel(order)
"""


def load(folder: Path, name: str, source: str = SOURCE) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["step", "workflow"])
def test_a_taken_name_is_refused_and_both_files_are_named(tmp_path: Path, kind: str) -> None:
    load(tmp_path, "one")
    wanted = "async def weigh_parcel" if kind == "step" else "async def parcel_back"
    decorator = "@step" if kind == "step" else "@workflow"
    other = f"from stepwell import step, workflow\n{decorator}\n{wanted}(order: str) -> str: ...\n"
    with pytest.raises(DefinitionError) as caught:
        load(tmp_path, "two", other)
    message = str(caught.value)
    assert str(tmp_path / "one.py") in message
    assert str(tmp_path / "two.py") in message
    assert f"@{kind}(name=...)" in message


def test_the_same_file_may_be_loaded_again_also_changed(tmp_path: Path) -> None:
    first = load(tmp_path, "one")
    again = load(tmp_path, "one")
    assert registry.step("weigh_parcel") is again.weigh_parcel.definition
    assert registry.step("weigh_parcel") is not first.weigh_parcel.definition
    moved = load(tmp_path, "one", f"\n# a line more\n{SOURCE}")
    assert registry.workflow("parcel_back") is moved.parcel_back.definition


def test_a_reloaded_module_takes_its_own_place(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "reloaded_flows.py").write_text(SOURCE)
    sys.path.insert(0, str(tmp_path))
    request.addfinalizer(lambda: sys.path.remove(str(tmp_path)))
    request.addfinalizer(lambda: sys.modules.pop("reloaded_flows", None))
    module = importlib.import_module("reloaded_flows")
    before = module.weigh_parcel.definition
    importlib.reload(module)
    assert registry.step("weigh_parcel") is module.weigh_parcel.definition
    assert module.weigh_parcel.definition is not before


def test_two_definitions_in_one_file_are_refused(tmp_path: Path) -> None:
    twice = (
        SOURCE + "\n@step(name='weigh_parcel')\nasync def weigh_parcel(order: str) -> str: ...\n"
    )
    with pytest.raises(DefinitionError, match=r"twice.py, line 4 and in .*twice.py, line 12"):
        load(tmp_path, "twice", twice)


def test_two_names_for_two_functions_in_one_file(tmp_path: Path) -> None:
    twice = SOURCE + "\n@step(name='weigh_again')\nasync def weigh_parcel(order: str) -> str: ...\n"
    module = load(tmp_path, "twice", twice)
    assert registry.step("weigh_again") is module.weigh_parcel.definition
    assert registry.step("weigh_parcel") is not None


def test_a_factory_may_make_the_same_definition_again() -> None:
    def make() -> Any:
        @step
        async def made() -> None: ...

        return made

    first, second = make(), make()
    assert registry.step("made") is second.definition
    assert first.definition is not second.definition


def test_steps_and_workflows_have_names_of_their_own() -> None:
    @step(name="same")
    async def one() -> None: ...

    @workflow(name="same")
    async def two() -> None: ...

    assert registry.step("same") is one.definition
    assert registry.workflow("same") is two.definition


def test_what_is_registered_in_a_layer_is_gone_with_it(tmp_path: Path) -> None:
    with registry.isolated():
        load(tmp_path, "one")
        assert registry.step("weigh_parcel") is not None
        with registry.isolated():
            assert registry.step("weigh_parcel") is not None
            assert "parcel_back" in registry.workflows()
    assert registry.step("weigh_parcel") is None
    assert "parcel_back" not in registry.workflows()
    load(tmp_path, "two")


def test_a_layer_goes_also_when_its_test_fails() -> None:
    def fails() -> None:
        with registry.isolated():

            @step
            async def short_lived() -> None: ...

            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert registry.step("short_lived") is None


def test_a_layer_hides_a_name_of_the_one_outside(tmp_path: Path) -> None:
    outer = load(tmp_path, "one")
    with registry.isolated():
        inner = load(tmp_path, "two")
        assert registry.step("weigh_parcel") is inner.weigh_parcel.definition
        assert registry.workflows()["parcel_back"] is inner.parcel_back.definition
    assert registry.step("weigh_parcel") is outer.weigh_parcel.definition
    assert registry.workflow("parcel_back") is outer.parcel_back.definition


def test_registries_do_not_know_each_other() -> None:
    @workflow
    async def only_here() -> None: ...

    other = Registry()
    assert other.workflow("only_here") is None
    other.add_workflow(only_here.definition)
    assert other.workflows() == {"only_here": only_here.definition}


def test_a_module_imported_inside_a_layer_may_stay(tmp_path: Path) -> None:
    with registry.isolated(keep_modules=True):
        loaded = load(tmp_path, "one")

        @step
        async def local() -> None: ...

    assert registry.step("weigh_parcel") is loaded.weigh_parcel.definition
    assert registry.workflow("parcel_back") is loaded.parcel_back.definition
    assert registry.step("local") is None
