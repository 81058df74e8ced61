"""The numbers that `docs/reliability.md` gives are those of the tests that it names."""

from __future__ import annotations

import re
from pathlib import Path

from tests.acceptance import test_overtaken, test_traces
from tests.acceptance.test_scenarios import SCENARIOS
from tests.mutations.conditions import MUTATIONS
from tests.simulation.scenarios import SCENARIOS as RUNS
from tests.simulation.stories import STORIES
from tests.simulation.test_interleavings import PARTS, WHOLE
from tests.simulation.test_stories import SEEDS

_TEXT = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")


def _told(pattern: str) -> tuple[int, ...]:
    found = re.findall(pattern, _TEXT)
    assert len(found) == 1, f"{pattern!r} stands {len(found)} times"
    numbers = found[0] if isinstance(found[0], tuple) else found
    return tuple(int(number) for number in numbers)


def _traces(*modules: object) -> int:
    return sum(name.startswith("test_") for module in modules for name in vars(module))


def test_as_many_tests_are_told_of_as_there_are() -> None:
    assert _told(r"(\d+) runs, exhaustive") == (len(RUNS),)
    assert _told(r"(\d+) searches, (\d+) of") == (len(WHOLE) + len(PARTS), len(WHOLE))
    assert _told(r"(\d+) stories, (\d+) seeds") == (len(STORIES), SEEDS)
    assert _told(r"(\d+) scenarios") == (len(SCENARIOS),)
    assert _told(r"(\d+) traces") == (_traces(test_traces, test_overtaken),)
    assert _told(r"(\d+) mutations") == (len(MUTATIONS),)
