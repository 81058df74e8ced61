"""The worker's other half: numbers what comes from the signal queue.

Up to ten messages come at a time, of any stream runs, in order within each. Those of one stream run
are numbered together, and if that fails all of them come again, in their order. One that cannot be
read goes to the dead letters with its reason, and holds up nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from stepwell.adapters.aws.handlers.batch import Record, Source, describe_problems
from stepwell.adapters.aws.handlers.refusing import Refused, send_refused
from stepwell.adapters.aws.handlers.telemetry import count, logger, milliseconds
from stepwell.adapters.aws.queue import batch_response
from stepwell.adapters.aws.signal_queue import (
    SIGNAL_LIMIT,
    OnSignalQueue,
    SignalForgotten,
    load_signal_body,
)
from stepwell.adapters.aws.wiring import AwsDeployment
from stepwell.authoring.registry import registry
from stepwell.core.messages import SignalSent
from stepwell.engine.sequencing import Sequenced, Sequencer


class Numbering:
    """Numbers the signals of batches. `dead_letter_url` is where goes what cannot be read."""

    def __init__(self, aws: AwsDeployment, source: Source, dead_letter_url: str) -> None:
        self._aws = aws
        self._source = source
        self._dead_letter_url = dead_letter_url
        self._sequencer = Sequencer(aws.ports, registry.stream_step)

    async def work_through(self, records: Sequence[Record]) -> Mapping[str, Any]:
        """Number the signals of a batch. Returns what the function returns."""
        groups: dict[str | None, list[Record]] = {}
        for record in records:
            groups.setdefault(record.attributes.group, []).append(record)
        failed: list[str] = []
        for group in groups.values():
            failed += [record.message_id for record in await self._take(group)]
        return batch_response([record.message_id for record in records], failed)

    async def _take(self, records: Sequence[Record]) -> Sequence[Record]:
        """Number what is of one stream run. Returns what was given back."""
        messages: list[OnSignalQueue] = []
        refused: list[tuple[Record, Refused]] = []
        for record in records:
            try:
                messages.append(_read(record))
            except Refused as error:
                refused.append((record, error))
        try:
            await self._number(messages)
        except Exception as error:
            await self._source.take_back(records, error)
            return records
        return [record for record, error in refused if not await self._refuse(record, error)]

    async def _number(self, messages: Sequence[OnSignalQueue]) -> None:
        signals = [signal for each in messages if (signal := await self._due_now(each))]
        for sequenced in await self._sequencer.take(signals):
            _tell(sequenced)

    async def _due_now(self, message: OnSignalQueue) -> SignalSent | None:
        """The signal that is to be numbered now; what is to be done later, is seen to."""
        timers = self._aws.ports.signal_timers
        if isinstance(message, SignalForgotten):
            await timers.cancel(message.key, message.signal_id)
            return None
        if isinstance(message, SignalSent):
            return message
        if (message.signal.due or 0) <= self._aws.ports.clock.now():
            return message.signal
        await timers.schedule(message.signal)
        return None

    async def _refuse(self, record: Record, refused: Refused) -> bool:
        """Whether it is among the dead letters now; if not, it comes again."""
        try:
            await send_refused(self._aws.clients, self._dead_letter_url, record, refused)
        except Exception as error:
            await self._source.take_back([record], error)
            return False
        logger.error("refused, and sent to the dead letters: %s", refused.code)
        count("SignalsRefused")
        return True


def _read(record: Record) -> OnSignalQueue:
    size = len(record.body.encode())
    if size > SIGNAL_LIMIT:
        told = f"{size:,} bytes, and a signal has at most {SIGNAL_LIMIT:,}"
        raise Refused("ItemTooLarge", told)
    try:
        return load_signal_body(record.body)
    except ValidationError as error:
        raise Refused("InvalidMessage", describe_problems(error)) from None


def _tell(sequenced: Sequenced) -> None:
    if sequenced.fresh:
        count("SignalsSequenced", sequenced.fresh)
        milliseconds("SignalAge", max(sequenced.age, 0))
        if not sequenced.subscribed:
            count("SignalsUnsubscribed", sequenced.fresh)
    logger.info(
        "signals: %d new, up to %d; %d subscriptions woken",
        sequenced.fresh,
        sequenced.last,
        sequenced.woken,
        extra={"stream_run": str(sequenced.key)},
    )
