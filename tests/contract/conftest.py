"""The adapters that the contract suites run on. A new one joins by one line in `ADAPTERS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.wiring import open_ports
from tests.contract.given import MAX_RECEIVES, START, VISIBILITY, Deployment
from tests.contract.storage import open_storage


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
        maps=local.ports.maps,
        streams=local.ports.streams,
        store=local.store,
        blobs=local.blobs,
        queue=local.queue,
        consumer=local.queue,
        step_queue=local.step_queue,
        timers=local.timers,
        clock=clock,
        fire_due=lambda: local.timers.fire_due(local.queue),
        dead_letters=local.queue.dead_letters,
        close=local.close,
    )


def _aws(path: str | Path) -> Deployment:
    """Store and blobs on AWS; Lambda is the consumer there, so the queue stays the local one."""
    local = _local(path)
    opened = ExitStack()
    storage = opened.enter_context(open_storage())
    opened.callback(local.close)
    return replace(
        local,
        maps=storage.maps,
        streams=storage.streams,
        store=storage.store,
        blobs=storage.blobs,
        close=opened.close,
    )


ADAPTERS: dict[str, Callable[[Path], Deployment]] = {
    "aws": lambda _: _aws(":memory:"),
    "memory": lambda _: _local(":memory:"),
    "sqlite": lambda folder: _local(folder / "stepwell.db"),
}


@pytest.fixture(params=sorted(ADAPTERS))
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    made = ADAPTERS[request.param](tmp_path)
    yield made
    made.close()
