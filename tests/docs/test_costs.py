"""The costs that the README and `docs/fan-out.md` give are those that tests pin."""

from __future__ import annotations

from pathlib import Path

from benchmarks.workflows import map_elsewhere, map_in_lanes
from tests.integration.aws import test_bills as runs
from tests.integration.aws import test_mapped as maps

_ROOT = Path(__file__).parents[2]
#: What the README calls the runs that are counted, where it says more of them.
_CALLED = {
    "5 steps around a step hook": "5 steps around a step hook with a deadline of a day",
    "1 dispatched step": "a step dispatched to a function of its own",
}


def _table(page: str, first: str) -> list[list[str]]:
    """The rows of the one table in a page whose first column has this heading."""
    lines = (_ROOT / page).read_text(encoding="utf-8").splitlines()
    [heading] = [n for n, line in enumerate(lines) if line.startswith(f"| {first} | requests |")]
    rows = []
    for line in lines[heading + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace(",", "") for cell in line.strip("|").split("|")])
    return rows


def test_the_readme_tells_what_runs_cost() -> None:
    told = {row[0]: tuple(map(int, row[1:])) for row in _table("README.md", "run")}
    assert told == {
        _CALLED.get(bill.run, bill.run): (
            sum(bill.requests.values()),
            bill.written,
            bill.read,
            bill.messages,
            bill.invocations,
        )
        for bill in runs.EXPECTED
    }


def test_the_page_on_fan_out_tells_what_maps_cost() -> None:
    told = {int(row[0]): tuple(map(int, row[1:])) for row in _table("docs/fan-out.md", "items")}
    free, held = maps.EXPECTED[map_elsewhere], maps.EXPECTED[map_in_lanes]
    assert told[free.items] == (
        sum(free.requests.values()),
        sum(held.requests.values()),
        free.written,
        free.read,
        free.messages,
        free.turns,
    )
    requests, _, *others = told[100]
    assert (requests, *others) == maps.HUNDRED
    # Of more items tests pin how it grows: turns stay, and each item is one message.
    for items, (*_, messages, turns) in told.items():
        assert (messages, turns) == (items + 2, 2)
