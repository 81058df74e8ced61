"""An engine, and workflows that wait for something."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import RetryPolicy, hook, sleep, step, workflow
from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.adapters.local.wiring import open_ports
from stepwell.authoring.registry import registry
from stepwell.engine.settings import Settings
from tests.integration.sweep.given import MAX_RECEIVES, NOW, VISIBILITY, Given


@pytest.fixture
def given() -> Iterator[Given]:
    clock = SkippingClock(NOW)
    local = open_ports(
        ":memory:",
        clock=clock,
        ids=SeededIds(1),
        visibility=VISIBILITY,
        max_receive_count=MAX_RECEIVES,
    )
    settings = Settings(keyring=keyring_of(local.database))
    with (
        asyncio.Runner() as runner,
        LocalEngine(local, registry=registry, settings=settings) as engine,
    ):
        yield Given(local, engine, clock, runner.run)


@pytest.fixture
def ask() -> Any:
    @workflow
    async def ask() -> str:
        return str(await hook("answer", timeout="1h", on_timeout="return"))

    return ask


@pytest.fixture
def nap() -> Any:
    @workflow
    async def nap() -> str:
        await sleep("10m")
        return "rested"

    return nap


@pytest.fixture
def far() -> Any:
    @step(dispatch="worker", retry=RetryPolicy(max_attempts=2, initial="1s"))
    async def far() -> int:
        return 7

    @workflow
    async def goes_far() -> int:
        return await far()

    return goes_far
