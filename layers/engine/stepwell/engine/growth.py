"""How large a run grows, against the limits of its deployment.

A run that wishes to begin something for which there is no room ends. What was reported is always
recorded, and so is what closes a run, so its history may end a little above a limit; nothing that
happened is lost. A run that wishes for nothing more may complete, however large it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from stepwell.core.commands import Command, RunStep
from stepwell.core.state import RunState
from stepwell.engine.settings import Limits
from stepwell.errors import LimitExceeded

_LOG = logging.getLogger("stepwell.engine")
#: Less than what any event takes.
_LEAST_BYTES = 64
#: From what part of a limit on somebody is told.
_NEAR = 0.8


class Growth:
    """The room of one run during one turn. It changes with each wish.

    `state` and `pending`, the commands without an outcome by id, are looked at as they change. Each
    command without an outcome will bring one event more, its outcome; a new hook, timer or child,
    and a step that is dispatched or runs at most once, also brings one that it began.
    """

    def __init__(self, limits: Limits, state: RunState, pending: Mapping[str, object]) -> None:
        self._limits = limits
        self._state = state
        self._pending = pending
        self._steps = len(state.steps)
        #: Commands whose beginning is to be recorded. Entries may be stale.
        self._announced: set[str] = set()
        #: What there was no room for.
        self.exceeded: LimitExceeded | None = None

    def ask(self, command: Command) -> None:
        """The run wishes to begin a command of its code, or to go on with one. Sets `exceeded`."""
        if self.exceeded is not None:
            return
        limits, state = self._limits, self._state
        if not isinstance(command, RunStep):
            self._announced.add(command.id)
        elif command.id not in state.steps:
            self._steps += 1
            if command.step.dispatch != "inline" or command.step.at_most_once:
                self._announced.add(command.id)
            if self._steps > limits.steps:
                self._exceed("steps", limits.steps, self._steps)
                return
        more = len(self._pending) + len(self._announced)
        if state.length + more > limits.events or (
            state.volume + more * _LEAST_BYTES > limits.bytes
        ):
            self._look_again()

    def _look_again(self) -> None:
        """Without what has been recorded or withdrawn since."""
        limits, state, pending = self._limits, self._state, self._pending
        self._announced = {
            each
            for each in self._announced
            if each in pending
            and each not in state.steps
            and each not in state.hooks
            and each not in state.timers
            and each not in state.maps
            and each not in state.children
        }
        more = len(pending) + len(self._announced)
        least = state.volume + more * _LEAST_BYTES
        if state.length + more > limits.events:
            self._exceed("events", limits.events, state.length + more)
        elif least > limits.bytes:
            self._exceed("bytes", limits.bytes, least)

    def _exceed(self, limit: str, most: int, value: int) -> None:
        self.exceeded = LimitExceeded(limit, most, value)


class Extent(NamedTuple):
    """How large a run was at some time."""

    events: int
    bytes: int
    steps: int

    @classmethod
    def of(cls, state: RunState) -> Extent:
        """How large it is now."""
        return cls(state.length, state.volume, len(state.steps))


def warn(
    run_id: str,
    before: Extent,
    now: Extent,
    limits: Limits,
    tell: Callable[[str], object] | None,
) -> None:
    """Say which limits a run has come near to since `before`, in the log and to `tell`.

    Not of one that has gone beyond: that is said by how the run ended.
    """
    for limit in Extent._fields:
        most, value = getattr(limits, limit), getattr(now, limit)
        if getattr(before, limit) < most * _NEAR <= value <= most:
            _LOG.warning(
                "run %s is near a limit: %d of at most %d %s; above it the run fails, so split the "
                "work: go on as a new run with continue_as_new, or start children",
                run_id,
                value,
                most,
                limit,
            )
            if tell is not None:
                tell(limit)
