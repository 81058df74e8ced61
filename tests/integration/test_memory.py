"""The memory that a large map takes is that of its items' outcomes, and no more."""

from __future__ import annotations

import pytest

from benchmarks.memory import peak_of


@pytest.mark.parametrize("flow", ["map_inline", "map_elsewhere"])
def test_a_thousand_items_take_some_megabytes(flow: str) -> None:
    peak = peak_of(flow, 1_000)
    assert 0 < peak.after - peak.before < 16


def test_thousands_of_signals_take_some_megabytes() -> None:
    """Which are SQLite's: of the signals nothing is left in Python."""
    peak = peak_of("signals", 3_000)
    assert 0 <= peak.after - peak.before < 10
