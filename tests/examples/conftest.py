"""A fresh world outside for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.outside import Outside, connect


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Outside]:
    """Bank, mailbox and model provider, in a file of the test's folder."""
    connected = connect(tmp_path / "outside.sqlite3")
    yield connected
    connected.close()
