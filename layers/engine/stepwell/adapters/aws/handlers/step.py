"""The step function: makes one attempt of a dispatched step for each message of the step queue.

While it works, a thread keeps its message invisible for a minute at a time. So when the process
dies the message comes again within a minute, and who gets it then reports the attempt as
interrupted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stepwell.adapters.aws.clients import AWS_ERRORS, Clients, is_transient
from stepwell.adapters.aws.environment import StepEnvironment
from stepwell.adapters.aws.handlers.batch import (
    Busy,
    Context,
    Record,
    Source,
    Unreadable,
    records_of,
)
from stepwell.adapters.aws.handlers.code import import_workflows
from stepwell.adapters.aws.handlers.process_engine import ProcessEngine
from stepwell.adapters.aws.handlers.telemetry import count, logger, milliseconds
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.authoring.registry import Registry, registry
from stepwell.core.messages import StepAttempt, StepMessage, load_attempt
from stepwell.engine.attempt import StepBusy

#: How long, in seconds, a message stays invisible after each sign of life, and how often one comes.
HOLD = 60
BEAT = 20.0


class StepFunction:
    """The step function of one process."""

    def __init__(
        self, aws: AwsDeployment, *, registry: Registry = registry, beat: float = BEAT
    ) -> None:
        self._aws = aws
        self._beat = beat
        self._source = Source(aws.clients)
        self._runner = asyncio.Runner()
        self._engine = ProcessEngine(aws, registry)

    @classmethod
    def from_env(cls) -> StepFunction:
        """The step function that the environment describes, with its steps imported."""
        environment = StepEnvironment.from_env()
        import_workflows(environment.workflows)
        return cls(open_aws(environment))

    def handle(self, event: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Make the attempts of a batch. Returns which messages failed."""

        async def attempt(record: Record) -> None:
            await self._attempt(record, context)

        return self._runner.run(self._source.work_through(records_of(event), attempt))

    def close(self) -> None:
        """End what the function runs; the adapters stay open."""
        self._engine.close()
        self._runner.close()

    async def _attempt(self, record: Record, context: Context) -> None:
        try:
            attempt = load_attempt(record.body)
        except ValidationError as error:
            raise Unreadable(error) from None
        began = self._aws.ports.clock.now()
        with logger.append_context_keys(run_id=attempt.run_id, step_id=_name_of(attempt)):
            engine = self._engine.get()
            try:
                with Held(self._aws.clients, self._source.url(record), record.receipt, self._beat):
                    end = await engine.run_attempt(
                        attempt,
                        message_id=record.message_id,
                        receive_count=record.receive_count,
                        time_left=context.get_remaining_time_in_millis(),
                    )
            except StepBusy as busy:
                raise Busy(max(busy.until - self._aws.ports.clock.now(), 0)) from busy
            logger.info("attempt of step %s: %s", attempt.name, end.value)
            count("Attempts" + end.value.title().replace(" ", ""))
            milliseconds("AttemptTime", max(self._aws.ports.clock.now() - began, 0))


def _name_of(attempt: StepMessage) -> str:
    """What to call an attempt in the log: its step, or its place in a map."""
    return attempt.step if isinstance(attempt, StepAttempt) else f"{attempt.map}#{attempt.index}"


class Held:
    """Keeps a message invisible while this process lives; a context manager."""

    def __init__(self, clients: Clients, url: str, receipt: str, beat: float) -> None:
        self._clients = clients
        self._url = url
        self._receipt = receipt
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="stepwell-beat", daemon=True)

    def __enter__(self) -> None:
        # At once: the queue's own timeout is meant for the longest step there may be.
        if self._renew():
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _go_on(self) -> None:
        while not self._over.wait(self._beat):
            if not self._renew():
                return

    def _renew(self) -> bool:
        """Whether it is worth going on."""
        try:
            self._clients.sqs.change_message_visibility(
                QueueUrl=self._url, ReceiptHandle=self._receipt, VisibilityTimeout=HOLD
            )
        except AWS_ERRORS as error:
            # What the row of the step says keeps a second receiver from doing the same work.
            logger.warning("the message's visibility is not renewed: %s", error)
            return is_transient(error)
        return True
