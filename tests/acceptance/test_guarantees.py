"""What `docs/guarantees.md` promises and what the scenarios prove are one and the same list."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.acceptance.scenario import read_all

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
TEXT = PAGE.read_text(encoding="utf-8")
SCENARIOS = read_all()


def guarantees() -> dict[str, list[str]]:
    """The scenarios that each guarantee names, by its anchor."""
    parts = re.split(r'^<a id="([a-z-]+)"></a>$', TEXT, flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for anchor, text in zip(parts[1::2], parts[2::2], strict=True):
        assert anchor not in found, anchor
        proofs = text.partition("\nProved by: ")[2]
        found[anchor] = re.findall(r"`([^`]+)`", proofs)
    return found


def test_every_guarantee_names_at_least_one_scenario() -> None:
    assert [anchor for anchor, proofs in guarantees().items() if not proofs] == []


def test_every_guarantee_says_what_it_does_not_say() -> None:
    sections = TEXT.split("\n## ")[1:]
    assert len(sections) == len(guarantees())
    assert [each for each in sections if "**What it does not say.**" not in each] == []


def test_every_scenario_names_a_guarantee_which_names_it() -> None:
    proved: dict[str, list[str]] = {anchor: [] for anchor in guarantees()}
    for scenario in SCENARIOS:
        proved.setdefault(scenario.guarantee, []).append(scenario.id)
    assert {anchor: sorted(ids) for anchor, ids in proved.items()} == {
        anchor: sorted(ids) for anchor, ids in guarantees().items()
    }


def test_ids_and_titles_are_unique() -> None:
    for values in ([each.id for each in SCENARIOS], [each.title for each in SCENARIOS]):
        assert [value for value, count in Counter(values).items() if count > 1] == []


def test_ids_speak() -> None:
    pattern = re.compile(r"[a-z]+(-[a-z]+)*")
    assert [each.id for each in SCENARIOS if not pattern.fullmatch(each.id)] == []


def test_every_anchor_that_the_page_links_to_is_there() -> None:
    linked = set(re.findall(r"\]\(#([a-z-]+)\)", TEXT))
    assert linked == set(guarantees())
