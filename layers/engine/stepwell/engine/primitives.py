"""Primitives that a pass has made, to find those that its code never awaited."""

from __future__ import annotations

from collections.abc import Coroutine
from types import CodeType
from typing import Any

from stepwell.authoring.context import never_awaited
from stepwell.errors import UsageError

#: Above this many primitives, those that were awaited are dropped from the list.
_MANY = 1_000


class Primitives:
    """The primitives of one pass, and where each was called."""

    def __init__(self) -> None:
        self._made: list[tuple[Coroutine[Any, Any, Any], str, CodeType, int]] = []
        self._many = _MANY

    def add(
        self, primitive: Coroutine[Any, Any, Any], name: str, code: CodeType, line: int
    ) -> None:
        """A primitive was called there and is to be awaited."""
        made = self._made
        if made and not never_awaited(made[-1][0]):
            made.pop()  # code that does one thing after the other has one here at a time
        if len(made) >= self._many:
            self._made = made = [each for each in made if never_awaited(each[0])]
            self._many = max(2 * len(made), _MANY)
        made.append((primitive, name, code, line))

    def forgotten(self) -> UsageError | None:
        """What to tell about a primitive that was called and never awaited; it did nothing."""
        for primitive, name, code, line in self._made:
            if never_awaited(primitive):
                return UsageError(
                    f"{name!r} was called in {code.co_qualname} ({code.co_filename}:{line}) and "
                    f"never awaited, so it did nothing: write await {name}(...)"
                )
        return None

    def close(self) -> None:
        """The pass is over: the code would have come to await the rest, or has been told."""
        for primitive, *_ in self._made:
            if never_awaited(primitive):
                primitive.close()
        self._made.clear()
