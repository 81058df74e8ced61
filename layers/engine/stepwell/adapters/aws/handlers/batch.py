"""Messages as SQS hands them to a function, and how those that failed go back.

A message is deleted by Lambda when the function has returned without naming it. One that failed is
named, and its visibility is set so that it comes again after a growing delay, not only when the
queue's own timeout is over. After `maxReceiveCount` receives SQS makes it a dead letter.

Powertools' batch processor is not used: it names what failed and no more, and importing it costs a
cold start some 25 ms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from botocore.exceptions import ParamValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stepwell.adapters.aws.clients import AWS_ERRORS, Clients
from stepwell.adapters.aws.handlers.telemetry import count, logger
from stepwell.adapters.aws.queue import back_off, batch_response, give_back
from stepwell.core.records import Millis
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import TransientError

#: How soon a message comes again that cannot be read. Code that can read it may be on its way; if
#: not, it shall become a dead letter, where it is kept, before it has held up its run for long.
_UNREADABLE_DELAY: Millis = 5_000
#: Names of fields are outside data, too.
_LONGEST_PROBLEM = 500
#: Errors whose texts quote what they are about.
_QUOTING = (ValidationError, ParamValidationError)


class Context(Protocol):
    """What is used of a Lambda context."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is ended."""


class _Attributes(BaseModel):
    receive_count: int = Field(alias="ApproximateReceiveCount")
    sent_at: Millis = Field(alias="SentTimestamp")
    group: str | None = Field(alias="MessageGroupId", default=None)


class _MessageAttribute(BaseModel):
    text: str | None = Field(alias="stringValue", default=None)


class Record(BaseModel):
    """A received message."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    message_id: str = Field(alias="messageId")
    receipt: str = Field(alias="receiptHandle")
    body: str = Field(repr=False)
    attributes: _Attributes
    message_attributes: dict[str, _MessageAttribute] = Field(
        alias="messageAttributes", default_factory=dict
    )
    source: str = Field(alias="eventSourceARN")

    @property
    def receive_count(self) -> int:
        """How often the message was received, this time included."""
        return self.attributes.receive_count

    @property
    def queue(self) -> str:
        """The name of the queue that it came from."""
        return self.source.rpartition(":")[2]


class _Event(BaseModel):
    # Lambda logs what is raised.
    model_config = ConfigDict(hide_input_in_errors=True)

    records: list[Record] = Field(alias="Records")


class Unreadable(Exception):
    """A body is no message that this version knows. `problem` says why and quotes nothing of it."""

    def __init__(self, error: ValidationError) -> None:
        self.problem = describe_problems(error)
        super().__init__(self.problem)


class Busy(Exception):
    """Somebody else does the work of a message: it shall come again after `delay`."""

    def __init__(self, delay: Millis) -> None:
        super().__init__(f"comes again after {delay} ms")
        self.delay = delay


def describe_problems(error: ValidationError) -> str:
    """What is wrong with outside data, in one line that quotes no value of it."""
    problems = (
        f"{'.'.join(str(part) for part in each['loc']) or 'body'}: {each['type']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)
    )
    return "; ".join(problems)[:_LONGEST_PROBLEM]


def log_error(told: str, *arguments: Any) -> None:
    """Log an error, the last of the arguments, with its traceback unless that would quote data.

    Call it where the error is handled.
    """
    error = arguments[-1]
    quoting = next((each for each in _chain(error) if isinstance(each, _QUOTING)), None)
    if quoting is None:
        logger.exception(told, *arguments)
        return
    # A row that is not as it should be, say: the error tells what stands there.
    what = type(quoting).__name__
    if isinstance(quoting, ValidationError):
        what = f"{quoting.title}: {describe_problems(quoting)}"
    where = "" if quoting is error else f"{type(error).__name__} because of "
    logger.error(told, *arguments[:-1], where + what)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that a traceback would show with it. Such chains may be closed."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def is_batch(event: Mapping[str, Any]) -> bool:
    """Whether an event is a batch of messages."""
    return "Records" in event


def records_of(event: Mapping[str, Any]) -> Sequence[Record]:
    """The messages of an event."""
    return _Event.model_validate(event).records


class Source:
    """The queues that feed a function: what failed is given back to them."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def work_through(
        self,
        records: Sequence[Record],
        work: Callable[[Record], Awaitable[None]],
        *,
        in_order: bool = False,
    ) -> Mapping[str, Any]:
        """Do the work of each message, one after the other. Returns what the function returns.

        On a FIFO queue (`in_order`) all that follow one that failed go back with it, lest they
        overtake it.
        """
        failed: list[str] = []
        for record in records:
            if failed and in_order:
                await self.give_back(record, 0)
                failed.append(record.message_id)
                continue
            with logger.append_context_keys(message_id=record.message_id):
                if not await self._worked(record, work):
                    failed.append(record.message_id)
        return batch_response([record.message_id for record in records], failed)

    async def _worked(self, record: Record, work: Callable[[Record], Awaitable[None]]) -> bool:
        try:
            await work(record)
        except Exception as error:
            await self.take_back([record], error)
            return False
        return True

    async def take_back(self, records: Sequence[Record], error: Exception) -> None:
        """Let the messages of one group come again in their order after what one of them raised.

        The others may come at once: they cannot come before the first.
        """
        first, *others = records
        delay = _delay_after(error, first.receive_count)
        _report(error, first, delay)
        count("MessagesGivenBack")
        await self.give_back(first, delay)
        for record in others:
            await self.give_back(record, 0)

    async def give_back(self, record: Record, delay: Millis) -> None:
        """Let a message come again after a delay; if that fails, after the queue's own timeout."""
        try:
            await give_back(self._clients, self.url(record), record.receipt, delay)
        except (TransientError, *AWS_ERRORS) as error:
            logger.warning("message %s keeps its visibility: %s", record.message_id, error)

    def url(self, record: Record) -> str:
        """The URL of the queue that a message came from."""
        account, name = record.source.split(":")[-2:]
        return f"{self._clients.sqs.meta.endpoint_url}/{account}/{name}"


def _delay_after(error: Exception, receive_count: int) -> Millis:
    if isinstance(error, Busy):
        return error.delay
    return _UNREADABLE_DELAY if isinstance(error, Unreadable) else back_off(receive_count)


def _report(error: Exception, record: Record, delay: Millis) -> None:
    told = "message given back for %d ms, received %d times: %s"
    arguments = (delay, record.receive_count, error)
    if isinstance(error, Busy):
        logger.info(told, *arguments)
    elif isinstance(error, TransientError | Fenced):
        logger.warning(told, *arguments)
    elif isinstance(error, Unreadable):
        logger.error("the body is no message that this version knows; " + told, *arguments)
    else:
        log_error(told, *arguments)
