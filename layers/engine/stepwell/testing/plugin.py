"""The pytest plugin: a fresh environment per test, and definitions that stay in their test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell.authoring.registry import registry
from stepwell.testing.environment import Environment

_MARKER = "breaks_laws(reason): the runs of this test need not obey the laws that others do"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of this plugin."""
    config.addinivalue_line("markers", _MARKER)


def unchecked(request: pytest.FixtureRequest) -> str | None:
    """Why the laws are not checked at the end of a test; None when they are."""
    marker = request.node.get_closest_marker("breaks_laws")
    if marker is None:
        return None
    given = [*marker.args, *marker.kwargs.values()]
    if len(given) != 1 or not isinstance(given[0], str) or not given[0].strip():
        raise pytest.UsageError('breaks_laws takes a reason: @pytest.mark.breaks_laws("why")')
    return given[0]


@pytest.fixture
def stepwell_env(request: pytest.FixtureRequest) -> Iterator[Environment]:
    """An in-memory deployment with a clock that skips.

    Workflows and steps that the test defines in its body are gone after it. When it ends its runs
    are checked, see `Environment.check`; a test that tampers with them says so, with
    `@pytest.mark.breaks_laws("why")`.
    """
    with (
        registry.isolated(keep_modules=True),
        Environment(unchecked=unchecked(request)) as environment,
    ):
        yield environment
