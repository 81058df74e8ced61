"""Every scenario comes out as it says, in every way in which it is to be played."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.acceptance.play import play
from tests.acceptance.scenario import Scenario, read_all

ROOT = Path(__file__).parents[2]
SCENARIOS = read_all()
PLAYED = [each for each in SCENARIOS if not each.test]
PROVED = [each for each in SCENARIOS if each.test]


@pytest.mark.parametrize("scenario", PLAYED, ids=lambda each: each.id)
def test_a_scenario_comes_out_as_it_says(scenario: Scenario) -> None:
    assert play(scenario) > 0


@pytest.mark.parametrize("scenario", PROVED, ids=lambda each: each.id)
def test_the_test_that_proves_a_scenario_is_there(scenario: Scenario) -> None:
    file, _, name = scenario.test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {each.name for each in tree.body if isinstance(each, functions)}
