"""Names that the documentation uses are there, under the name that users import."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stepwell
from stepwell import errors

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/concepts.md", "docs/glossary.md")


@pytest.mark.parametrize("page", PAGES)
def test_errors_that_a_page_names_can_be_imported(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {name for name in re.findall(r"\b[A-Z]\w+\b", text) if hasattr(errors, name)}
    assert named <= set(stepwell.__all__)
