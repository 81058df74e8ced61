"""JSON of the command line, and the calls that it makes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from stepwell import workflow
from stepwell.authoring.decorators import Workflow
from stepwell.cli.failing import BadInput
from stepwell.cli.load import call_of, read_json


def greeting() -> Workflow[Any, Any]:
    @workflow
    async def greet(name: str, /, times: int = 1, *, on: date = date(2030, 1, 1)) -> None: ...

    return greet


def test_an_object_gives_arguments_by_name_and_declared_type() -> None:
    given = read_json('{"name": "world", "on": "2031-02-03"}', "--input")
    assert call_of(greeting(), given) == (("world", 1), {"on": date(2031, 2, 3)})


def test_an_array_gives_positional_arguments() -> None:
    given = read_json('["world", 2]', "--input")
    assert call_of(greeting(), given) == (("world", 2), {"on": date(2030, 1, 1)})


def test_an_array_fills_variable_arguments() -> None:
    @workflow
    async def add(first: int, *rest: int) -> None: ...

    assert call_of(add, read_json("[1, 2, 3]", "--input")) == ((1, 2, 3), {})


def positive(value: int) -> int:
    if value < 1:
        raise ValueError("it has to be positive")
    return value


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('"world"', "object"),
        ("null", "object"),
        ('["world", 1, 2]', "takes 2"),
        ("{}", "missing: name"),
        ("[]", "missing: name"),
        ('{"name": "world", "nome": 1}', "unknown: nome"),
        ('{"nome": "world", "tims": 1}', "unknown: nome, tims; missing: name"),
        ('{"name": "world", "times": "many"}', "$.times"),
        ('{"name": "world", "on": "someday"}', "$.on"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_their_place(given: str, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        call_of(greeting(), read_json(given, "--input"))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "--input is not JSON: line 1, column 1"),
        ('{"a": 1,\n "b" 2}', "--input is not JSON: line 2, column 6"),
        ("[1, NaN]", "NaN is no JSON number"),
        ("-Infinity", "-Infinity is no JSON number"),
        ("[" * 100_000, "--input is not JSON"),
    ],
)
def test_bad_json_is_refused_with_its_place(given: str, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_json(given, "--input")
    assert told in str(refused.value)


def test_a_refusal_of_a_validator_is_told_in_its_own_words() -> None:
    @workflow
    async def count(number: Annotated[int, AfterValidator(positive)]) -> None: ...

    with pytest.raises(BadInput, match=r"value at \$\.number: it has to be positive"):
        call_of(count, read_json("[0]", "--input"))


def test_variable_arguments_are_never_missing() -> None:
    @workflow
    async def add(*numbers: int, **options: int) -> None: ...

    assert call_of(add, read_json("{}", "--input")) == ((), {})


def test_bad_json_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "given.json"
    file.write_text("{'a': 1}")
    with pytest.raises(BadInput, match=r"given\.json is not JSON: line 1, column 2"):
        read_json(f"@{file}", "--payload")
    with pytest.raises(BadInput, match="No such file"):
        read_json(f"@{tmp_path / 'absent.json'}", "--payload")
    file.write_bytes(b'"\xff"')
    with pytest.raises(BadInput, match="not UTF-8"):
        read_json(f"@{file}", "--payload")
