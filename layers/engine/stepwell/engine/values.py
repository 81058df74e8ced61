"""Values on their way to and from records: small ones inline, large ones as blobs by hash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from stepwell.core.events import Event
from stepwell.core.payload import Sizes, blob_hash, check_size, pack, unpack
from stepwell.core.records import (
    HookRow,
    Payload,
    RunHeader,
    blob_reference,
    is_reference,
    reference_hash,
)
from stepwell.engine.ports import Blobs


class Values:
    """Stores and fetches the JSON of values."""

    def __init__(self, blobs: Blobs, sizes: Sizes) -> None:
        self._blobs = blobs
        self._sizes = sizes

    def is_small(self, text: str) -> bool:
        """Whether a value surely goes inline: a character is at most four bytes."""
        return len(text) * 4 <= self._sizes.inline_limit

    async def put(self, text: str, owner: str) -> Payload:
        """What to record for a value. Raises `PayloadTooLarge` above the hard limit."""
        if self.is_small(text):
            return text
        size = check_size(text, owner, self._sizes)
        if size <= self._sizes.inline_limit:
            return text
        sha256 = blob_hash(text)
        await self._blobs.put(sha256, pack(text))
        return blob_reference(sha256, size)

    async def get(self, payload: Payload) -> str:
        """The JSON of a recorded value. Raises `BlobMissing`."""
        if not is_reference(payload):
            return payload
        return unpack(await self._blobs.get(reference_hash(payload)))

    async def texts(self, payloads: Iterable[Payload]) -> Mapping[Payload, str]:
        """The JSON of all values among these that are kept as blobs, by reference."""
        references = sorted({p for p in payloads if is_reference(p)})
        if not references:
            return {}
        found = await asyncio.gather(*(self.get(reference) for reference in references))
        return dict(zip(references, found, strict=True))


def payloads_of(
    header: RunHeader | None, events: Iterable[Event], rows: Iterable[HookRow]
) -> list[Payload]:
    """Every value that a replay of these rows may need, with those of the inbox."""
    found: list[Payload] = [] if header is None else [header.input]
    for event in events:
        value = getattr(event, "result", None) or getattr(event, "payload", None)
        if value is not None:
            found.append(value)
    found += [row.payload for row in rows if row.payload is not None]
    return found
