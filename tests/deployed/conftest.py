"""One deployment for all tests, empty again for each, and the world outside of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.outside import Outside, connect
from stepwell.testing.plugin import unchecked
from tests.deployed.driving import check, forget
from tests.deployed.pump import Deployment, deployed


@pytest.fixture(scope="session")
def _deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Outside]]:
    """Bank, mailbox and model provider in a file that the functions share, and the deployment."""
    folder = tmp_path_factory.mktemp("deployed")
    file = folder / "outside.sqlite3"
    world = connect(file)
    with deployed(folder, EXAMPLES_OUTSIDE=str(file)) as deployment:
        yield deployment, world
    world.close()


@pytest.fixture
def world(_deployed: tuple[Deployment, Outside]) -> Outside:
    """What the workflows did outside."""
    return _deployed[1]


@pytest.fixture
def aws(
    request: pytest.FixtureRequest, _deployed: tuple[Deployment, Outside]
) -> Iterator[Deployment]:
    """What was built, deployed and at rest, with its workflows published and no run.

    What is left of runs in it when the test ends has to obey the laws.
    """
    deployment = _deployed[0]
    forget(deployment)
    yield deployment
    if unchecked(request) is None:
        check(deployment)
