"""Fan-out: `step.map(items)` runs a step over many items, `step.submit(...)` one beside the rest.

Both come with every step. In an `async` workflow they are awaited, in a `def`
one they block; outside of a run they call the step's function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import islice
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from stepwell.authoring.context import RUN, RunContext, Submitted, coloured
from stepwell.core.definitions import StepDefinition
from stepwell.core.fan_out import MOST_ITEMS, Board, MapOptions, MapResult, OnError
from stepwell.core.ids import check_key
from stepwell.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Key = Callable[[Any], str]


class Ticket(Generic[T]):
    """A step that was submitted and goes on beside the code that submitted it.

    Await the ticket itself or `result()`; in a `def` workflow call `result()`. If the run ends
    first, the step is cancelled.
    """

    def __init__(self, submitted: Submitted, run: RunContext | None) -> None:
        self._submitted = submitted
        self._run = run

    @property
    def done(self) -> bool:
        """Whether it has completed, failed or been cancelled; the same on every replay."""
        return self._submitted.done

    def result(self) -> Any:
        """Wait for the step and return its result, as often as is asked.

        Raises what the step failed with; `asyncio.CancelledError` when the ticket was cancelled.
        Whoever stops waiting does not stop the step.
        """
        outcome = self._submitted.outcome()
        if self._run is None:
            return outcome if _in_a_loop() else asyncio.run(outcome)
        return coloured(self._run, outcome)

    def cancel(self) -> None:
        """Wait for the step no more: it is cancelled if it has not ended. Never an error."""
        self._submitted.cancel()

    def __await__(self) -> Generator[Any, Any, T]:
        """The step's result, in `async` code."""
        outcome: Coroutine[Any, Any, T] = self._submitted.outcome()
        return outcome.__await__()

    def __repr__(self) -> str:
        return f"<ticket: {'done' if self.done else 'under way'}>"


class FanOut(Generic[P, R]):
    """What every step offers besides calling it; how it is mapped is typed by its colour."""

    definition: StepDefinition
    key: str | None

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Ticket[R]:
        """Begin the step at once and go on beside it; its outcome is had from the ticket."""
        return submit_step(self.definition, args, kwargs, self.key)


class AsyncFanOut(FanOut[P, R]):
    """What a step made from `async def` offers besides calling it."""

    @overload
    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrency: int | None = None,
        on_error: Literal["fail"] | None = None,
        min_successful: None = None,
        tolerated_failures: None = None,
        key: Key | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrency: int | None = None,
        on_error: Literal["collect"],
        min_successful: int | None = None,
        tolerated_failures: int | None = None,
        key: Key | None = None,
    ) -> Coroutine[Any, Any, MapResult[R]]: ...
    @overload
    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrency: int | None = None,
        on_error: OnError | None = None,
        min_successful: int,
        tolerated_failures: int | None = None,
        key: Key | None = None,
    ) -> Coroutine[Any, Any, MapResult[R]]: ...
    @overload
    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrency: int | None = None,
        on_error: OnError | None = None,
        min_successful: None = None,
        tolerated_failures: int,
        key: Key | None = None,
    ) -> Coroutine[Any, Any, MapResult[R]]: ...
    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrency: int | None = None,
        on_error: OnError | None = None,
        min_successful: int | None = None,
        tolerated_failures: int | None = None,
        key: Key | None = None,
    ) -> Any:
        """Run the step once for each item, side by side: the item is its one argument.

        By default a list of results in the order of the items, and the first failure is raised and
        cancels the others at once. `on_error="collect"` gives a `MapResult` with an outcome for
        each item. `min_successful=k` gives one as soon as k have succeeded, and cancels the others;
        with `tolerated_failures=n` the map goes on while no more than n have failed. Where that is
        not to be had any more, `MapFailed` is raised. `max_concurrency` is how many run at a time;
        one that waits for a hook or its next attempt lets another begin.

        Each item is a step of its own, known by its index, or by `key(item)`, which has to be
        different for each. Raises `UsageError` on options that do not fit, on a set, whose order is
        lost, and on more than 100,000 items.
        """
        options = MapOptions(
            max_concurrency=max_concurrency,
            on_error=on_error,
            min_successful=min_successful,
            tolerated_failures=tolerated_failures,
        )
        return map_step(self.definition, items, options, of=self.key, key=key)


class SyncFanOut(FanOut[P, R]):
    """What a step made from `def` offers besides calling it."""

    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrency: int | None = None,
        on_error: OnError | None = None,
        min_successful: int | None = None,
        tolerated_failures: int | None = None,
        key: Key | None = None,
    ) -> Any:
        """Run the step once for each item, side by side; awaited in an `async` workflow.

        Options, results and errors are those of `AsyncFanOut.map`.
        """
        options = MapOptions(
            max_concurrency=max_concurrency,
            on_error=on_error,
            min_successful=min_successful,
            tolerated_failures=tolerated_failures,
        )
        return map_step(self.definition, items, options, of=self.key, key=key)


