"""Laws of a deleted run: that it was there is known, and nothing else is left of it."""

from __future__ import annotations

from stepwell.core.records import tombstone
from stepwell.testing.facts import RunFacts


def check_deleted(facts: RunFacts) -> None:
    """Nothing of it is left but its tombstone, once nobody works on it any more."""
    header, rows = facts.rows.header, facts.rows
    assert header is not None
    assert header.deleted_at is not None
    expected = tombstone(header, header.deleted_at)
    left = [
        name
        for name in type(header).__slots__
        if name not in ("updated_at", "cancel_requested")
        and getattr(header, name) != getattr(expected, name)
    ]
    assert not left, f"the header of a deleted run still has {left}"
    if facts.in_queue or facts.attempts:
        return
    assert not rows.commits, f"{len(rows.commits)} commits are left of a deleted run"
    assert not rows.hooks, f"hooks are left of a deleted run: {[row.hook_id for row in rows.hooks]}"
    assert not rows.steps, f"steps are left of a deleted run: {[row.step for row in rows.steps]}"
    assert not facts.output, f"output is left of a deleted run: {sorted(facts.output)}"
    assert facts.timer is None, "a deleted run has a timer"
