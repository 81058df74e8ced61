"""Fan-out: one step over many items. What a map may be told, when it ends, and what it came to.

Pure: it counts outcomes and says whether they suffice. Who runs the items, and where, is left to
others; a map of items inside a run, outside of one, and of dispatched ones all end by this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from stepwell.errors import MapFailed, UsageError

T = TypeVar("T")

OnError = Literal["fail", "collect"]
ItemStatus = Literal["completed", "failed", "cancelled"]
#: "enough": what was asked for is there; "failed": it cannot come any more.
Verdict = Literal["enough", "failed"]
#: Items of one map. More than any run has room for; a generator that never ends is found by it.
MOST_ITEMS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions:
    """What a map was told. Raises `UsageError` on what does not fit together."""

    max_concurrency: int | None = None
    on_error: OnError | None = None
    min_successful: int | None = None
    tolerated_failures: int | None = None

    def __post_init__(self) -> None:
        if self.on_error not in (None, "fail", "collect"):
            raise UsageError(f'map: on_error is "fail" or "collect", not {self.on_error!r}')
        _check_number("max_concurrency", self.max_concurrency, 1)
        _check_number("min_successful", self.min_successful, 1)
        _check_number("tolerated_failures", self.tolerated_failures, 0)
        if self.on_error == "fail" and self._counts:
            raise UsageError(
                'map: on_error="fail" ends with the first failure, so it goes neither with '
                "min_successful nor with tolerated_failures"
            )

    @property
    def _counts(self) -> bool:
        return self.min_successful is not None or self.tolerated_failures is not None

    @property
    def collects(self) -> bool:
        """Whether the map gives a `MapResult`; else a list of results, or its first failure."""
        return self._counts or self.on_error == "collect"

    def verdict(self, total: int, completed: int, failed: int) -> Verdict | None:
        """Whether a map of `total` items has ended with so many outcomes; None: it goes on."""
        if self.min_successful is not None:
            if completed >= self.min_successful:
                return "enough"
            if total - failed < self.min_successful:
                return "failed"
        if self.tolerated_failures is not None and failed > self.tolerated_failures:
            return "failed"
        if failed and not self.collects:
            return "failed"
        return "enough" if completed + failed >= total else None

    def why_failed(self, total: int, failed: int) -> str:
        """What to say of a map whose verdict is "failed"."""
        said = f"{failed:,} of {total:,} items failed"
        if self.tolerated_failures is not None and failed > self.tolerated_failures:
            return f"{said}, and {self.tolerated_failures:,} may"
        return f"{said}, so the {self.min_successful or 0:,} that have to succeed cannot"


def _check_number(option: str, value: int | None, least: int) -> None:
    fits = value is None or (
        isinstance(value, int) and not isinstance(value, bool) and value >= least
    )
    if not fits:
        raise UsageError(f"map: {option} is a whole number from {least} up, not {value!r}")


@dataclass(frozen=True, slots=True)
class ItemOutcome(Generic[T]):
    """What one item of a map came to. `index` is its place in the input, from 0.

    `result` is there when it completed, `error` when it failed: in a run a `StepFailed`. A
    cancelled one was not needed any more; it may have been under way.
    """

    index: int
    status: ItemStatus
    result: T | None = None
    error: Exception | None = None


class MapResult(Sequence[ItemOutcome[T]]):
    """What a map came to: one outcome for each item, in the order of the input."""

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Sequence[ItemOutcome[T]]) -> None:
        self._outcomes = tuple(outcomes)

    @property
    def results(self) -> list[T]:
        """Results of the items that completed, in the order of the input."""
        return [each.result for each in self._outcomes if each.status == "completed"]  # type: ignore[misc]

    @property
    def errors(self) -> list[Exception]:
        """Errors of the items that failed, in the order of the input."""
        return [each.error for each in self._outcomes if each.error is not None]

    @overload
    def __getitem__(self, index: int) -> ItemOutcome[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ItemOutcome[T]]: ...
    def __getitem__(self, index: int | slice) -> ItemOutcome[T] | Sequence[ItemOutcome[T]]:
        return self._outcomes[index]

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        completed, failed = len(self.results), len(self.errors)
        return f"<map of {len(self)} items: {completed} completed, {failed} failed>"


class Board(Generic[T]):
    """Where the outcomes of one map come together. It changes with each of them.

    `verdict` is set by the outcome that ends the map, and stays; what comes later is dropped.
    """

    def __init__(self, options: MapOptions, total: int) -> None:
        self._options = options
        self._outcomes: list[ItemOutcome[T] | None] = [None] * total
        self._completed = 0
        self._failed = 0
        self._first: Exception | None = None
        self.verdict = options.verdict(total, 0, 0)

    def complete(self, index: int, result: T) -> None:
        """An item has its result."""
        if self.verdict is None:
            self._completed += 1
            self._put(ItemOutcome(index, "completed", result))

    def fail(self, index: int, error: Exception) -> None:
        """An item failed for good."""
        if self.verdict is None:
            self._failed += 1
            self._first = self._first or error
            self._put(ItemOutcome(index, "failed", None, error))

    def put(self, index: int, status: ItemStatus, outcome: Any) -> None:
        """Put a recorded outcome of a map that has ended: all of them count, in any order."""
        if status == "completed":
            self._completed += 1
            self._outcomes[index] = ItemOutcome(index, "completed", outcome)
        else:
            self._failed += 1
            self._first = self._first or outcome
            self._outcomes[index] = ItemOutcome(index, "failed", None, outcome)
        self.verdict = self._options.verdict(len(self._outcomes), self._completed, self._failed)

    def _put(self, outcome: ItemOutcome[T]) -> None:
        self._outcomes[outcome.index] = outcome
        self.verdict = self._options.verdict(len(self._outcomes), self._completed, self._failed)

    def result(self, identity: str, name: str) -> list[T] | MapResult[T]:
        """What the map came to. Raises its first failure, or `MapFailed`."""
        if not self._options.collects and self._first is not None:
            raise self._first
        found: MapResult[T] = MapResult(
            [each or ItemOutcome(n, "cancelled") for n, each in enumerate(self._outcomes)]
        )
        if self.verdict == "failed":
            why = self._options.why_failed(len(self._outcomes), self._failed)
            raise MapFailed(identity, name, why, found)
        return found if self._options.collects else found.results