def map_step(
    definition: StepDefinition,
    items: Iterable[Any],
    options: MapOptions,
    *,
    of: str | None,
    key: Key | None,
) -> Any:
    """What `step.map` does; see there. `of` is the key of the step's call, which a map has not."""
    if of is not None:
        raise UsageError(
            f"step {definition.name!r}: with_options(key=...) names one call; name the items of a "
            "map with map(items, key=...)"
        )
    taken = _taken(definition.name, items)
    keys = None if key is None else _keys(definition.name, taken, key)
    run = RUN.get()
    if run is not None:
        return coloured(run, run.map(definition, taken, keys, options))
    if definition.colour == "sync" and not _in_a_loop():
        return _one_by_one(definition, taken, options)
    return _side_by_side(definition, taken, options)


def submit_step(
    definition: StepDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None
) -> Ticket[Any]:
    """What `step.submit` does; see there."""
    run = RUN.get()
    if run is None:
        return Ticket(_Plain(definition, args, kwargs), None)

    async def submit() -> Submitted:
        return run.submit(definition, args, kwargs, key)

    # The thread of a def workflow touches nothing of the run's itself.
    submitted = run.wait(submit()) if run.blocking else run.submit(definition, args, kwargs, key)
    return Ticket(submitted, run)


def _taken(name: str, items: Iterable[Any]) -> tuple[Any, ...]:
    """The items, each taken once."""
    if isinstance(items, set | frozenset):
        raise UsageError(
            f"step {name!r}: a set comes in another order on every pass: map over sorted(...)"
        )
    try:
        taken = tuple(islice(items, MOST_ITEMS + 1))
    except TypeError:
        if isinstance(items, Iterable):
            raise  # of the generator's own
        raise UsageError(
            f"step {name!r}: map takes items to go over, not {type(items).__name__}"
        ) from None
    if len(taken) > MOST_ITEMS:
        raise UsageError(
            f"step {name!r}: one map takes at most {MOST_ITEMS:,} items; split the work, and start "
            "a run of its own for each part"
        )
    return taken


def _keys(name: str, items: tuple[Any, ...], key: Key) -> tuple[str, ...]:
    keys = tuple(check_key(f"map of step {name!r}, item", key(item)) for item in items)
    if len(set(keys)) < len(keys):
        twice = next(each for n, each in enumerate(keys) if each in keys[:n])
        raise UsageError(f"step {name!r}: two items of one map have the key {twice!r}")
    return keys


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _called(definition: StepDefinition, args: Any, kwargs: Any) -> Any:
    value = definition.function(*args, **kwargs)
    return await value if definition.colour == "async" else value


def _one_by_one(definition: StepDefinition, items: tuple[Any, ...], options: MapOptions) -> Any:
    board: Board[Any] = Board(options, len(items))
    for index, item in enumerate(items):
        if board.verdict is not None:
            break
        try:
            board.complete(index, definition.function(item))
        except Exception as error:
            board.fail(index, error)
    return board.result(f"{definition.name}*", definition.name)


async def _side_by_side(
    definition: StepDefinition, items: tuple[Any, ...], options: MapOptions
) -> Any:
    board: Board[Any] = Board(options, len(items))
    left = iter(enumerate(items))

    async def lane() -> None:
        for index, item in left:
            try:
                board.complete(index, await _called(definition, (item,), {}))
            except Exception as error:
                board.fail(index, error)
            if board.verdict is not None:
                over.set()
                return

    over = asyncio.Event()
    if board.verdict is None:
        lanes = min(options.max_concurrency or len(items), len(items))
        tasks = [asyncio.ensure_future(lane()) for _ in range(lanes)]
        try:
            await over.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return board.result(f"{definition.name}*", definition.name)


class _Plain(Submitted):
    """A step that was submitted outside of a run: a task, or, of a `def` step, what it returned."""

    def __init__(self, definition: StepDefinition, args: Any, kwargs: Any) -> None:
        self._task: asyncio.Future[Any] | None = None
        self._value: Any = None
        self._error: Exception | None = None
        if definition.colour == "async":
            self._task = asyncio.ensure_future(_called(definition, args, kwargs))
            return
        try:
            self._value = definition.function(*args, **kwargs)
        except Exception as error:
            self._error = error

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._task is None or self._task.done()

    def cancel(self) -> None:
        """Cancel it, if it has not ended."""
        if self._task is not None:
            self._task.cancel()

    async def outcome(self) -> Any:
        """Wait for its result."""
        if self._task is not None:
            return await asyncio.shield(self._task)
        if self._error is not None:
            raise self._error
        return self._value
