"""Conditions of the embedded adapters that only show when somebody else comes in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock
from stepwell.adapters.local.database import Database, Row, SqlValue
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.core.messages import TimerDue, load_message
from tests.contract.given import (
    START,
    VISIBILITY,
    Deployment,
    attempt,
    cause,
    definition,
    header,
    run,
    take,
    wake,
)


@pytest.fixture
def local() -> Iterator[LocalPorts]:
    """Adapters in memory, on a clock that stands still."""
    with open_ports(
        ":memory:", clock=SkippingClock(START), ids=SeededIds(1), visibility=VISIBILITY
    ) as ports:
        yield ports


def test_a_definition_is_kept_as_it_was_published_under_its_digest(local: LocalPorts) -> None:
    async def scenario() -> None:
        await local.store.publish(definition())
        await local.store.publish(definition(version="2"))
        await local.store.publish(definition(published_at=START + 5))

    run(scenario())
    kept = local.database.query("SELECT body FROM definitions WHERE digest = 'digest of 1'")
    assert f'"published_at":{START}' in kept[0][0]


def test_what_stands_under_a_hash_is_not_replaced(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.blobs.put("h1", b"first")
        await deployment.blobs.put("h1", b"second")
        assert await deployment.blobs.get("h1") == b"first"

    run(scenario())


class _Overtaken(Database):
    """A connection whose owner looks for the signing key just before somebody else makes it."""

    def query(self, sql: str, *values: SqlValue) -> list[Row]:
        rows = super().query(sql, *values)
        if "signing_keys" in sql and not rows:
            with Database(self.path) as other:
                self.others = keyring_of(other)
        return rows


def test_whoever_comes_second_adopts_the_signing_key(tmp_path: Path) -> None:
    with _Overtaken(tmp_path / "stepwell.db") as database:
        mine = keyring_of(database)
        assert mine.keys == database.others.keys
        assert keyring_of(database).keys == mine.keys


def test_the_third_of_a_group_waits_for_the_second(deployment: Deployment) -> None:
    async def scenario() -> None:
        for each in ("c1", "c2", "c3"):
            await deployment.queue.send(wake(cause=each))
        assert await deployment.consumer.delete(await take(deployment.consumer))
        second = await take(deployment.consumer)
        assert cause(second) == "c2"
        assert await deployment.consumer.receive() is None

    run(scenario())


def test_runs_of_unknown_workflows_hold_nobody_up(local: LocalPorts) -> None:
    async def scenario() -> None:
        await local.store.put_header(header("theirs", workflow="theirs"))
        for run_id in ("theirs", "new"):
            await local.queue.send(wake(run_id))
        delivery = await local.queue.receive(workflows=["ours"])
        assert delivery is not None
        assert load_message(delivery.body).run_id == "new"
        assert await local.queue.receive(workflows=["ours"]) is None
        assert await local.queue.receive(workflows=["theirs"]) is not None

    run(scenario())


def test_a_message_given_back_for_later_stays_away_from_who_knows_its_workflow(
    local: LocalPorts,
) -> None:
    async def scenario() -> None:
        await local.store.put_header(header("run", workflow="ours"))
        await local.queue.send(wake("run"))
        delivery = await local.queue.receive(workflows=["ours"])
        assert delivery is not None
        assert await local.queue.receive(workflows=["ours"]) is None
        assert await local.queue.give_back(delivery, delay=1_000)
        assert await local.queue.receive(workflows=["ours"]) is None

    run(scenario())


def test_an_attempt_given_back_for_later_stays_away_from_who_knows_its_step(
    local: LocalPorts,
) -> None:
    async def scenario() -> None:
        await local.step_queue.send(attempt())
        delivery = await local.step_queue.receive(steps=["charge"])
        assert delivery is not None
        assert await local.step_queue.give_back(delivery, delay=1_000)
        assert await local.step_queue.receive(steps=["charge"]) is None

    run(scenario())


def test_a_receipt_is_spent_once_its_attempt_was_deleted(local: LocalPorts) -> None:
    async def scenario() -> None:
        await local.step_queue.send(attempt("one"))
        delivery = await local.step_queue.receive()
        assert delivery is not None
        assert await local.step_queue.delete(delivery)
        await local.step_queue.send(attempt("other"))
        other = await local.step_queue.receive()
        assert other is not None
        assert not await local.step_queue.delete(delivery)
        assert not await local.step_queue.give_back(delivery)
        assert await local.step_queue.delete(other)

    run(scenario())


def test_a_dead_letter_is_taken_once(local: LocalPorts) -> None:
    async def scenario() -> None:
        await local.queue.send(wake())
        await local.queue.reject(await take(local.queue), "no good")
        [letter] = await local.queue.dead_letters(new=True)
        assert await local.queue.take(letter.message_id)
        assert not await local.queue.take(letter.message_id)
        assert await local.queue.dead_letters(new=True) == ()
        assert len(await local.queue.dead_letters()) == 1

    run(scenario())


def test_a_timer_that_fires_takes_none_with_it_that_is_not_due(local: LocalPorts) -> None:
    async def scenario() -> Any:
        await local.timers.start("run", "soon", 0, START)
        await local.timers.start("run", "later", 0, START + 1_000)
        assert await local.timers.fire_due(local.queue) == 1
        assert await local.timers.next_due() == START + 1_000
        delivery = await take(local.queue)
        return load_message(delivery.body)

    assert run(scenario()) == TimerDue(run_id="run", wait_id="soon", arm=0, due=START)
