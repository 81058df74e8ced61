"""The pytest plugin: a fresh environment per test, and definitions that stay in their test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell.authoring.registry import registry
from stepwell.testing.environment import Environment


@pytest.fixture
def stepwell_env() -> Iterator[Environment]:
    """An in-memory deployment with a clock that skips.

    Workflows and steps that the test defines in its body are gone after it.
    """
    with registry.isolated(keep_modules=True), Environment() as environment:
        yield environment
