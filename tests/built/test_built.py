"""What is deployed works by itself: `make test-built` builds it and runs these."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path

import pytest

from tests.built.output import FUNCTIONS, LAYERS, module_of, path_of, run

_UNCHECKED_HASH = 0b01
_SOURCES = [source for layer in LAYERS for source in layer.rglob("*.py")]
#: Largest unzipped size of a function with its layers.
_LIMIT_MB = 250


def test_this_python_is_the_one_that_the_layers_are_for() -> None:
    assert sys.version_info[:2] == (3, 13)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_handler_is_imported_with_nothing_else_on_the_path(function: str) -> None:
    """Its module makes the clients, so this opens the whole of a function."""
    loaded = run(
        function,
        f"""
import importlib, json
module = importlib.import_module({module_of(function)!r})
assert callable(module.handler)
loaded = {{name: getattr(each, "__file__", None) for name, each in sys.modules.items()}}
print(json.dumps(loaded))
""",
    )
    ours = [str(each) for each in path_of(function)]
    standard = [str(Path(importlib.util.__file__).parents[1])]
    strange = {
        name: file
        for name, file in loaded.items()
        if file and ("site-packages" in file or not file.startswith((*ours, *standard)))
    }
    assert strange == {}
    assert "stepwell" in loaded


def test_the_worker_and_the_step_function_know_the_workflows() -> None:
    for function in ("WorkerFunction", "StepFunction"):
        known = run(
            function,
            f"""
import importlib, json
importlib.import_module({module_of(function)!r})
from stepwell.authoring.registry import registry
print(json.dumps(sorted(registry.workflows())))
""",
        )
        assert len(known) >= 2, function


def test_every_module_of_the_layers_has_byte_code_that_is_never_checked() -> None:
    wrong = []
    for source in _SOURCES:
        code = Path(importlib.util.cache_from_source(str(source)))
        if not code.is_file():
            wrong.append(f"{source}: none")
            continue
        head = code.read_bytes()[:16]
        if (
            head[:4] != importlib.util.MAGIC_NUMBER
            or int.from_bytes(head[4:8], "little") != _UNCHECKED_HASH
            or head[8:] != importlib.util.source_hash(source.read_bytes())
        ):
            wrong.append(f"{source}: of another Python, checked, or of another source")
    assert wrong == []
    assert len(_SOURCES) > 500


def test_the_layers_hold_the_package_and_what_it_needs_and_nothing_of_ours_beside() -> None:
    top = {each.name for layer in LAYERS for each in layer.iterdir()}
    assert {"stepwell", "pydantic", "pynamodb", "boto3", "botocore", "aws_lambda_powertools"} <= top
    assert {"moto", "pytest", "aws_xray_sdk", "pip"}.isdisjoint(top)


def test_a_function_with_its_layers_is_small_enough_for_lambda() -> None:
    for function in FUNCTIONS:
        size = sum(
            each.stat().st_size
            for place in path_of(function)
            for each in place.rglob("*")
            if each.is_file()
        )
        assert size < _LIMIT_MB * 10**6, function


def test_the_time_that_a_cold_start_takes_to_import_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Told, not judged: it depends on the machine. The first run warms the disk's cache."""
    told = {}
    for function in FUNCTIONS:
        times = [
            run(
                function,
                f"""
import time
began = time.perf_counter()
import importlib, json
importlib.import_module({module_of(function)!r})
print(json.dumps((time.perf_counter() - began) * 1000))
""",
            )
            for _ in range(4)
        ]
        told[function] = round(statistics.median(times[1:]))
    with capsys.disabled():
        print("\nimport with clients, median of 3, in ms:", told)
    assert set(told) == set(FUNCTIONS)
