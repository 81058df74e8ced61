"""Remarks: what workflow code says of its own run, apart from what it waits for.

Which patches it has passed, which attributes it has set, which context it carries. The code says
all of it again on every pass; only what the log does not hold yet is recorded, before the next
effect. Pure: the shell takes the events and records them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.core import events as e
from stepwell.core.attributes import (
    NOTHING,
    Scalar,
    attribute_texts,
    check_extent,
    write_attributes,
)
from stepwell.core.commands import Snapshot
from stepwell.core.contexts import ContextType
from stepwell.core.ids import check_key
from stepwell.core.records import Millis, Payload
from stepwell.core.state import RunState
from stepwell.errors import UsageError

#: Patches that one run may come by; a name made up in a loop is a mistake.
_MOST_PATCHES = 500


class Remarks:
    """What the code of one pass has said so far. It changes as the code goes on.

    `ahead` tells whether something recorded still lies ahead of the code.
    """

    def __init__(self, state: RunState, context: ContextType | None, ahead: Callable[[], bool]):
        assert state.started is not None
        self._state = state
        self._context = context
        self._ahead = ahead
        #: The answer to each patch in this pass.
        self._patched: dict[str, bool] = {}
        self._attributes: dict[str, str] = {}
        #: Whether something was said that the log may not hold.
        self.fresh = False
        #: Patches to be marked.
        self._passed: list[str] = []
        self.snapshot = None if context is None else self._begin(context, state.started.context)

    @staticmethod
    def _begin(context: ContextType, given: Payload | None) -> Snapshot:
        return Snapshot(context.initial(given), context.codec)

    def patched(self, patch: str) -> bool:
        """Whether the run takes the new way at a patch; the same at each asking in a run."""
        answer = self._patched.get(patch)
        if answer is None:
            answer = self._patched[patch] = self._decide(patch)
        return answer

    def _decide(self, patch: str) -> bool:
        check_key("patch", patch)
        if len(self._patched) >= _MOST_PATCHES:
            raise UsageError(f"patched: a run may come by {_MOST_PATCHES} patches at most")
        if patch in self._state.patches:
            return True
        if self._ahead():
            return False
        self._passed.append(patch)
        self.fresh = True
        return True

    def set_attributes(self, changes: Mapping[str, Scalar]) -> None:
        """Change attributes. Raises `UsageError` on what is no attribute, or too much."""
        merged = {**self._attributes, **attribute_texts(changes)}
        check_extent({**self._state.attributes, **merged})
        self._attributes = merged
        self.fresh = True

    def take(self, at: Millis) -> list[e.Event]:
        """What is to be recorded of what was said, as events of a time; each is given once."""
        events: list[e.Event] = [e.PatchMarked(at=at, patch=patch) for patch in self._passed]
        changed = self._changed() if self.fresh else {}
        if changed:
            events.append(e.AttributesSet(at=at, attributes=write_attributes(changed)))
        self._passed.clear()
        self.fresh = False
        return events

    def _changed(self) -> dict[str, str]:
        """What the log does not say yet of the attributes that the code has set."""
        known = self._state.attributes
        return {
            name: text
            for name, text in self._attributes.items()
            if known.get(name, NOTHING) != text
        }

    @property
    def context(self) -> Any:
        """The context as it was set last; each reader gets one of his own."""
        snapshot = self._declared()
        return snapshot.codec.decode(snapshot.text)

    def set_context(self, value: Any) -> None:
        """Replace the context. Raises `PayloadError` on one that does not fit."""
        self._declared()
        assert self._context is not None
        self.snapshot = Snapshot(self._context.encode(value), self._context.codec)

    def _declared(self) -> Snapshot:
        if self.snapshot is None:
            raise UsageError("this workflow has no context: declare @workflow(context=YourModel)")
        return self.snapshot
