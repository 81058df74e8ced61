"""Deployments whose histories are checked when their test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepwell.testing import Environment
from tests.integration.histories import check_all


@pytest.fixture
def env() -> Iterator[Environment]:
    """A deployment in memory."""
    with Environment() as environment:
        yield environment
        check_all(environment)


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., AbstractContextManager[Environment]]:
    """Processes that share one file, one after the other: `with process() as env`."""
    path = tmp_path / "stepwell.db"
    now: list[Any] = []

    @contextmanager
    def begin(**options: Any) -> Iterator[Environment]:
        with Environment(path=path, seed=len(now), **options) as environment:
            if now:
                environment.clock.move_to(now[-1])
            yield environment
            check_all(environment)
            now.append(environment.clock.now())

    return begin
