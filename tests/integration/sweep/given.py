"""What the tests of the sweep are given: an engine in memory that loses what it is told to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from stepwell.adapters.local.clock import SkippingClock
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.adapters.local.sweeping import take_dead_letters
from stepwell.adapters.local.wiring import LocalPorts
from stepwell.core.messages import (
    Message,
    StartRun,
)
from stepwell.core.records import Attention, RunHeader
from stepwell.engine.sweep import Found, Sweep

T = TypeVar("T")

NOW = 1_893_456_000_000
MINUTE = 60_000
VISIBILITY = 30_000
MAX_RECEIVES = 3
START = StartRun(
    run_id="run",
    workflow="greet",
    version="1",
    input='{"name":"world"}',
    input_digest="d",
    seed="s",
    created_at=NOW,
)


@dataclass(frozen=True)
class Given:
    """An engine in memory, driven by hand, with a clock that skips."""

    local: LocalPorts
    engine: LocalEngine
    clock: SkippingClock
    run: Callable[[Coroutine[Any, Any, Any]], Any]

    def start(self, workflow: Any, *args: Any) -> str:
        """Start a run and take all its turns, but make no attempt of a dispatched step."""
        run_id: str = self.run(self.engine.client.start(workflow, *args)).id
        self.turns()
        return run_id

    def turns(self) -> None:
        while self.run(self.local.queue.next_visible_at()) is not None:
            assert self.run(self.engine.take_turn())

    def work(self) -> None:
        self.run(self.engine.run_until_idle())

    def wake(self, run_id: str) -> None:
        self.run(self.engine.client.wake(run_id))
        self.work()

    def header(self, run_id: str) -> RunHeader:
        header: RunHeader | None = self.run(self.local.store.get_header(run_id))
        assert header is not None
        return header

    def note(self, run_id: str, kind: Any = "STUCK") -> Attention:
        note = self.header(run_id).attention
        assert note is not None
        assert note.kind == kind
        return note

    def mark(self, run_id: str, note: Attention) -> None:
        marked = replace(self.header(run_id), attention=note)
        assert self.run(self.local.store.update_header(marked))

    def lose(self, *tables: str) -> None:
        """What is in these tables is gone for good."""
        for table in tables:
            assert self.local.database.change(f"DELETE FROM {table}")

    def sweep(self, left: int = MINUTE) -> Found:
        found: Found = self.run(Sweep(self.local.ports).wake_overdue(lambda: left))
        return found

    def die(self, queue: Any) -> None:
        """Let every message in a queue become a dead letter, as if each receiver died."""
        while self.run(queue.next_visible_at()) is not None:
            self.run(queue.receive())
            self.clock.advance(VISIBILITY)

    def take(self) -> int:
        taken: int = self.run(take_dead_letters(self.local))
        return taken

    def put(self, message: Message) -> None:
        self.run(self.local.queue.send(message))

    def put_text(self, table: str, run_id: str, body: str) -> None:
        """A message that only another version can have sent."""
        columns = "message_id, run_id, body, sent_at, visible_at"
        columns += ", name" if table == "step_messages" else ""
        self.local.database.change(
            f"INSERT INTO {table} ({columns}) VALUES ('m', ?, ?, 0, 0"
            f"{', ' + repr('far') if table == 'step_messages' else ''})",
            run_id,
            body,
        )
