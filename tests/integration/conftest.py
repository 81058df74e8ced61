"""Deployments whose runs are checked when their test ends, or when it lets them go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepwell.adapters.local.runtime import LocalEngine
from stepwell.testing import Environment
from stepwell.testing.plugin import unchecked
from tests.laws import check_local


@pytest.fixture
def env(request: pytest.FixtureRequest) -> Iterator[Environment]:
    """A deployment in memory."""
    with Environment(unchecked=unchecked(request)) as environment:
        yield environment


@pytest.fixture(autouse=True)
def _engines_leave_sound_runs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the file of a local engine when a test lets the engine go.

    In its place in the class, for tests open engines in many ways, several on one file, and an
    engine in use does not check itself.
    """
    leave, reason = LocalEngine.__exit__, unchecked(request)

    def check_and_leave(engine: LocalEngine, kind: object = None, *rest: object) -> None:
        try:
            if kind is None and reason is None:
                check_local(engine.local, engine._registry)
        finally:
            leave(engine, kind, *rest)

    monkeypatch.setattr(LocalEngine, "__exit__", check_and_leave)


@pytest.fixture
def process(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[..., AbstractContextManager[Environment]]:
    """Processes that share one file, one after the other: `with process() as env`."""
    path = tmp_path / "stepwell.db"
    now: list[Any] = []

    @contextmanager
    def begin(**options: Any) -> Iterator[Environment]:
        options = {"unchecked": unchecked(request), **options}
        with Environment(path=path, seed=len(now), **options) as environment:
            if now:
                environment.clock.move_to(now[-1])
            yield environment
            now.append(environment.clock.now())

    return begin
