"""A run that was retried or forked, on the replay: what earlier lives left is told, or not used."""

from __future__ import annotations

from stepwell.authoring.context import RunContext
from stepwell.core import events as e
from stepwell.core.commands import Command, RunStep
from stepwell.core.lives import Lives
from stepwell.core.records import Millis
from stepwell.engine.loop import DeterministicLoop


class Reopened(RunContext):
    """The part of a replay that is about earlier lives."""

    loop: DeterministicLoop
    _lives: Lives

    def _is_superseded(self, command: Command, event: e.Event) -> bool:
        """Whether an outcome of an earlier life is of another input than the code gives now."""
        if not isinstance(event, e.StepCompleted | e.StepFailed):
            return False
        return isinstance(command, RunStep) and command.digest != event.digest

    def _due(self, timer: str, due: Millis) -> Millis:
        """When a delay that is asked for now is over: it does not go on between two lives."""
        lives = self._lives
        return lives.moved(timer, due, self.loop.now) if lives.pauses else due

    def _run_went_on(self, _: e.RunRetried | e.RunForked, __: object) -> None:
        """Nothing is told, but time."""
