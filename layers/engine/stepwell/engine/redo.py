"""What a retry does again: that which ended the run, and all that the code asked for knowing of it.

An outcome is known to the branch that waited for it, to those that the branch is part of, to what
they begin from then on, and to branches that were cancelled since. What others asked for meanwhile
has nothing to do with it: their successes stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from stepwell.engine.loop import Scope
from stepwell.errors import HookError, MapFailed, StepFailed, StepwellError

#: Where asyncio raises `TimeoutError`.
_TIMEOUTS = ("asyncio.timeouts", "asyncio.tasks")


class _Mark(NamedTuple):
    """When something went wrong: after how many commands, and tasks that were told to end.

    `scopes` are those that know: by path, how many branches each had begun.
    """

    asked: int
    told: int
    scopes: Mapping[str, int]


class Trail:
    """What went wrong in one pass, and where. `asked` and `told` grow as the pass goes on."""

    def __init__(self, asked: Mapping[str, object], told: Sequence[tuple[str, int]]) -> None:
        self._asked = asked
        self._told = told
        self._marks: dict[str, _Mark] = {}
        self._cancel: _Mark | None = None
        self._timer: str | None = None
        self._undone: dict[str, str] = {}

    def failed(self, identity: str, scope: Scope | None) -> None:
        """Something that the code waits for in a scope has ended badly."""
        self._marks[identity] = self._mark(scope)

    def fired(self, timer: str, scope: Scope | None) -> None:
        """A timer of the loop's has fired: perhaps somebody's timeout."""
        self._timer = timer
        self._marks[timer] = self._mark(scope)

    def undone(self, step: str, compensation: str) -> None:
        """A step is being undone by another one."""
        self._undone[compensation] = step

    def cancelled(self, scope: Scope) -> None:
        """The workflow was told that its run is cancelled."""
        self._cancel = self._mark(scope)

    def _mark(self, scope: Scope | None) -> _Mark:
        scopes: dict[str, int] = {}
        while scope is not None:
            scopes[scope.path] = scope.children
            scope = scope.parent
        return _Mark(len(self._asked), len(self._told), scopes)

    def redo(self, error: BaseException | None) -> tuple[str, ...]:
        """The ids of what a retry does again, after a pass that ended with this error."""
        causes = [] if error is None else [*self._causes(error)]
        marks = [self._marks[cause] for cause in causes]
        if self._cancel is not None:
            marks.append(self._cancel)
        found = dict.fromkeys(causes)
        for mark in marks:
            found |= dict.fromkeys(self._after(mark))
        # What was undone on the way to this end has to be done again, to be undone again or not.
        undone = [step for by, step in self._undone.items() if by in found]
        # An item of a dispatched map is made again with its map.
        maps = [step.partition("#")[0] for step in undone if "#" in step]
        return tuple(found | dict.fromkeys(undone) | dict.fromkeys(maps))

    def _causes(self, error: BaseException) -> Iterator[str]:
        for each in _chain(error):
            identity = (self._timer if _is_timeout(each) else _subject(each)) or ""
            # An item of a dispatched map is no command of its own, the map is.
            for one in (identity, identity.partition("#")[0]):
                if one in self._marks:
                    yield one
                    break

    def _after(self, mark: _Mark) -> Iterator[str]:
        knowing = {**dict(islice(self._told, mark.told, None)), **mark.scopes}
        for identity in islice(self._asked, mark.asked, None):
            if _knows(identity, knowing):
                yield identity


def _knows(identity: str, knowing: Mapping[str, int]) -> bool:
    if "=" in identity or "@" in identity:
        return True  # a key tells nothing of where it was asked for
    path = identity.rpartition("/")[0]
    if path in knowing:
        return True
    parts = path.split(".")
    for depth, part in enumerate(parts if path else ()):
        begun = knowing.get(".".join(parts[:depth]))
        if begun is not None and (not part.isdecimal() or int(part) > begun):
            return True
    return False


def _subject(error: BaseException) -> str | None:
    if isinstance(error, StepFailed):
        return error.step
    if isinstance(error, MapFailed):
        return error.map
    if isinstance(error, HookError):
        return error.hook
    child = getattr(error, "child_id", None) if isinstance(error, StepwellError) else None
    return child if isinstance(child, str) else None


def _is_timeout(error: BaseException) -> bool:
    if not isinstance(error, TimeoutError):
        return False
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_next is None:
            return trace.tb_frame.f_globals.get("__name__") in _TIMEOUTS
        trace = trace.tb_next
    return False


def _chain(error: BaseException) -> Collection[BaseException]:
    """The error, what it was raised from or while handling, and what is grouped in any of these."""
    found: dict[int, BaseException] = {}
    left = [error]
    while left:
        each = left.pop()
        if id(each) in found:
            continue
        found[id(each)] = each
        left += [one for one in (each.__cause__, each.__context__) if one is not None]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        if isinstance(each, MapFailed):
            errors = [getattr(item, "error", None) for item in each.result]
            left += [one for one in errors if one is not None]
    return found.values()
