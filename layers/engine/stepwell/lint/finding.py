"""What is found: a place, a rule that it breaks, and in which workflow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing in workflow code that a replay may come to otherwise.

    `line` and `column` count from 1. `what` is the code that is meant, `advice` what to write
    instead, `workflow` the workflow that comes to it first.
    """

    path: str
    line: int
    column: int
    code: str
    what: str
    advice: str
    workflow: str
