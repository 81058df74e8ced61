"""The adapters that the contract suites run on. A new one joins by one line in `ADAPTERS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.wiring import open_ports
from tests.contract.given import MAX_RECEIVES, START, VISIBILITY, Deployment


def _local(path: str | Path) -> Deployment:
    clock = SkippingClock(START)
    local = open_ports(
        path,
        clock=clock,
        ids=SeededIds(1),
        visibility=VISIBILITY,
        max_receive_count=MAX_RECEIVES,
    )
    return Deployment(
        store=local.store,
        blobs=local.blobs,
        queue=local.queue,
        consumer=local.queue,
        timers=local.timers,
        clock=clock,
        fire_due=lambda: local.timers.fire_due(local.queue),
        dead_letters=local.queue.dead_letters,
        close=local.close,
    )


ADAPTERS: dict[str, Callable[[Path], Deployment]] = {
    "memory": lambda _: _local(":memory:"),
    "sqlite": lambda folder: _local(folder / "stepwell.db"),
}


@pytest.fixture(params=sorted(ADAPTERS))
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    made = ADAPTERS[request.param](tmp_path)
    yield made
    made.close()
