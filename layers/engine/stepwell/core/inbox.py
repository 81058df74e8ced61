"""An inbox as code sees it: a read-only mapping of the latest value of each key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.core.records import Payload


class Inbox(Mapping[str, Any]):
    """What a run's inbox holds at one moment, as plain JSON.

    A value is read anew each time that it is asked for, so whoever changes one changes his own.
    `texts` holds the JSON of values that are kept as blobs, by reference.
    """

    def __init__(self, latest: Mapping[str, Payload], texts: Mapping[Payload, str]) -> None:
        self._latest = dict(latest)
        self._texts = texts

    def __getitem__(self, key: str) -> Any:
        payload = self._latest[key]
        return json.loads(self._texts.get(payload, payload))

    def __iter__(self) -> Iterator[str]:
        return iter(self._latest)

    def __len__(self) -> int:
        return len(self._latest)

    def __repr__(self) -> str:
        return f"<inbox of {', '.join(map(repr, self._latest)) or 'nothing'}>"
