"""The inbox: does what messages from outside ask for, and hands on timers when they are due.

What cannot be done for good goes to the dead letters with its reason and is then acknowledged; it
is given back while that fails. What fails in passing is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stepwell.adapters.aws.environment import InboxEnvironment
from stepwell.adapters.aws.handlers.batch import (
    Context,
    Record,
    Source,
    describe_problems,
    records_of,
)
from stepwell.adapters.aws.handlers.outside import (
    Asked,
    Cancel,
    PutInbox,
    Received,
    Resume,
    ResumeHook,
    Signal,
    Start,
    load_received,
)
from stepwell.adapters.aws.handlers.refusing import Refused, send_refused
from stepwell.adapters.aws.handlers.signals import is_sound, send_signal
from stepwell.adapters.aws.handlers.telemetry import count, logger
from stepwell.adapters.aws.queue import LONGEST_DELAY_S, InboxQueue, seconds_up
from stepwell.adapters.aws.signal_queue import SignalLater, signal_body
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.client import Client
from stepwell.core.messages import TimerDue
from stepwell.core.records import Millis
from stepwell.engine.ports import BlobMissing, TransientError
from stepwell.errors import StepwellError

#: The engine sends no timer here that is due later, even if its clock is minutes behind. Another
#: one would go round in this queue for as long as it likes.
_LONGEST_WAIT_S = 2 * LONGEST_DELAY_S


class Inbox:
    """The inbox function of one process."""

    def __init__(self, aws: AwsDeployment, inbox_url: str, dead_letter_url: str) -> None:
        self._aws = aws
        self._queue = InboxQueue(aws.clients, inbox_url)
        self._dead_letter_url = dead_letter_url
        self._source = Source(aws.clients)
        self._runner = asyncio.Runner()

    @classmethod
    def from_env(cls) -> Inbox:
        """The inbox that the environment describes."""
        environment = InboxEnvironment.from_env()
        return cls(
            open_aws(environment), environment.inbox_queue_url, environment.inbox_dead_letter_url
        )

    def handle(self, event: Mapping[str, Any], _context: Context) -> Mapping[str, Any]:
        """Work through a batch, each message by itself. Returns which of them failed."""
        return self._runner.run(self._source.work_through(records_of(event), self._take))

    def close(self) -> None:
        """End what the function runs; the adapters stay open."""
        self._runner.close()

    async def _take(self, record: Record) -> None:
        try:
            received = _parsed(record)
            if isinstance(received, TimerDue):
                await self._hand_on(received)
            elif isinstance(received, SignalLater):
                await self._hand_on_signal(received)
            else:
                await self._do(received, record)
        except Refused as refused:
            await self._reject(record, refused)

    async def _hand_on(self, timer: TimerDue) -> None:
        """Send a timer to its run; before its time, keep it back again."""
        wait = self._wait(timer.due)
        if wait > 0:
            await self._queue.send_later(timer, min(wait, LONGEST_DELAY_S))
            count("TimersKeptBack")
        else:
            await self._aws.queue.send(timer)
            count("TimersHandedOn")

    async def _hand_on_signal(self, later: SignalLater) -> None:
        """Send a signal to its stream run; before its time, keep it back again."""
        if not is_sound(later.signal):
            raise Refused("InvalidMessage", "the values of the signal are none that it can have")
        wait = self._wait(later.signal.due or 0)
        if wait > 0:
            await self._queue.send_body(signal_body(later), min(wait, LONGEST_DELAY_S))
            count("SignalsKeptBack")
        else:
            await self._aws.signals.send([later.signal])
            count("SignalsHandedOn")

    def _wait(self, due: Millis) -> int:
        """Whole seconds until something is due that SQS keeps back."""
        wait = seconds_up(due - self._aws.ports.clock.now())
        if wait > _LONGEST_WAIT_S:
            raise Refused("NotSoDue", "a timer of more than fifteen minutes does not belong here")
        return wait

    async def _do(self, asked: Asked, record: Record) -> None:
        token = asked.token if isinstance(asked, ResumeHook) else None
        client = Client(self._aws.ports, self._aws.refresh(token))
        try:
            run_id = await _done(client, asked, record)
        except (TransientError, BlobMissing):
            raise
        except StepwellError as error:
            raise Refused(type(error).__name__, str(error)) from None
        logger.info("%s: done", asked.type, extra={"run_id": run_id})
        count("InboxDone")

    async def _reject(self, record: Record, refused: Refused) -> None:
        await send_refused(self._aws.clients, self._dead_letter_url, record, refused)
        logger.error("refused, and sent to the dead letters: %s", refused.code)
        count("InboxRefused")


def _parsed(record: Record) -> Received:
    try:
        return load_received(record.body)
    except ValidationError as error:
        raise Refused("InvalidMessage", describe_problems(error)) from None


async def _done(client: Client, asked: Asked, record: Record) -> str:
    """The id of the run that it was about."""
    match asked:
        case Start():
            key = asked.idempotency_key
            options = client.with_options(
                idempotency_key=f"sqs-{record.message_id}" if key is None else key,
                tags=asked.tags,
                context=asked.context,
            )
            return (await options.start_named(asked.workflow, asked.input)).id
        case ResumeHook():
            resumed = await client.resume_hook(asked.token, asked.payload, actor=asked.actor)
            return resumed.run_id
        case PutInbox():
            entry_id = f"sqs-{record.message_id}" if asked.entry_id is None else asked.entry_id
            entry = await client.put_inbox(
                asked.run_id, asked.key, asked.value, entry_id=entry_id, actor=asked.actor
            )
            return entry.run_id
        case Signal():
            return await send_signal(client, asked, record)
        case Resume():
            await client.resume(asked.run_id, actor=asked.actor)
            return asked.run_id
        case Cancel():
            await client.cancel(asked.run_id, asked.reason, actor=asked.actor)
            return asked.run_id
