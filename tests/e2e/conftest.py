"""One emulator for all tests here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from examples.outside import Outside
from tests.contract.given import Deployment
from tests.e2e.emulator import Emulator, running
from tests.e2e.ports import open_deployment
from tests.e2e.stack import Stack, deploy, what_was_seen

_SEEN = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """An empty AWS. All clients of this process speak to it."""
    folder = tmp_path_factory.mktemp("emulator")
    outside = {"EXAMPLES_OUTSIDE": str(folder / "outside.sqlite3")}
    with running(folder, **outside) as started, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in started.environment().items():
            patch.setenv(name, value)
        yield started


@pytest.fixture(scope="session")
def stack(emulator: Emulator, pytestconfig: pytest.Config) -> Iterator[Stack]:
    """The template, deployed."""
    began = time.monotonic()
    deployed = deploy(emulator)
    took = time.monotonic() - began
    yield deployed
    pytestconfig.stash[_SEEN] = [f"deployed in {took:.0f} s", *what_was_seen(deployed)]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what the stack came to."""
    if _SEEN in config.stash:
        terminalreporter.section("what was seen on the stack")
        for line in config.stash[_SEEN]:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def world(emulator: Emulator) -> Iterator[Outside]:
    """What the workflows did outside."""
    opened = Outside(emulator.folder / "outside.sqlite3")
    yield opened
    opened.close()


@pytest.fixture
def deployment(emulator: Emulator) -> Iterator[Deployment]:
    """All ports, on resources of their own."""
    made = open_deployment(emulator)
    yield made
    made.close()
