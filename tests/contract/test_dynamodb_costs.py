"""What the design's reference runs cost on the table, in units of items as they are sent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from moto.dynamodb.models import dynamodb_backends

from stepwell import sleep, step, step_hook, workflow
from stepwell.adapters.aws.items import item_size
from stepwell.client import Client
from stepwell.testing import Environment
from tests.contract.storage import REGION, Storage, open_storage

_ACCOUNT = "123456789012"
#: Reads that are not the run's own: of its result, and of its hooks to have the token.
_RESULT = _LOOK = 1


class Meter:
    """Counts units as DynamoDB bills them: each KB of an item and of an index entry begun."""

    def __init__(self, storage: Storage) -> None:
        self.written = 0
        self.read = 0
        self._seen: dict[tuple[str, str], dict[str, Any]] = {}
        events = storage.table.client.meta.events
        events.register("after-call.dynamodb.PutItem", self._write)
        events.register("after-call.dynamodb.UpdateItem", self._write)
        events.register("after-call.dynamodb.Query", self._query)
        events.register("after-call.dynamodb.GetItem", self._get)

    def reset(self) -> None:
        """Begin at zero."""
        self.written = self.read = 0

    def _write(self, parsed: dict[str, Any], **_: Any) -> None:
        assert "Error" not in parsed, "a reference run loses no condition"
        stored = dynamodb_backends[_ACCOUNT][REGION].tables["stepwell"].all_items()
        items = [item.to_json()["Attributes"] for item in stored]
        now = {(item["pk"]["S"], item["sk"]["S"]): item for item in items}
        changed = [key for key in now if now[key] != self._seen.get(key)]
        for key in changed:
            before, after = self._seen.get(key, {}), now[key]
            self.written += math.ceil(max(item_size(before), item_size(after)) / 1024)
            for entry in (("listed_in", "created_at"), ("wanted_in", "wanted_at")):
                old, new = (self._entry(item, entry) for item in (before, after))
                if old != new:
                    self.written += (old is not None) + (new is not None)
        self._seen = now

    @staticmethod
    def _entry(item: dict[str, Any], key: tuple[str, str]) -> list[Any] | None:
        """The key of an item's entry in an index; None if it has none."""
        return [item[name] for name in key] if all(name in item for name in key) else None

    def _query(self, parsed: dict[str, Any], **_: Any) -> None:
        self.read += max(1, math.ceil(sum(map(item_size, parsed["Items"])) / 4096))

    def _get(self, parsed: dict[str, Any], **_: Any) -> None:
        self.read += max(1, math.ceil(item_size(parsed.get("Item", {})) / 4096))


class EnvironmentOnAws(Environment):
    """Store and blobs on AWS; queue, timers and clock stay local."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self.meter = Meter(storage)
        ports = replace(self._local.ports, store=storage.store, blobs=storage.blobs)
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


def test_five_steps_stay_in_the_budget(env: EnvironmentOnAws) -> None:
    env.run(five_steps, 0)  # from here on the workflow's name is known
    env.meter.reset()
    assert env.run(five_steps, 0) == 5
    # The header and its entry in index `runs`, five commits, the header at the end.
    assert (env.meter.written, env.meter.read) == (8, 1 + _RESULT)


def test_a_step_hook_stays_in_the_budget(env: EnvironmentOnAws) -> None:
    env.run(five_steps, 0)
    env.start(five_steps_around_a_hook, 0)
    env.run_until_idle()
    env.meter.reset()
    run = env.start(five_steps_around_a_hook, 0)
    env.run_until_idle()
    (token,) = (found.token for found in env.hooks(run))
    env.meter.read -= _LOOK
    env.resume_hook(token, 40)
    # Of the two only the hook enters index `wanted`, and leaves it: 2 units.
    assert (env.meter.written, env.meter.read) == (15, 3)
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
