"""What can be declared, and what the decorators refuse."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Result, RetryPolicy, step, workflow
from stepwell.errors import DefinitionError


def test_bare_and_with_options_on_both_colours() -> None:
    @step
    async def one(n: int) -> int:
        """Says one."""
        return n

    @step(name="two-x", timeout="1m", retry=RetryPolicy(max_attempts=2))
    def two(n: int) -> int:
        return n

    @workflow(name="flow.x", version="7")
    async def flow() -> None: ...

    assert (one.definition.name, one.definition.colour) == ("one", "async")
    assert (two.definition.name, two.definition.colour) == ("two-x", "sync")
    assert (two.definition.timeout, two.definition.retry.max_attempts) == (60_000, 2)
    assert one.definition.retry.max_attempts == 4
    assert (flow.definition.name, flow.definition.version) == ("flow.x", "7")
    assert (one.__name__, one.__doc__) == ("one", "Says one.")
    assert list(inspect.signature(one).parameters) == ["n"]
    assert (repr(one), repr(two), repr(flow)) == (
        "<step 'one'>", "<step 'two-x'>", "<workflow 'flow.x'>"
    )  # fmt: skip


def test_a_streaming_step_knows_the_types_of_chunk_and_result() -> None:
    @step(stream=True)
    async def talk() -> AsyncIterator[str | Result[int]]:
        yield "a"
        yield Result(3)

    assert talk.definition.colour == "stream"
    assert talk.definition.result.decode("3") == 3
    assert talk.definition.chunk is not None
    assert talk.definition.chunk.decode('"a"') == "a"


@pytest.mark.parametrize("timeout", [0, "0s", timedelta(0)])
def test_a_timeout_of_nothing_is_refused(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match="step 'quick': timeout must be above zero"):

        @step(timeout=timeout)
        async def quick() -> None: ...


@pytest.mark.parametrize("timeout", [-1, "soon", "5", True, float("nan")])
def test_a_timeout_that_is_no_duration_is_refused(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match="step 'quick': timeout"):

        @step(timeout=timeout)
        async def quick() -> None: ...


def test_identity_is_one_of_two() -> None:
    with pytest.raises(DefinitionError, match="'nam'"):

        @step(identity="nam")  # type: ignore[call-overload]
        async def quick() -> None: ...


def test_what_cannot_be_recorded_is_refused() -> None:
    async def chunks() -> AsyncIterator[int]:
        yield 1

    def numbers() -> Iterator[int]:
        yield 1

    async def plain() -> None: ...

    with pytest.raises(DefinitionError, match="declare it with stream=True"):
        step(chunks)
    with pytest.raises(DefinitionError, match="takes an async generator function"):
        step(stream=True)(plain)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="a generator cannot be recorded"):
        step(numbers)
    with pytest.raises(DefinitionError, match="cannot be a generator"):
        workflow(chunks)
    with pytest.raises(DefinitionError, match="a generator cannot be recorded"):
        workflow(numbers)
    with pytest.raises(DefinitionError, match="decorate a function"):
        step(name="x")(int)
    with pytest.raises(DefinitionError, match="step name '<lambda>'"):
        step(lambda: None)


@pytest.mark.parametrize("name", ["a b", "1st", "a/b", "a:b", "a@b", "ä"])
def test_a_name_that_cannot_stand_in_an_id_is_refused(name: str) -> None:
    async def body() -> None: ...

    with pytest.raises(DefinitionError, match="step name"):
        step(name=name)(body)
    with pytest.raises(DefinitionError, match="workflow name"):
        workflow(name=name)(body)


@pytest.mark.parametrize(
    ("timeout", "dispatch", "expected"),
    [
        (None, None, "inline"),
        ("60s", None, "inline"),
        ("60001ms", None, "worker"),
        ("1h", None, "worker"),
        ("1h", "inline", "inline"),
        (None, "worker", "worker"),
        ("1s", "worker", "worker"),
    ],
)
def test_a_step_is_dispatched_when_it_says_so_or_may_take_more_than_a_minute(
    timeout: Any, dispatch: Any, expected: str
) -> None:
    @step(timeout=timeout, dispatch=dispatch)
    async def one() -> None: ...

    assert one.definition.dispatch == expected


def test_a_streaming_step_can_be_dispatched() -> None:
    @step(stream=True, dispatch="worker")
    async def told() -> AsyncIterator[str | Result[int]]:
        yield Result(1)

    assert told.definition.dispatch == "worker"


@pytest.mark.parametrize("dispatch", ["", "Worker", "elsewhere", True, 1])
def test_dispatch_is_one_of_two(dispatch: Any) -> None:
    with pytest.raises(DefinitionError, match='dispatch is "inline" or "worker"'):

        @step(dispatch=dispatch)
        async def one() -> None: ...
