"""The signal queue on SQS FIFO: a group is a stream run.

A message is a signal, or one that is to be sent later (`SignalLater`), or that such a one is not
wanted any more (`SignalForgotten`): functions that may not make schedules ask the worker for it.
The queue drops what it has seen under the same deduplication id within five minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import zip_longest
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from stepwell.adapters.aws.batches import Entry, send_all
from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.queue import for_sqs, group_of
from stepwell.core.messages import SignalSent
from stepwell.core.signals import StreamKey

#: Bytes of a signal's body: it has to fit into a row by itself.
SIGNAL_LIMIT = 384 * 1024


class _OfStream(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SignalLater(_OfStream):
    """A signal that is to be sent at its `due`."""

    type: Literal["signal_later"] = "signal_later"
    signal: SignalSent

    @property
    def key(self) -> StreamKey:
        """The stream run that it is for."""
        return self.signal.key


class SignalForgotten(_OfStream):
    """A signal that was to be sent later is not wanted any more."""

    type: Literal["signal_forgotten"] = "signal_forgotten"
    stream: str
    stream_run: str
    signal_id: str

    @property
    def key(self) -> StreamKey:
        """The stream run that it was for."""
        return StreamKey(self.stream, self.stream_run)


#: What the signal queue holds.
OnSignalQueue = SignalSent | SignalLater | SignalForgotten

_HELD: TypeAdapter[OnSignalQueue] = TypeAdapter(
    Annotated[OnSignalQueue, Field(discriminator="type")]
)


def load_signal_body(body: str) -> OnSignalQueue:
    """What a body of the signal queue holds. Raises `pydantic.ValidationError`."""
    return _HELD.validate_json(body)


def signal_body(message: OnSignalQueue) -> str:
    """The message as a body that SQS takes. Raises `ItemTooLarge`."""
    what = f"signal to stream run {message.key}"
    return for_sqs(message.model_dump_json(exclude_none=True), what, SIGNAL_LIMIT)


class SqsSignalQueue:
    """Implements the `SignalQueue` port."""

    def __init__(self, clients: Clients, url: str) -> None:
        if not url.endswith(".fifo"):
            raise ValueError(f"the signal queue has to be a FIFO queue: {url!r}")
        self.name = url.rpartition("/")[2]
        self._clients = clients
        self._url = url

    async def send(self, signals: Sequence[SignalSent]) -> None:
        """Send signals, in this order within each stream run.

        Of a batch SQS may take the second and not the first. So the first signals of all stream
        runs go together, and when they are sent the second ones.
        """
        runs: dict[StreamKey, list[Entry]] = {}
        for each in signals:
            runs.setdefault(each.key, []).append(_entry(each))
        for together in zip_longest(*runs.values()):
            entries = [entry for entry in together if entry is not None]
            await send_all(self._clients, self._url, entries)

    async def ask(self, message: SignalLater | SignalForgotten) -> None:
        """Have the worker send a signal later, or not."""
        await send_all(self._clients, self._url, [_entry(message)])


def _entry(message: OnSignalQueue) -> Entry:
    return {
        "MessageBody": signal_body(message),
        "MessageGroupId": group_of(message.key.owner),
        "MessageDeduplicationId": _deduplication_id(message),
    }


def _deduplication_id(message: OnSignalQueue) -> str:
    """A hash of what is one message: a signal by its id, what is asked about it by what that is."""
    parts: tuple[str, ...] = message.key
    if isinstance(message, SignalLater):
        parts += (message.signal.signal_id, message.type, str(message.signal.due))
    elif isinstance(message, SignalForgotten):
        parts += (message.signal_id, message.type)
    else:
        parts += (message.signal_id,)
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()
