"""The deployment that the tests of the functions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.aws.deployment import Deployed, open_deployment


@pytest.fixture
def deployed() -> Iterator[Deployed]:
    """An empty deployment."""
    with open_deployment() as opened:
        yield opened
