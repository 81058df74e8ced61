"""The rules that every history keeps, and ways to compare histories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepwell.client import Recorded
from stepwell.testing import Environment, laws


def check_history(history: Sequence[Recorded]) -> None:
    """The laws of a log, for a run that has begun."""
    laws.check_numbers(history)
    if history:
        laws.check_history([recorded.event for recorded in history])


def kinds(env: Environment, run: Any) -> list[str]:
    """The types of a run's events."""
    return [recorded.event.type for recorded in env.history(run)]


def found(env: Environment, run: Any, kind: str) -> list[Any]:
    """The events of one type in a run."""
    return [each.event for each in env.history(run) if each.event.type == kind]


def essence(env: Environment, run: Any) -> list[tuple[Any, ...]]:
    """What a history says apart from times, ids of saves, and tries that were counted early."""
    said = []
    for recorded in env.history(run):
        event: Any = recorded.event
        if event.type != "StepStarted":
            about = [getattr(event, name, None) for name in ("step", "hook", "timer", "output")]
            value = [getattr(event, name, None) for name in ("result", "payload", "attempt")]
            said.append((event.type, *about, *value))
    return said


def crashes_of(
    scenario: Callable[[Environment], None],
) -> Iterator[Environment]:
    """The deployment after a scenario: first undisturbed, then died once at each port call.

    Each is checked and closed when the next one is asked for.
    """
    with Environment() as env:
        env.crash_at(1_000_000)
        scenario(env)
        yield env
    call = 1
    crashed = True
    while crashed:
        crashed = False
        for when in ("before", "after"):
            with Environment() as env:
                env.crash_at(call, when)
                scenario(env)
                crashed = crashed or env.crashes > 0
                yield env
        call += 1
