"""What a step is given: its arguments as they were at the call, by their types, and for it alone.

A replay does not run the body of a step that has its outcome. Whatever a body could change of the
workflow's own values, the next pass would not see.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    Result,
    RetryPolicy,
    current,
    hook,
    saga,
    sleep,
    start_child,
    step,
    step_hook,
    workflow,
)
from stepwell.core.payload import arguments
from stepwell.testing import Environment

AGAIN = RetryPolicy(max_attempts=2, initial="1m", jitter="none")


class Box(BaseModel):
    items: list[int]


@dataclass
class Cart:
    items: list[int] = field(default_factory=list)


@step(name="arguments.grow")
async def grow(items: list[int]) -> int:
    items.append(9)
    return len(items)


@step(name="arguments.grow_in_thread")
def grow_in_thread(items: list[int]) -> int:
    items.append(9)
    return len(items)


@step(name="arguments.grow_away", dispatch="worker")
async def grow_away(items: list[int]) -> int:
    items.append(9)
    return len(items)


@step(name="arguments.grow_by_name", identity="name")
async def grow_by_name(items: list[int]) -> int:
    items.append(9)
    return len(items)


@step(name="arguments.grow_streaming", stream=True)
async def grow_streaming(items: list[int]) -> AsyncIterator[int | Result[int]]:
    items.append(9)
    yield 1
    yield Result(len(items))


@step(name="arguments.grow_plain")
async def grow_plain(items: Any) -> int:
    items.append(9)
    return len(items)


@step(name="arguments.grow_all")
async def grow_all(*lists: list[int], **named: list[int]) -> int:
    for items in (*lists, *named.values()):
        items.append(9)
    return 2


@step(name="arguments.grow_box")
async def grow_box(box: Box) -> int:
    box.items.append(9)
    return len(box.items)


@step(name="arguments.grow_cart")
async def grow_cart(cart: Cart | None = None) -> int:
    assert cart is not None
    cart.items.append(9)
    return len(cart.items)


async def grow_here(items: list[int]) -> int:
    items.append(9)
    return len(items)


@workflow(name="arguments.grow_child")
async def grow_child(items: list[int]) -> int:
    items.append(9)
    return len(items)


async def mapped(given: Any) -> int:
    [result] = await given
    return int(result)


WAYS: dict[str, Callable[[list[int]], Any]] = {
    "async": grow,
    "def": grow_in_thread.aio,
    "dispatched": grow_away,
    "known by its name": grow_by_name,
    "by name": lambda items: grow(items=items),
    "no annotation": grow_plain,
    "many": grow_all,
    "many by name": lambda items: grow_all(more=items),
    "stream": grow_streaming,
    "key": grow.with_options(key="k"),
    "submitted": lambda items: grow.submit(items).result(),
    "mapped": lambda items: mapped(grow.map([items])),
    "dispatched map": lambda items: mapped(grow_away.map([items])),
    "plain function": lambda items: current.step("here", grow_here, items),
    "model": lambda items: grow_box(Box.model_construct(items=items)),
    "dataclass": lambda items: grow_cart(Cart(items)),
    "child": lambda items: start_child(grow_child, items),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_body_changes_stays_with_it(env: Environment, way: str) -> None:
    seen: list[Any] = []

    @workflow
    async def flow() -> Any:
        items = [1]
        seen.append([await WAYS[way](items), list(items)])
        await sleep("1h")
        return items

    assert env.run_to_end(env.start(flow)) == [1]
    assert seen == [[2, [1]]] * 2


@pytest.mark.parametrize("way", WAYS)
def test_what_the_code_changes_after_the_call_does_not_reach_the_step(
    env: Environment, way: str
) -> None:
    @workflow
    async def flow() -> Any:
        items = [1]

        async def meanwhile() -> None:
            items.append(2)

        return (await asyncio.gather(WAYS[way](items), meanwhile()))[0]

    run = env.start(flow)
    assert env.run_to_end(run) == 2
    assert env.get(run).attention is None


def test_the_next_attempt_and_the_next_entry_begin_with_what_was_given(env: Environment) -> None:
    seen: list[Any] = []

    @step(retry=AGAIN)
    async def again(items: list[int]) -> list[int]:
        seen.append(list(items))
        items.append(current.attempt)
        if current.attempt == 1:
            raise ConnectionError
        items.append(await step_hook("more"))
        return items

    @workflow
    async def flow() -> Any:
        items = [0]
        return [await again(items), items]

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1m")
    [question] = env.hooks(run)
    env.resume_hook(question.token, 7)
    assert env.result(run) == [[0, 2, 7], [0]]
    assert seen == [[0], [0], [0]]


def test_steps_beside_each_other_share_nothing(env: Environment) -> None:
    @workflow
    async def flow() -> Any:
        items = [1]
        return await asyncio.gather(grow(items), grow(items), grow_in_thread.aio(items))

    assert env.run(flow) == [2, 2, 2]


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_a_body_gets_its_arguments_by_their_types(env: Environment, dispatch: Any) -> None:
    kinds: list[str] = []

    @step(dispatch=dispatch)
    async def typed(when: dt.datetime, share: float, box: Box, count: int | None = None) -> None:
        kinds.extend(type(each).__name__ for each in (when, share, box, count))

    @workflow
    async def flow() -> None:
        when: Any = "2030-01-01T00:00:00Z"
        box: Any = {"items": [1]}
        await typed(when, 1, box, count=2)

    env.run(flow)
    assert kinds == ["datetime", "float", "Box", "int"]


def test_a_replay_of_recorded_steps_does_not_carry_their_arguments_again(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def flow() -> Any:
        items = [1]
        await grow(items)
        await grow_away.map([items])
        return await hook("go")

    run = env.start(flow)
    env.run_until_idle()
    carried: list[Any] = []
    monkeypatch.setattr(
        type(grow.definition.arguments), "encode", lambda *given: carried.append(given)
    )
    [question] = env.hooks(run)
    env.resume_hook(question.token, 1)
    assert env.result(run) == 1
    assert carried == []


def test_an_argument_that_does_not_read_back_is_handed_over_as_it_is(env: Environment) -> None:
    @step
    async def either(value: str | dt.date) -> str:
        return type(value).__name__

    @workflow
    async def flow() -> str:
        return await either(dt.date(2030, 1, 1))

    assert env.run(flow) == "date"


def test_a_compensation_is_given_what_its_step_was(env: Environment) -> None:
    undone: list[Any] = []

    async def shrink(result: int, items: list[int]) -> None:
        undone.append([result, list(items)])
        items.clear()

    @step(compensate=shrink)
    async def grows(items: list[int]) -> int:
        items.append(9)
        return len(items)

    @workflow
    async def flow() -> Any:
        items = [1]
        try:
            async with saga():
                await grows(items)
                raise ValueError
        except ValueError:
            return items

    assert env.run(flow) == [1]
    assert undone == [[2, [1]]]


def test_what_is_kept_of_a_call() -> None:
    def called(n: int, text: str | None = None, *more: Any, x: float = 0, **rest: Any) -> None: ...

    carried = arguments(called, "a test")
    carried.digest((1,), {})
    constant: list[Any] = [((1,), {}), ((1, "a"), {}), ((1, None), {"x": 0.5}), ((), {})]
    for args, kwargs in constant:
        assert carried.kept(args, kwargs) is None
    others: list[Any] = [((True,), {}), (("1",), {}), ((1, "a", 2), {}), ((1,), {"y": 1})]
    for args, kwargs in others:
        text = carried.kept(args, kwargs)
        assert text is not None
        assert text == carried.encode(args, kwargs)
    assert carried.kept((object(),), {}) is None
