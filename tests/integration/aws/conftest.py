"""The deployment that the tests of the functions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell.testing.plugin import unchecked
from tests.integration.aws.deployment import Deployed, open_deployment


@pytest.fixture
def deployed(request: pytest.FixtureRequest) -> Iterator[Deployed]:
    """An empty deployment, whose runs are checked when the test ends."""
    with open_deployment(unchecked=unchecked(request)) as opened:
        yield opened
