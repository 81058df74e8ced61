"""Laws of the lists of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwell.core.records import RunHeader
from stepwell.testing.facts import Lists


def check_lists(lists: Lists, headers: Iterable[RunHeader]) -> None:
    """Each list has the runs that belong in it and no others, each once, newest first."""
    expected = sorted(headers, key=lambda header: (-header.created_at, header.run_id))
    by_id = {header.run_id: header for header in expected}
    _check_list("all runs", [header.run_id for header in lists.runs], expected)
    for header in lists.runs:
        same = header == by_id[header.run_id]
        assert same, f"run {header.run_id!r} is listed as {header}, and is {by_id[header.run_id]}"
    for name in sorted({header.workflow for header in expected} | set(lists.by_workflow)):
        of_it = [header for header in expected if header.workflow == name]
        _check_list(f"workflow {name!r}", lists.by_workflow.get(name, ()), of_it)
    for status, ids in lists.by_status.items():
        _check_list(f"status {status}", ids, [h for h in expected if h.status is status])
    for kind, ids in lists.by_attention.items():
        noted = [h for h in expected if h.attention is not None and h.attention.kind == kind]
        _check_list(f"attention {kind}", ids, noted)


def _check_list(name: str, ids: Sequence[str], headers: Iterable[RunHeader]) -> None:
    expected = [header.run_id for header in headers]
    assert list(ids) == expected, f"the list of {name}: {list(ids)}, and should be {expected}"
