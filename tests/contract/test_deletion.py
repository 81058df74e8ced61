"""Deleting runs: what stays in store and blobs, who loses against it, and what expires."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwell.core.map_rows import ShardKey, ShardRow
from stepwell.core.records import REMEMBERED, RunHeader, RunStatus, tombstone
from stepwell.engine.ports import BlobMissing, RunRows
from tests.contract.given import (
    NASTY_IDS,
    START,
    Deployment,
    checkpoint,
    chunk,
    commit,
    header,
    hook,
    run,
    step_row,
)

DAY = 86_400_000


def ended(run_id: str = "run", **changes: object) -> RunHeader:
    """A run that has ended with event 3."""
    found = replace(header(), run_id=run_id, status=RunStatus.COMPLETED, last_event=3, result="1")
    return replace(found, **changes)  # type: ignore[arg-type]


def stone(run_id: str = "run") -> RunHeader:
    """What is left of it after the event that says it is deleted."""
    return replace(tombstone(ended(run_id), START + 9), last_event=4)


async def fill(deployment: Deployment, run_id: str = "run") -> None:
    """A run with a row of each kind."""
    store = deployment.store
    await store.put_header(replace(header(), run_id=run_id))
    await store.update_header(ended(run_id))
    assert await store.append(run_id, commit(1, events=3))
    assert await store.append(run_id, commit(4, events=1))
    await store.put_hook(replace(hook(), run_id=run_id))
    await store.put_step(replace(step_row(), run_id=run_id))
    await store.put_checkpoint(replace(checkpoint(), run_id=run_id))
    await store.put_chunk(replace(chunk(1), run_id=run_id))


async def delete(deployment: Deployment, run_id: str = "run") -> None:
    """Bury it, and erase the rest."""
    assert await deployment.store.bury(stone(run_id))
    await deployment.store.erase(run_id, START + REMEMBERED)


def test_nothing_is_left_but_the_tombstone(deployment: Deployment) -> None:
    async def scenario() -> RunRows:
        await fill(deployment)
        await delete(deployment)
        store = deployment.store
        assert await store.get_hook("run", hook().hook_id) is None
        assert await store.get_step("run", step_row().step) is None
        assert await store.get_checkpoint("run", checkpoint().step) is None
        assert await store.get_chunks("run", chunk(1).step) == ()
        assert await store.get_header("run") == stone()
        return await store.load("run")

    assert run(scenario()) == RunRows(header=stone(), commits=(), hooks=(), steps=())


def test_it_is_in_no_list_any_more(deployment: Deployment) -> None:
    async def scenario() -> list[str]:
        store = deployment.store
        await fill(deployment)
        await store.put_header(replace(header(), run_id="other"))
        await delete(deployment)
        assert (await store.list_hooks()).items == ()
        found = [
            *(await store.list_runs()).items,
            *(await store.list_runs(workflow=header().workflow)).items,
            *(await store.list_runs(status=RunStatus.COMPLETED)).items,
        ]
        return [each.run_id for each in found]

    assert run(scenario()) == ["other", "other"]


def test_a_second_deletion_changes_nothing(deployment: Deployment) -> None:
    async def scenario() -> RunRows:
        await fill(deployment)
        await delete(deployment)
        await delete(deployment)
        return await deployment.store.load("run")

    assert run(scenario()).header == stone()


def test_a_run_that_went_on_is_not_buried(deployment: Deployment) -> None:
    async def scenario() -> RunHeader | None:
        await fill(deployment)
        await deployment.store.update_header(ended(last_event=5))
        assert not await deployment.store.bury(stone())
        assert not await deployment.store.bury(stone("nobody"))
        return await deployment.store.get_header("run")

    assert run(scenario()) == ended(last_event=5)


def test_whoever_is_late_loses(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        await fill(deployment)
        await delete(deployment)
        assert await store.put_header(replace(header(), seed="another")) == stone()
        assert not await store.update_header(ended())
        for late in (commit(1, events=3), commit(4, events=1), commit(4, turn="another")):
            assert not await store.append("run", late)
        assert (await store.load("run")).commits == ()

    run(scenario())


def test_what_comes_after_it_goes_with_the_next_deletion(deployment: Deployment) -> None:
    async def scenario() -> RunRows:
        await fill(deployment)
        await delete(deployment)
        await deployment.store.put_hook(hook())
        await deployment.store.put_chunk(chunk(1))
        await deployment.store.erase("run", START + REMEMBERED)
        assert await deployment.store.get_chunks("run", chunk(1).step) == ()
        return await deployment.store.load("run")

    assert run(scenario()).hooks == ()


def test_the_rows_of_its_maps_go_too(deployment: Deployment) -> None:
    keys = [ShardKey(run_id, "each*:1", 2, 0) for run_id in ("run", "other")]

    async def scenario() -> list[object]:
        await fill(deployment)
        for key in keys:
            await deployment.maps.put_shard(ShardRow(key=key, members=3, touched=START))
        assert await deployment.store.bury(stone())
        await deployment.store.erase("run", START + REMEMBERED, [keys[0]])
        return [await deployment.maps.get_shard(key) for key in keys]

    gone, kept = run(scenario())
    assert gone is None
    assert kept is not None


def test_other_runs_are_left_alone(deployment: Deployment) -> None:
    async def scenario() -> None:
        ids = [each for each in NASTY_IDS if len(each) < 1000]
        for run_id in ids:
            await fill(deployment, run_id)
        for n, run_id in enumerate(ids):
            await delete(deployment, run_id)
            for other in ids[n + 1 :]:
                rows = await deployment.store.load(other)
                assert (rows.header, len(rows.commits), len(rows.hooks)) == (ended(other), 2, 1)

    run(scenario())


def test_a_large_run_is_erased_whole(deployment: Deployment) -> None:
    async def scenario() -> RunRows:
        store = deployment.store
        await store.put_header(header())
        for n in range(1, 61):
            await store.append("run", commit(n, events=1))
            await store.put_hook(replace(hook(), hook_id=f"h{n}"))
        await store.bury(replace(stone(), last_event=60))
        await store.erase("run", START + REMEMBERED)
        return await store.load("run")

    rows = run(scenario())
    assert (rows.commits, rows.hooks) == ((), ())


def test_runs_expire_in_order_and_those_that_are_kept_do_not(deployment: Deployment) -> None:
    kept = {"a": START + 3 * DAY, "b": START + DAY, "c": START + 2 * DAY, "d": None, "e": START}

    async def expired(before: int, limit: int = 50) -> list[str]:
        found = await deployment.store.expired_runs(before, limit)
        return [each.run_id for each in found]

    async def scenario() -> None:
        store = deployment.store
        for run_id, until in kept.items():
            await store.put_header(replace(header(), run_id=run_id))
            await store.update_header(ended(run_id, kept_until=until))
        await store.update_header(replace(ended("e"), status=RunStatus.SUSPENDED, last_event=4))
        assert await expired(START + DAY) == []
        assert await expired(START + DAY + 1) == ["b"]
        assert await expired(START + 9 * DAY) == ["b", "c", "a"]
        assert await expired(START + 9 * DAY, 2) == ["b", "c"]
        await delete(deployment, "b")
        assert await expired(START + REMEMBERED + 9 * DAY) == ["c", "a"]

    run(scenario())


def test_a_run_that_has_expired_is_not_forgotten(deployment: Deployment) -> None:
    async def scenario() -> RunHeader | None:
        await fill(deployment, "expired")
        await deployment.store.update_header(ended("expired", kept_until=1))
        await fill(deployment)
        await delete(deployment)
        return await deployment.store.get_header("expired")

    assert run(scenario()) == ended("expired", kept_until=1)


def test_what_is_forgotten_takes_nothing_with_it(deployment: Deployment) -> None:
    async def scenario() -> RunRows:
        store = deployment.store
        await fill(deployment, "old")
        await fill(deployment, "kept")
        await store.bury(replace(stone("old"), kept_until=1))
        await store.erase("old", 1)
        return await store.load("kept")

    rows = run(scenario())
    assert (rows.header, len(rows.commits)) == (ended("kept"), 2)


def test_what_is_kept_for_good_is_not_forgotten(deployment: Deployment) -> None:
    async def scenario() -> RunHeader | None:
        store = deployment.store
        await fill(deployment, "link")
        await store.bury(replace(stone("link"), kept_until=None))
        await store.erase("link", 1)
        await fill(deployment)
        await delete(deployment)
        assert await store.expired_runs(START + 100 * REMEMBERED, 10) == ()
        return await store.get_header("link")

    assert run(scenario()) == replace(stone("link"), kept_until=None)


def test_the_values_of_one_owner_are_deleted(deployment: Deployment) -> None:
    async def scenario() -> None:
        blobs = deployment.blobs
        keys = ["one/h1", "one/h2", "one0/h1", "one./h1", "on/h1", "two/h1", "h1"]
        for key in keys:
            await blobs.put(key, key.encode())
        await blobs.delete_all("one")
        await blobs.delete_all("one")
        await blobs.delete_all("nobody")
        for key in keys[:2]:
            with pytest.raises(BlobMissing):
                await blobs.get(key)
        for key in keys[2:]:
            assert await blobs.get(key) == key.encode()
        await blobs.put("one/h1", b"again")
        assert await blobs.get("one/h1") == b"again"

    run(scenario())
