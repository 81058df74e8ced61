"""Recorded histories: what a run went through, as a file that later code must still replay.

    text = export_history(run_id, await client.history(run_id))
    history = import_history(text)
    assert replay_history(refund, history.events).outcome == Returned("refunded")

Keep exported histories beside the tests and replay each after every change: a workflow that no
longer fits one of them would leave the runs in production blocked that are like it.

The file is JSON: `format` (1), `run_id`, and `events` in order, each as the log holds it with its
values in place, one to a line. It holds what the run held: do not export what must stay secret.
Files that `stepwell history export` writes hold more and are read as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.authoring.decorators import Workflow
from stepwell.client import Recorded
from stepwell.core.events import Event, dump_events
from stepwell.core.state import fold
from stepwell.engine.archive import load_archive
from stepwell.engine.endings import Outcome
from stepwell.engine.replay import Replay

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class History:
    """A recorded history."""

    run_id: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay came to.

    `outcome` is how the workflow ended, None if it waits; `Blocked` if it does not fit. `waiting`
    are the ids of the steps, hooks and timers that it has asked for and has no outcome of.
    """

    outcome: Outcome | None
    waiting: tuple[str, ...]


def export_history(run_id: str, recorded: Sequence[Recorded]) -> str:
    """A history as `Client.history` gives it, as the text of a file."""
    events = json.loads(dump_events([each.event for each in recorded]))
    lines = ",\n".join(f"    {json.dumps(event, ensure_ascii=False)}" for event in events)
    head = f'{{\n  "format": {_FORMAT},\n  "run_id": {json.dumps(run_id)},\n  "events": [\n'
    return f"{head}{lines}\n  ]\n}}\n"


def import_history(text: str) -> History:
    """The history in a file's text. Raises `ValueError` on anything that is not one."""
    archive = load_archive(text)
    return History(run_id=archive.run_id, events=archive.events)


def replay_history(
    workflow: Workflow[..., Any], events: Sequence[Event], *, run_id: str = "replayed"
) -> Replayed:
    """Run a workflow's code against a history, or the beginning of one; nothing is performed.

    Raises `PayloadError` when the recorded input does not fit the workflow's parameters.
    """
    replay = Replay(run_id, workflow.definition, fold(events), {})
    try:
        replay.run(events)
        return Replayed(replay.outcome, tuple(replay.pending))
    finally:
        replay.unwind()
