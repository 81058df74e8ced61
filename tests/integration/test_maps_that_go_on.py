"""Whether a dispatched map comes further by itself: while there is work on it, or news of it."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import step, step_hook, workflow
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.core.state import fold
from stepwell.engine.progress import goes_on_elsewhere


@step(dispatch="worker")
async def asks_or_not(question: str) -> str:
    return str(await step_hook("answer")) if question else "nothing"


@workflow
async def asks_elsewhere(questions: list[str]) -> list[str]:
    return await asks_or_not.map(questions)


@pytest.mark.parametrize(
    ("questions", "expected"),
    [
        # The turn that begins it, the item, and no map is left after the turn that ends it.
        ([""], [True, True, False]),
        # The item's row says that it is handed over, and a turn takes that in.
        (["well?"], [True, True, False]),
        # What comes last has its run look, and find nothing new.
        (["well?", ""], [True, True, True, False, False]),
    ],
    ids=["one", "one that asks", "two"],
)
def test_a_map_goes_on_while_there_is_work_or_news(
    questions: list[str], expected: list[bool]
) -> None:
    assert asyncio.run(_looks(questions)) == expected


async def _looks(questions: list[str]) -> list[bool]:
    """What is said after each turn and each attempt, until there are none left."""
    said = []
    with LocalEngine.open(":memory:") as engine:
        handle = await engine.client.start(asks_elsewhere, questions)
        while await engine.take_turn():
            rows = await engine.local.store.load(handle.id)
            state = fold(event for commit in rows.commits for event in commit.events)
            said.append(await goes_on_elsewhere(engine.local.ports.maps, handle.id, state))
    return said
