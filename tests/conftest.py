"""What every test shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell.authoring.registry import registry


@pytest.fixture(autouse=True)
def _definitions_stay_in_their_test() -> Iterator[None]:
    with registry.isolated():
        yield
