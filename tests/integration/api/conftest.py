"""The API on a deployment in memory."""

from __future__ import annotations

import pytest

from stepwell.testing import Environment
from tests.integration.api.calls import Api


@pytest.fixture
def api(env: Environment) -> Api:
    """The API, with two workflows published."""
    served = Api(env)
    served.publish()
    return served
