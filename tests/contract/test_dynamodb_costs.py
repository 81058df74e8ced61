"""What the design's reference runs cost on the table, in units of items as they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stepwell import sleep, step, step_hook, workflow
from stepwell.client import Client
from stepwell.testing import Environment
from tests.contract.meter import Meter
from tests.contract.storage import REGION, Storage, open_storage


class EnvironmentOnAws(Environment):
    """Store and blobs on AWS; queue, timers and clock stay local."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self.meter = Meter(storage.table, REGION)
        ports = replace(
            self._local.ports, store=storage.store, blobs=storage.blobs, maps=storage.maps
        )
        self._ports = self._crasher.wrap(ports)
        self._engine.close()
        self._engine = self._new_engine()
        self.client = Client(ports, self._settings)


@pytest.fixture
def env() -> Iterator[EnvironmentOnAws]:
    with open_storage() as storage, EnvironmentOnAws(storage) as environment:
        yield environment


@step
async def add_one(value: int) -> int:
    return value + 1


@workflow
async def five_steps(value: int) -> int:
    for _ in range(5):
        value = await add_one(value)
    return value


@step
async def ask_somebody() -> int:
    answer: int = await step_hook("question", timeout="24h")
    return answer


@workflow
async def five_steps_around_a_hook(value: int) -> int:
    value = await add_one(await add_one(value))
    value += await ask_somebody()
    return await add_one(await add_one(value))


@workflow
async def nap(value: int) -> int:
    await sleep("1h")
    return value


@step(dispatch="worker")
async def work(value: int) -> int:
    return value + 1


@workflow
async def dispatches(value: int) -> int:
    return await work(value)


def test_five_steps_stay_in_the_budget(env: EnvironmentOnAws) -> None:
    env.run(five_steps, 0)  # from here on the workflow's name is known
    env.meter.reset()
    run = env.start(five_steps, 0)
    env.run_until_idle()
    # The header and its entry in index `runs`, five commits, the header at the end.
    assert (env.meter.written, env.meter.read) == (8, 1)
    assert env.result(run) == 5


def test_a_step_hook_stays_in_the_budget(env: EnvironmentOnAws) -> None:
    env.run(five_steps, 0)
    env.start(five_steps_around_a_hook, 0)
    env.run_until_idle()
    env.meter.reset()
    run = env.start(five_steps_around_a_hook, 0)
    env.run_until_idle()
    with env.meter.paused():
        (token,) = (found.token for found in env.hooks(run))
    env.resume_hook(token, 40)
    # Of the two only the hook enters index `wanted`, and leaves it: 2 units.
    assert (env.meter.written, env.meter.read) == (15, 4)
    assert env.result(run) == 44


def test_a_sleep_costs_a_commit_a_header_and_its_entry_in_and_out(env: EnvironmentOnAws) -> None:
    env.start(nap, 0)  # from here on the workflow's name is known
    env.run_until_idle()
    env.advance("1h")
    env.meter.reset()
    run = env.start(nap, 1)
    env.run_until_idle()
    # The header and its entry in `runs`; a commit, the header and its entry in `wanted`.
    assert env.meter.written == 5
    env.advance("1h")
    # The last commit, the header, and the entry taken out.
    assert (env.meter.written, env.meter.read) == (8, 2)
    assert env.result(run) == 1


def test_a_dispatched_step_costs_two_units_for_being_looked_after(env: EnvironmentOnAws) -> None:
    env.run(dispatches, 0)  # from here on the workflow's name is known
    env.meter.reset()
    run = env.start(dispatches, 1)
    env.run_until_idle()
    # The header and its entry in `runs`; a commit, the header and its entry in `wanted`; the row,
    # claimed and with its outcome; the last commit, the header, and the entry taken out.
    assert env.meter.written == 10
    assert env.result(run) == 2
