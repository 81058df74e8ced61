"""A signal as authors see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from typing import Any

from stepwell.core.durations import to_datetime
from stepwell.core.payload import Codec
from stepwell.core.records import Payload
from stepwell.core.signals import SentSignal, StreamKey


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal. `payload` is plain JSON or, where its step gave a model, what that made of it.

    `sequence` numbers the signals of a stream run 1, 2, 3 … without gaps; it is None for one that
    was just emitted, since its number is given on its way. `source_run_id` is the run whose code
    emitted it, None for one from outside.
    """

    signal_id: str
    stream_id: str
    signal_type: str
    payload: Any
    published_at: datetime
    sequence: int | None = None
    source_run_id: str | None = None
    stream_run_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def shown_signal(
    key: StreamKey,
    sent: SentSignal,
    sequence: int | None = None,
    *,
    texts: Mapping[Payload, str] | None = None,
    schema: Codec | None = None,
) -> Signal:
    """A signal as authors see it. `texts` holds the JSON of values that are kept as blobs.

    Raises `PayloadError` when the payload does not fit the schema.
    """
    texts = texts or {}
    text = texts.get(sent.payload, sent.payload)
    metadata = sent.metadata
    return Signal(
        signal_id=sent.signal_id,
        stream_id=key.stream,
        signal_type=sent.type,
        payload=json.loads(text) if schema is None else as_dict(schema.decode(text)),
        published_at=to_datetime(sent.published_at),
        sequence=sequence,
        source_run_id=sent.source_run_id,
        stream_run_id=key.run,
        metadata={} if metadata is None else json.loads(texts.get(metadata, metadata)),
    )


def as_dict(value: Any) -> Any:
    """A model or dataclass as a dict of its fields; anything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump()
