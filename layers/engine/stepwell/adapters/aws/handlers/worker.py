"""The worker: takes a turn for each message of the run queue, and numbers the signals that come.

A message is acknowledged when its turn has ended, and with it all that it caused is durable.
Whatever a turn raises, the message is given back. At the last receive the turn marks its run STUCK
beforehand; afterwards the message is a dead letter and the sweeper takes it from there.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from stepwell.adapters.aws.clients import AWS_ERRORS
from stepwell.adapters.aws.environment import WorkerEnvironment
from stepwell.adapters.aws.handlers.batch import (
    Context,
    Record,
    Source,
    Unreadable,
    log_error,
    records_of,
)
from stepwell.adapters.aws.handlers.code import import_workflows
from stepwell.adapters.aws.handlers.numbering import Numbering
from stepwell.adapters.aws.handlers.process_engine import ProcessEngine
from stepwell.adapters.aws.handlers.telemetry import count, logger, metrics, milliseconds
from stepwell.adapters.aws.queue import SqsStepQueue
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.authoring.registry import Registry, registry
from stepwell.core.messages import load_message
from stepwell.core.records import Millis
from stepwell.engine.catalogue import Catalogue
from stepwell.engine.ports import TransientError
from stepwell.engine.threads import WORKFLOW_THREAD

#: With less than this until the end of the function, publishing is left to the next turn.
_TIME_TO_PUBLISH: Millis = 20_000
#: How long, in seconds, the thread of a workflow may take to end after its turn.
_THREAD_GRACE = 1.0


class Worker:
    """The worker of one process. `leave` ends the process."""

    def __init__(
        self,
        aws: AwsDeployment,
        max_receive_count: int,
        signal_dead_letter_url: str,
        *,
        registry: Registry = registry,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._aws = aws
        self._max_receive_count = max_receive_count
        self._registry = registry
        self._leave = leave
        self._source = Source(aws.clients)
        self._numbering = Numbering(aws, self._source, signal_dead_letter_url)
        self._runner = asyncio.Runner()
        self._engine = ProcessEngine(aws, registry)
        self._published = False
        self._others = _workflow_threads()

    @classmethod
    def from_env(cls) -> Worker:
        """The worker that the environment describes, with its workflows imported."""
        environment = WorkerEnvironment.from_env()
        import_workflows(environment.workflows)
        return cls(
            open_aws(environment),
            environment.max_receive_count,
            environment.signal_dead_letter_url,
        )

    def handle(self, event: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Take the turns of a batch, or number its signals. Returns which messages failed."""
        records = records_of(event)
        if all(record.queue == self._aws.signals.name for record in records):
            return self._runner.run(self._numbering.work_through(records))

        async def turn(record: Record) -> None:
            await self._turn(record, context)

        response = self._runner.run(self._source.work_through(records, turn, in_order=True))
        if self._left_behind():
            self._retire(records, response)
        return response

    def close(self) -> None:
        """End what the worker runs; the adapters stay open."""
        self._engine.close()
        self._runner.close()

    async def _turn(self, record: Record, context: Context) -> None:
        try:
            message = load_message(record.body)
        except ValidationError as error:
            raise Unreadable(error) from None
        with logger.append_context_keys(run_id=message.run_id):
            began, sent = self._aws.ports.clock.now(), self._steps_sent()
            end = await self._engine.get().take_turn(
                message,
                message_id=record.message_id,
                receive_count=record.receive_count,
                last=record.receive_count >= self._max_receive_count,
                time_left=context.get_remaining_time_in_millis(),
            )
            logger.info("turn: %s", end.value, extra={"message_type": message.type})
            count("Turns" + end.value.title().replace(" ", ""))
            milliseconds("TurnTime", max(self._aws.ports.clock.now() - began, 0))
            if dispatched := self._steps_sent() - sent:
                count("StepsDispatched", dispatched)
        await self._publish(context)

    def _steps_sent(self) -> int:
        steps = self._aws.ports.steps
        return steps.sent if isinstance(steps, SqsStepQueue) else 0

    async def _publish(self, context: Context) -> None:
        """Publish this code's workflows, once per process. What fails here fails no message."""
        left = context.get_remaining_time_in_millis()
        if self._published or left < _TIME_TO_PUBLISH:
            return
        definitions = self._registry.workflows().values()
        try:
            # So many runs may be blocked that waking them would outlive the function.
            async with asyncio.timeout((left - _TIME_TO_PUBLISH / 2) / 1000):
                done = await Catalogue(self._aws.ports).publish(definitions, wake_all=False)
        except (TransientError, TimeoutError, *AWS_ERRORS) as error:
            logger.warning("workflows are not published yet: %r", error)
            return
        except Exception as error:  # a row that this version cannot read, for one
            log_error("workflows cannot be published: %s", error)
        else:
            if done.changed:
                logger.info("published %s, woke %d runs", ", ".join(done.changed), done.woken)
        self._published = True

    def _left_behind(self) -> bool:
        """Whether the thread of a workflow outlives the turns that this worker took."""
        threads = _workflow_threads() - self._others
        for thread in threads:
            thread.join(_THREAD_GRACE)
        return any(thread.is_alive() for thread in threads)

    def _retire(self, records: Sequence[Record], response: Mapping[str, Any]) -> None:
        """End this process: code of a workflow goes on in it that is not to be stopped.

        Lambda counts that as an error and would let the whole batch come again, so the messages
        that are done with are deleted here. If that cannot be done the process lives on.
        """
        failed = {each["itemIdentifier"] for each in response["batchItemFailures"]}
        done = [record for record in records if record.message_id not in failed]
        if not self._deleted(done):
            return
        logger.error("a def workflow does not end with its turn: this process is given up")
        count("ProcessesGivenUp")
        metrics.flush_metrics()
        sys.stdout.flush()
        self._leave(1)

    def _deleted(self, records: Iterable[Record]) -> bool:
        try:
            for record in records:
                self._aws.clients.sqs.delete_message(
                    QueueUrl=self._source.url(record), ReceiptHandle=record.receipt
                )
        except AWS_ERRORS as error:
            logger.warning("a def workflow does not end, and its message stays: %s", error)
            return False
        return True


def _workflow_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == WORKFLOW_THREAD}
