"""What all parts of one turn share: the run, its rows, and the means to change them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from stepwell.core.records import HookRow, InboxRow, Millis, Payload, RunHeader, StepRow
from stepwell.core.state import RunState, is_of
from stepwell.engine.chains import GuardChain
from stepwell.engine.journal import Journal
from stepwell.engine.outbox import Outbox
from stepwell.engine.ports import Ports, RunRows
from stepwell.engine.puts import Puts
from stepwell.engine.settings import Settings
from stepwell.engine.threads import ThreadPool
from stepwell.engine.values import Values

#: For how long a subscription keeps the row of an answer: somebody may repeat it, and a turn that
#: was overtaken may be about to put it.
_ANSWERS_KEPT: Millis = 3_600_000


@dataclass(frozen=True, slots=True)
class Stale:
    """Ids of rows that a subscription has left behind."""

    hooks: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    @classmethod
    def of(cls, state: RunState, rows: RunRows, now: Millis) -> Stale:
        """Those that nobody asks for any more."""
        if state.subscription is None:
            return cls()
        return cls(
            tuple(
                row.hook_id
                for row in rows.hooks
                if not is_of(state, row.hook_id, row.step)
                and (row.decided_at or row.created_at) < now - _ANSWERS_KEPT
            ),
            tuple(row.step for row in rows.steps if not is_of(state, row.step)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """One turn. `header` is as it was loaded; `time` is what deadlines are judged by.

    `message_id` is the queue's id of its message. `overtakes` says that somebody may still be at
    work on it who began before. `settled` says that the last turn left the run with its timer set
    and its header written. `pool` runs
    `def` steps, `notifiers` what such a step waits for: the two must not share threads. `rows`
    holds the run's hook rows by hook id, those put in this turn added to those loaded; `steps` the
    rows of dispatched steps by step id, as loaded. `ends_at`, in seconds of the loop's clock, is
    when an attempt is cut off because its process will end; None where it does not. `idle` counts
    the turns in a row before this one that handed over and had recorded nothing. `confirm` is
    called with each row of a hook that was put, before anybody is told of it; it raises when nobody
    waits for that hook any more. None in a turn: there the log's own fence tells.
    `types` are those that a subscription's row names.
    `outbox` holds signals that are to be sent. `stale` are rows of signals that a
    subscription has handled. `told` is what the run's parent was told that it
    waits for, if the last turn got to its end.
    `guards` are those of the run's steps, None without. `inbox` holds the entries of the inbox by
    id; `texts` the JSON of values in it that are kept as blobs.
    """

    header: RunHeader
    ports: Ports
    settings: Settings
    pool: ThreadPool
    notifiers: ThreadPool
    puts: Puts
    outbox: Outbox
    state: RunState
    journal: Journal
    values: Values
    rows: dict[str, HookRow]
    steps: dict[str, StepRow]
    time: Millis
    message_id: str
    overtakes: bool
    settled: bool
    ends_at: float | None = None
    idle: int = 0
    confirm: Callable[[HookRow], Awaitable[None]] | None = None
    guards: GuardChain | None = None
    told: str | None = None
    types: tuple[str, ...] = ()
    stale: Stale = Stale()
    inbox: dict[str, InboxRow] = field(default_factory=dict)
    texts: dict[Payload, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.header.run_id

    def take_rows(self, rows: Iterable[HookRow]) -> None:
        """Know hook rows that were loaded again: those that belong to what the run does now."""
        self.rows.update(
            {row.hook_id: row for row in rows if is_of(self.state, row.hook_id, row.step)}
        )

    def due(self, when: Millis) -> bool:
        """Whether a time has come, for this turn."""
        return when <= max(self.time, self.ports.clock.now())
