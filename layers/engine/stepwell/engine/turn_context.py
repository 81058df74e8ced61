"""What all parts of one turn share: the run, its rows, and the means to change them."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.core.records import HookRow, Millis, RunHeader
from stepwell.core.state import RunState
from stepwell.engine.journal import Journal
from stepwell.engine.ports import Ports
from stepwell.engine.puts import Puts
from stepwell.engine.settings import Settings
from stepwell.engine.threads import ThreadPool
from stepwell.engine.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """One turn. `header` is as it was loaded; `time` is what deadlines are judged by.

    `message_id` is the queue's id of its message, `redelivered` says that it came before. `settled`
    says that the last turn left the run with its timer set and its header written. `pool` runs
    `def` steps, `notifiers` what such a step waits for: the two must not share threads. `rows` holds
    the run's hook rows by hook id, those put in this turn added to those loaded.
    """

    header: RunHeader
    ports: Ports
    settings: Settings
    pool: ThreadPool
    notifiers: ThreadPool
    puts: Puts
    state: RunState
    journal: Journal
    values: Values
    rows: dict[str, HookRow]
    time: Millis
    message_id: str
    redelivered: bool
    settled: bool

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.header.run_id

    def due(self, when: Millis) -> bool:
        """Whether a time has come, for this turn."""
        return when <= max(self.time, self.ports.clock.now())
