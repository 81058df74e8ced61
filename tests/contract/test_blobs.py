"""The `Blobs` port, sentence by sentence."""

from __future__ import annotations

import pytest

from stepwell.engine.ports import BlobMissing
from tests.contract.given import Deployment, run


def test_bytes_come_back_as_they_were_put(deployment: Deployment) -> None:
    data = bytes(range(256)) * 8192  # 2 MB, above every item limit

    async def scenario() -> bytes:
        await deployment.blobs.put("h1", data)
        await deployment.blobs.put("h2", b"")
        assert await deployment.blobs.get("h2") == b""
        return await deployment.blobs.get("h1")

    assert run(scenario()) == data


def test_writing_the_same_hash_twice_is_harmless(deployment: Deployment) -> None:
    async def scenario() -> bytes:
        await deployment.blobs.put("h1", b"data")
        await deployment.blobs.put("h1", b"data")
        return await deployment.blobs.get("h1")

    assert run(scenario()) == b"data"


def test_a_missing_blob_is_named(deployment: Deployment) -> None:
    with pytest.raises(BlobMissing) as caught:
        run(deployment.blobs.get("h1"))
    assert caught.value.sha256 == "h1"
