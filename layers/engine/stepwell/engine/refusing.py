"""Where code and history differ: what a replay says of it, and how it ends then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from stepwell.authoring.context import RunContext
from stepwell.core import events as e
from stepwell.core.commands import Command, RunStep
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.divergence import Line, compared, moved, recorded_lines, shifted
from stepwell.core.failure import describe
from stepwell.core.state import RunState
from stepwell.engine.endings import Blocked, Outcome, Raised
from stepwell.engine.frames import place_of_author
from stepwell.engine.pending import Pending, kind_of, unrecorded_kind
from stepwell.errors import NonDeterminismError, Suspended


class Refusing(RunContext):
    """The part of a replay that refuses code which does not fit its history."""

    outcome: Outcome | None
    pending: dict[str, Pending]
    _workflow: WorkflowDefinition
    _state: RunState
    _history: Sequence[e.Event]
    _asked: Mapping[str, str | None]
    _over: bool

    def _block(self, error: NonDeterminismError) -> None:
        self._over = True
        if not isinstance(self.outcome, Blocked):
            self.outcome = Blocked(error)

    def _block_over(self, what: str, identity: str, place: str = "") -> None:
        """Something is recorded that nobody asked for."""
        lines = recorded_lines(self._history)
        self._block(
            NonDeterminismError(
                recorded=what,
                asked=self._asks(),
                where=f"workflow {self._workflow.name!r}{place}",
                hint=moved(identity, lines, self._asked),
                diff=compared(lines, self._asked_lines()),
            )
        )

    def _asked_lines(self) -> dict[str, Line]:
        lines: dict[str, Line] = {}
        for identity, wanted in self._asked.items():
            pending = self.pending.get(identity)
            kind = self._kind(identity) or unrecorded_kind(identity)
            lines[identity] = (kind if pending is None else kind_of(pending.command), wanted)
        return lines

    def _refuse(self, recorded: str, command: Command, asked: str, hint: str = "") -> NoReturn:
        where = f"workflow {self._workflow.name!r}{place_of_author()}"
        lines = self._asked_lines() | {command.id: (kind_of(command), self._asked[command.id])}
        diff = compared(recorded_lines(self._history), lines)
        self._block(NonDeterminismError(recorded, asked, where, hint=hint, diff=diff))
        raise Suspended

    def _refuse_input(self, recorded: str, command: RunStep) -> NoReturn:
        self._refuse(
            f"step {command.id!r} with input {recorded}",
            command,
            f"step {command.id!r} with input {command.digest} (time, uuid and random differ on every "
            "pass: use now(), uuid4() and random(), or take them in a step)",
            shifted(command.id, command.digest, recorded_lines(self._history)),
        )

    def _asks(self) -> str:
        waiting = [f"{kind_of(p.command)} {p.command.id!r}" for p in self.pending.values()]
        if isinstance(self.outcome, Raised):
            failure = describe(self.outcome.error)
            return f"nothing more: it raised {failure.type}: {failure.message}"
        return ", ".join(waiting[:5]) or "nothing more"

    def _kind(self, identity: str) -> str | None:
        if identity in self._state.steps:
            return "step"
        hook = self._state.hooks.get(identity)
        if hook is not None and hook.step is None:
            return "hook"
        if identity in self._state.maps:
            return "map"
        if identity in self._state.children:
            return "child"
        if identity in self._state.emits:
            return "signal"
        if identity in self._state.polls:
            return "poll"
        return "timer" if identity in self._state.timers else None
