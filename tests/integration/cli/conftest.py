"""A shell for each test, and one with runs in it for tests that only look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepwell.testing.plugin import unchecked
from tests.integration.cli.shell import Shell


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path, bytecode: Path) -> Iterator[Shell]:
    made = Shell(tmp_path, bytecode)
    yield made
    made.close(unchecked=unchecked(request))


@dataclass(frozen=True)
class Standing:
    """A shell in whose file some runs stand."""

    shell: Shell
    completed: Any
    failed: Any
    waiting: Any
    answered: Any


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory, bytecode: Path) -> Iterator[Standing]:
    shell = Shell(tmp_path_factory.mktemp("standing"), bytecode)
    answered = shell.started("app:approve", ["plan"])
    shell.answered(answered, {"approved": True, "note": "go"})
    assert shell("worker", "app", "--until-idle").code == 0
    yield Standing(
        shell=shell,
        answered=answered,
        completed=shell("run", "app:stumbles", "--json").json,
        failed=shell("run", "app:fails", "--json").json,
        waiting=shell.started("app:approve", ["offer"]),
    )
    shell.close()
