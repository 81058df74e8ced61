"""Replaying exported runs against the code that is here: whether it would go on with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stepwell.core import events as e
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.failure import describe
from stepwell.core.state import fold
from stepwell.engine.archive import Archive
from stepwell.engine.endings import Blocked, Cancelled, Continues, Outcome, Raised, Returned
from stepwell.engine.replay import Replay
from stepwell.errors import DefinitionError, PayloadError

#: "new": the run has ended, and this code asks for something more at its end.
Verdict = Literal["fits", "blocked", "new", "unreadable", "unknown"]
_ENDS = (e.RunCompleted, e.RunFailed, e.RunCancelled, e.RunContinued)


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one file. `note` is only information, such as another version.

    `reason` says what is wrong, with the difference line by line where the run would be blocked.
    """

    verdict: Verdict
    run_id: str = ""
    workflow: str = ""
    version: str = ""
    reason: str = ""
    note: str = ""

    @property
    def fits(self) -> bool:
        """Whether a run like this one goes on with this code."""
        return self.verdict == "fits"


def check_archive(archive: Archive, workflow: WorkflowDefinition | None) -> Checked:
    """Replay a run; nothing is performed. Raises `CorruptHistory` on a log that is none."""
    state = fold(archive.events)
    assert state.started is not None
    name, version = state.started.workflow, state.started.version

    def told(verdict: Verdict, reason: str = "", note: str = "") -> Checked:
        return Checked(verdict, archive.run_id, name, version, reason, note)

    if workflow is None:
        return told("unknown", f"no workflow {name!r} is defined in the modules that were given")
    note = ""
    if workflow.version != version:
        note = f"recorded by version {version}, this is {workflow.version}"
    try:
        replay = Replay(archive.run_id, workflow, state, {})
    except (PayloadError, DefinitionError) as error:
        if isinstance(archive.events[-1], e.RunFailed) and len(archive.events) == 2:
            return told("fits", note=note)  # it failed by its input, when it was started
        return told("blocked", f"the recorded input does not fit: {error}", note)
    try:
        replay.run(archive.events)
        outcome, waiting = replay.outcome, tuple(replay.pending)
    finally:
        replay.unwind()
    if isinstance(outcome, Blocked):
        return told("blocked", str(outcome.error), note)
    if outcome is None and isinstance(archive.events[-1], _ENDS):
        if _ended_from_outside(archive.events[-1]):
            return told("fits", note=note)
        asked = ", ".join(repr(each) for each in waiting[:5]) or "something that nothing can end"
        return told("new", f"the run has ended, and the code goes on: it waits for {asked}", note)
    return told("fits", note="; ".join(filter(None, (note, _other_end(archive.events, outcome)))))


def _ended_from_outside(end: e.Event) -> bool:
    """Whether a run ended without its code having a say: by force, by a limit, or in a wait."""
    if isinstance(end, e.RunCancelled):
        return bool(end.forced)
    ours = ("stepwell.errors.LimitExceeded", "stepwell.errors.UsageError")
    return isinstance(end, e.RunFailed) and end.error.type in ours


def _other_end(events: Sequence[e.Event], outcome: Outcome | None) -> str:
    """How the code ends where the run ended otherwise: no harm, an ended run is not replayed."""
    end = events[-1]
    same = {
        "RunCompleted": Returned,
        "RunFailed": Raised,
        "RunCancelled": Cancelled,
        "RunContinued": Continues,
    }.get(end.type)
    if same is None or outcome is None or isinstance(outcome, same):
        return ""
    what = "returns" if isinstance(outcome, Returned) else "raises"
    told = f" {describe(outcome.error).type}" if isinstance(outcome, Raised) else ""
    return f"the run ended with {end.type}, this code {what}{told}"
