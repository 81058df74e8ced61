"""What a worker imports before its first turn: each module more makes every cold start longer."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

#: What a plain turn does without: it is imported by what uses it first.
_LATER = frozenset(
    {
        "stepwell.api",
        "stepwell.authoring.command_hook",
        "stepwell.authoring.conditions",
        "stepwell.authoring.sagas",
        "stepwell.adapters.local",
        "stepwell.cli",
        "stepwell.client",
        "stepwell.engine.answering",
        "stepwell.engine.archive",
        "stepwell.engine.attempt",
        "stepwell.engine.chunks",
        "stepwell.engine.forks",
        "stepwell.engine.guarding",
        "stepwell.engine.inboxes",
        "stepwell.engine.map_items",
        "stepwell.engine.operating",
        "stepwell.engine.selection",
        "stepwell.engine.starts",
        "stepwell.engine.sweep",
        "stepwell.lint",
        "stepwell.shapes",
        "stepwell.testing",
    }
)
_IMPORT = """
import sys
import stepwell.adapters.aws.handlers.worker
from stepwell import hook, step, workflow
print(*sorted(sys.modules), sep="\\n")
"""


def test_a_worker_imports_no_more_than_a_plain_turn_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True
    )
    imported = set(done.stdout.split())
    assert "stepwell.engine.turn" in imported
    assert not imported & _LATER


def test_what_is_left_for_later_is_there() -> None:
    assert [name for name in _LATER if importlib.util.find_spec(name) is None] == []
