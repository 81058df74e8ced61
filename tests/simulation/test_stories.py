"""Stories under everything that may go wrong, as chance has it: a fixed choice of seeds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.soak import MIXTURES, Tally, try_once
from tests.simulation.stories import STORIES, Story

SEEDS = 3 * len(MIXTURES)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # a faulty world has much to say
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_whatever_goes_wrong_all_laws_hold(story: Story) -> None:
    tally = Tally()
    wrong = [try_once(story, str(seed), tally) for seed in range(SEEDS)]
    assert [each for each in wrong if each is not None] == []
    assert tally.simulations == SEEDS
    # A seed that no fault came to would be no test of anything.
    assert sum(tally.faults.values()) > SEEDS
