"""What a drive of a scenario comes to, as it is compared with the drive without faults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from examples.outside import Outside
from stepwell.client import OutputChunk, Recorded, RunHandle
from stepwell.core.events import Event, StepRetryScheduled
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from tests.simulation.scenarios import Scenario

#: Left out of every comparison, and why.
DROPPED = {
    "attempt": "a try that a crash cut off counts as a try",
    "save_id": "a random id; a repeated entry draws another",
    "request_id": "a random id; the turns before have drawn more or fewer",
}
#: Left out as well where a caller died and asked again.
SEED = {"seed": "drawn by the caller, and drawn again when nothing was sent yet"}
#: Events that are left out, and why.
DROPPED_EVENTS = {
    "StepStarted": "written once for each try, and tries may be lost",
    "ChildWaits": "what a child waits for, said again by whoever cannot know that it was said",
}
#: Left out as well where time was lost: the message of a frozen turn comes back minutes later.
TIMES = {
    "at": "when a turn ran",
    "due": "counted from when a turn ran",
    "expires_at": "counted from when a turn ran",
    "due_at": "counted from when a turn ran",
}


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a drive. Two drives of one scenario must be equal."""

    status: RunStatus
    result: str | None
    events: tuple[dict[str, Any], ...]
    output: dict[str, list[Any]]
    effects: dict[str, dict[str, str]]
    others: tuple[tuple[Any, ...], ...]
    open_hooks: int


def normalise(history: Iterable[Recorded], besides: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """The events of a history without what may differ."""
    dropped = {*DROPPED, *besides}
    return tuple(
        {key: value for key, value in asdict(each.event).items() if key not in dropped}
        for each in history
        if each.event.type not in DROPPED_EVENTS and not _interrupted(each.event)
    )


def _interrupted(event: Event) -> bool:
    """Whether it says that a crash cost a dispatched attempt, after which another one follows."""
    return (
        isinstance(event, StepRetryScheduled)
        and event.error.type == "stepwell.errors.StepInterrupted"
    )


def final(
    env: Environment,
    run: RunHandle[Any],
    scenario: Scenario,
    world: Outside,
    *,
    besides: Iterable[str] = (),
) -> Final:
    """What a drive came to; `besides` are more fields of events that may differ."""
    header = env.get(run)
    return Final(
        status=header.status,
        result=header.result,
        events=normalise(env.history(run), besides),
        output={step: as_read(env.output(run, step)) for step in scenario.streams},
        effects={kind: world.effects(kind) for kind in _KINDS},
        others=_others(env, run),
        open_hooks=len(env.hooks(run)),
    )


def _others(env: Environment, run: RunHandle[Any]) -> tuple[tuple[Any, ...], ...]:
    """The other runs that this one has led to, and what they have come to."""
    found = env.wait_for(env.client.list_runs(limit=200)).items
    others = sorted((each for each in found if each.run_id != run.id), key=lambda run: run.run_id)
    return tuple((run.run_id, run.status, run.result, run.subscription) for run in others)


_KINDS = (
    *("note", "tried", "charge", "token"),
    *("draft", "review asked", "payment", "confirmation"),
    *("credit", "model turn", "tool run", "search", "seat held", "question"),
)


def as_read(chunks: Iterable[OutputChunk]) -> list[Any]:
    """What a reader has in the end, who takes back what a reset mark supersedes.

    Fails if a chunk comes that is not the next one: nothing may be repeated or left out.
    """
    read: list[Any] = []
    for chunk in chunks:
        if chunk.reset:
            assert chunk.number <= len(read), "a reset mark beyond what was read"
            del read[chunk.number :]
        else:
            assert chunk.number == len(read) + 1, f"chunk {chunk.number} after {len(read)}"
            read.append(chunk.value)
    return read
