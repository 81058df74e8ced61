"""What the pages of the documentation show runs, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stepwell.authoring.registry import registry
from stepwell.testing import Environment

DOCS = Path(__file__).parents[2] / "docs"


def examples(page: str) -> dict[str, Any]:
    """The names that the Python blocks of a page define."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks, page
    names: dict[str, Any] = {"__name__": f"docs.{page}"}
    exec(compile("\n".join(blocks), page, "exec", dont_inherit=True), names)
    return names


def test_fan_out() -> None:
    with registry.isolated(), Environment() as env:
        crawl = examples("fan-out.md")["crawl"]
        assert env.run(crawl, ["a", "bc"]) == "13 characters"
