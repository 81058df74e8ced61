"""Input on the replay: the inbox as code sees it, and code that raises `Suspend` for want of it.

Pure, as the replay is. A workflow that suspended itself begins again from its top; see
`engine.past`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.authoring.context import RunContext
from stepwell.core import events as e
from stepwell.core.ids import again
from stepwell.core.inbox import Inbox
from stepwell.core.records import Payload
from stepwell.core.state import RunState
from stepwell.engine.endings import Cancelled, Outcome, Parked
from stepwell.engine.past import Past, before_epoch


class Inbound(RunContext):
    """The part of a replay that is about input."""

    outcome: Outcome | None
    _state: RunState
    _texts: Mapping[Payload, str]
    _over: bool
    #: What the code suspended itself for.
    _reason: str | None = None
    _past: Past

    def _begin_again(self, history: Sequence[e.Event]) -> Sequence[e.Event]:
        """Of a history, what is to be fed: the start, and what came after the code began last."""
        self._past, history = before_epoch(history, self._state.epoch)
        return history

    def _asked_otherwise(self, identity: str, digest: str) -> str:
        """The id of a step that was recorded with another input before the code began again.

        With other input code goes other ways, and a call stands for another one than before: it
        gets an id of its own, or that of the call with this input. In the present pass through the
        code, another input is none of its.
        """
        found, generation = identity, 1
        while found in self._past.known:
            known = self._state.steps.get(found)
            if known is None or known.digest == digest:
                break
            generation += 1
            found = again(identity, generation)
        return found

    def _told_of_cancel(self) -> None:
        """A workflow that suspended itself has unwound: a cancel needs to be told to nobody."""
        if isinstance(self.outcome, Parked) and self._state.cancel is not None:
            self.outcome = Cancelled()

    @property
    def inbox(self) -> Inbox:
        """The run's inbox, as far as the code was told of it."""
        return Inbox(self._past.inbox, self._texts)

    def suspend(self, reason: str) -> None:
        """The code raises `Suspend`: whatever becomes of that, the pass is over."""
        if not self._over:
            self._over = True
            self._reason = reason

    def _receive(self, event: e.InboxReceived, _: object) -> None:
        self._past.receive(event)
