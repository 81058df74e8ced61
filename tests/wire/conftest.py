"""What the tests on the wire are given: a door, and adapters that go through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.wire import Wire, open_wire


@pytest.fixture(scope="module")
def opened() -> Iterator[Wire]:
    """One door for a whole module: to make the clients takes longer than to use them."""
    with open_wire() as made:
        yield made


@pytest.fixture
def wire(opened: Wire) -> Wire:
    """The door without faults, and an empty account behind it."""
    opened.afresh()
    return opened
