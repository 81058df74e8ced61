"""Values on their way to and from records: small ones inline, large ones as blobs by hash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from stepwell.core.events import Event, InboxPolled, MapEnded, SignalEmitted, SignalTaken
from stepwell.core.map_outcomes import references_in
from stepwell.core.payload import Sizes, blob_hash, check_size, pack, unpack
from stepwell.core.records import (
    HookRow,
    Payload,
    RunHeader,
    blob_reference,
    is_reference,
    reference_key,
    reference_size,
)
from stepwell.engine.ports import Blobs


def owner_of(run_id: str) -> str:
    """What the keys of a run's blobs begin with, before a slash."""
    return quote(run_id, safe="")


class Values:
    """Stores and fetches the JSON of values.

    What is stored belongs to a run and is deleted with it; without one it is kept for ever.
    """

    def __init__(self, blobs: Blobs, sizes: Sizes, run_id: str | None = None) -> None:
        self._blobs = blobs
        self._sizes = sizes
        self._prefix = "" if run_id is None else f"{owner_of(run_id)}/"

    def of(self, run_id: str) -> Values:
        """The same for values that belong to a run."""
        return Values(self._blobs, self._sizes, run_id)

    async def own(self, payload: Payload) -> Payload:
        """A value of another run as one of this one, which stays when the other is deleted."""
        if not is_reference(payload) or reference_key(payload).startswith(self._prefix):
            return payload
        key = f"{self._prefix}{reference_key(payload).rpartition('/')[2]}"
        await self._blobs.put(key, await self._blobs.get(reference_key(payload)))
        return blob_reference(key, reference_size(payload))

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
        key = f"{self._prefix}{blob_hash(text)}"
        await self._blobs.put(key, pack(text))
        return blob_reference(key, size)

    async def keep(self, text: str, limit: int) -> Payload:
        """What to record for text of our own: inline up to a limit in bytes, else as a blob."""
        size = len(text.encode())
        if size <= limit:
            return text
        key = f"{self._prefix}{blob_hash(text)}"
        await self._blobs.put(key, pack(text))
        return blob_reference(key, size)

    async def get(self, payload: Payload) -> str:
        """The JSON of a recorded value. Raises `BlobMissing`."""
        if not is_reference(payload):
            return payload
        return unpack(await self._blobs.get(reference_key(payload)))

    async def texts(self, payloads: Iterable[Payload]) -> Mapping[Payload, str]:
        """The JSON of all values among these that are kept as blobs, by reference."""
        references = sorted({p for p in payloads if is_reference(p)})
        if not references:
            return {}
        found = await asyncio.gather(*(self.get(reference) for reference in references))
        return dict(zip(references, found, strict=True))

    async def texts_of_maps(
        self, events: Iterable[Event], texts: Mapping[Payload, str]
    ) -> Mapping[Payload, str]:
        """The JSON of results within the outcomes of maps, by reference; `texts` has the blocks."""
        inside = [
            reference
            for event in events
            if isinstance(event, MapEnded)
            for block in event.outcomes or ()
            for reference in references_in(texts.get(block, block))
        ]
        return await self.texts(inside)


def payloads_of(
    header: RunHeader | None, events: Iterable[Event], rows: Iterable[HookRow]
) -> list[Payload]:
    """Every value that a replay of these rows may need, with those of the inbox."""
    found: list[Payload] = [] if header is None else [header.input]
    for event in events:
        if isinstance(event, SignalEmitted):
            continue  # it belongs to the stream run, and may have gone with that
        value = getattr(event, "result", None) or getattr(event, "payload", None)
        if value is not None:
            found.append(value)
        elif isinstance(event, MapEnded) and event.outcomes is not None:
            found += event.outcomes
        elif isinstance(event, InboxPolled):
            found.append(event.signals)
        if isinstance(event, SignalTaken) and event.metadata is not None:
            found.append(event.metadata)
    found += [row.payload for row in rows if row.payload is not None]
    return found
