"""The run queue on SQS FIFO, and the inbox queue, which can delay.

Lambda receives and deletes: the worker only says which messages of a batch failed and when they
shall come again. The queue drops a body that it has seen in the same group within five minutes, by
its hash. That makes a send that is repeated harmless, and it must swallow nothing else: a body
names the run, its type and a cause, and `cause_of` says for each type what that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, assert_never

from botocore.exceptions import ClientError

from stepwell.adapters.aws.batches import BODY_LIMIT, send_all
from stepwell.adapters.aws.clients import Clients, error_code
from stepwell.core.messages import (
    CancelRun,
    ChildNoted,
    ChildReported,
    Continue,
    DeleteRun,
    HookDecided,
    InboxPut,
    LookAgain,
    MapItem,
    MapReported,
    MendSignal,
    Message,
    ResumeRun,
    RetryRun,
    SignalsArrived,
    StartRun,
    StepMessage,
    StepReported,
    TimerDue,
    Wake,
    dump_message,
)
from stepwell.core.records import Millis
from stepwell.engine.ports import ItemTooLarge

#: The longest that SQS keeps a message back after a send.
LONGEST_DELAY_S = 900
#: The longest that SQS keeps a received message from being received again, from the receive on.
LONGEST_HOLD_S = 43_200

_LONGEST_BACK_OFF: Millis = 300_000
_FIRST_BACK_OFF: Millis = 1_000
_HASHED = "sha256:"
_GROUP = re.compile(r"[!-~]{1,128}")
#: In a JSON text these can only stand inside strings, where an escape means the same.
_REFUSED_BY_SQS = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
_STALE_RECEIPT = frozenset({"MessageNotInflight", "ReceiptHandleIsInvalid"})


def group_of(run_id: str) -> str:
    """The message group of a run: its id, or a hash of it where SQS would not take the id."""
    if _GROUP.fullmatch(run_id) and not run_id.startswith(_HASHED):
        return run_id
    return _HASHED + sha256(run_id.encode()).hexdigest()


def cause_of(message: Message) -> tuple[str | int, ...]:
    """What sets a message apart from all others of its run and type. Equal causes are one message.

    A start has a fresh seed, a decision is made from what is answered, a timer is one arm of one
    wait and its time, a report is of one claim on an attempt, or of one end of a child, what a
    child notes is as of one of its events, and what is asked of a run has an id of its own. Signals
    have arrived up to a number, and the two wake-ups carry a cause and nothing else. Two puts of
    one entry may differ in what they put, and then the row decides which of them counts.
    """
    match message:
        case StartRun():
            return (message.seed,)
        case HookDecided():
            return (message.hook_id, message.decision_id)
        case TimerDue():
            return (message.wait_id, message.arm, message.due)
        case MapReported():
            return (message.map, message.order, message.cause)
        case StepReported():
            return (message.step, message.order, message.claim)
        case InboxPut():
            return (message.entry_id, message.key, message.payload)
        case ChildReported():
            return (message.child_run, message.last_event)
        case ChildNoted():
            return (message.child_run, message.order)
        case SignalsArrived():
            return (message.until,)
        case CancelRun() | LookAgain() | ResumeRun() | RetryRun() | DeleteRun() | MendSignal():
            return (message.request_id,)
        case Continue() | Wake():
            return (message.cause,)
    assert_never(message)


def body_of(message: Message) -> str:
    """The message as a body that SQS takes. Raises `ItemTooLarge`; `ValueError` without a cause."""
    if "" in cause_of(message):
        raise ValueError(f"a {message.type!r} message to run {message.run_id!r} needs a cause")
    return for_sqs(dump_message(message), f"message to run {message.run_id!r}")


def for_sqs(text: str, what: str, limit: int = BODY_LIMIT) -> str:
    """JSON as SQS takes it. Raises `ItemTooLarge`, naming what it is, above a limit in bytes."""
    body = text.translate(_REFUSED_BY_SQS)
    size = len(body.encode())
    if size > limit:
        raise ItemTooLarge(what, size, limit)
    return body


class SqsQueue:
    """Implements the `Queue` port on a FIFO queue with content-based deduplication."""

    def __init__(self, clients: Clients, url: str) -> None:
        if not url.endswith(".fifo"):
            raise ValueError(f"the run queue has to be a FIFO queue: {url!r}")
        self._clients = clients
        self._url = url

    async def send(self, message: Message) -> None:
        """Send to the group of the message's run. Equal bodies within five minutes are one."""
        await self._clients.call(
            self._clients.sqs.send_message,
            QueueUrl=self._url,
            MessageBody=body_of(message),
            MessageGroupId=group_of(message.run_id),
        )

    async def send_all(self, messages: Sequence[Message]) -> None:
        """Send messages to runs, each run named once at most.

        All were sent when it returns; some may have been when it raises.
        """
        entries = [
            {"MessageBody": body_of(each), "MessageGroupId": group_of(each.run_id)}
            for each in messages
        ]
        await send_all(self._clients, self._url, entries)


class SqsStepQueue:
    """Implements the `StepQueue` port on a standard queue. `sent` counts what went out."""

    def __init__(self, clients: Clients, url: str) -> None:
        if url.endswith(".fifo"):
            raise ValueError(f"steps need no order, so their queue is a standard one: {url!r}")
        self.sent = 0
        self._clients = clients
        self._url = url

    async def send(self, attempt: StepMessage) -> None:
        """Have an attempt made."""
        await self._clients.call(
            self._clients.sqs.send_message,
            QueueUrl=self._url,
            MessageBody=for_sqs(dump_message(attempt), f"attempt of step {attempt.name!r}"),
        )
        self.sent += 1

    async def send_items(self, items: Sequence[MapItem], *, delay: Millis = 0) -> None:
        """Have attempts of items made, `delay` ms from now on, which is at most 15 minutes."""
        seconds = seconds_up(delay)
        if not 0 <= seconds <= LONGEST_DELAY_S:
            raise ValueError(f"SQS delays by 0 to {LONGEST_DELAY_S} seconds, not {seconds}")
        delayed = {"DelaySeconds": seconds} if seconds else {}
        bodies = [
            for_sqs(dump_message(item), f"item {item.index} of map {item.map!r}") for item in items
        ]
        await send_all(
            self._clients, self._url, ({"MessageBody": body, **delayed} for body in bodies)
        )
        self.sent += len(bodies)


class InboxQueue:
    """The standard queue from which messages go on to the run queue, at once or a little later.

    It may deliver one twice and in any order.
    """

    def __init__(self, clients: Clients, url: str) -> None:
        if url.endswith(".fifo"):
            raise ValueError(f"the inbox cannot be a FIFO queue, which delays nothing: {url!r}")
        self._clients = clients
        self._url = url

    async def send_later(self, message: Message, delay_seconds: int) -> None:
        """Send; it is received after the delay, or later. Raises `ValueError` above 900 s."""
        await self.send_body(body_of(message), delay_seconds)

    async def send_body(self, body: str, delay_seconds: int) -> None:
        """Send what is no message of a run, in the same way."""
        if not 0 <= delay_seconds <= LONGEST_DELAY_S:
            raise ValueError(f"SQS delays by 0 to {LONGEST_DELAY_S} seconds, not {delay_seconds}")
        await self._clients.call(
            self._clients.sqs.send_message,
            QueueUrl=self._url,
            MessageBody=body,
            DelaySeconds=delay_seconds,
        )


async def give_back(clients: Clients, url: str, receipt: str, delay: Millis) -> bool:
    """Let a received message of any queue come again after `delay` ms, rounded up to the second.

    Until then its group waits. False when the receipt is stale: the message was deleted, or
    delivered again. Name the message in `batch_response` too, or Lambda deletes it.
    """
    if delay < 0:
        raise ValueError(f"a message cannot come again {-delay} ms ago")
    try:
        await clients.call(
            clients.sqs.change_message_visibility,
            QueueUrl=url,
            ReceiptHandle=receipt,
            VisibilityTimeout=min(seconds_up(delay), LONGEST_HOLD_S),
        )
    except ClientError as error:
        if _is_stale(error):
            return False
        raise
    return True


def seconds_up(ms: Millis) -> int:
    """Whole seconds, never fewer than the milliseconds make."""
    return -(-ms // 1000)


def back_off(receive_count: int) -> Millis:
    """How long a message that failed stays away: a second, doubled each time, up to five minutes.

    Not random: one message of a run is in flight, so there is nobody of its group to keep apart.
    """
    doublings = min(max(receive_count - 1, 0), 16)
    return min(_FIRST_BACK_OFF << doublings, _LONGEST_BACK_OFF)


def batch_response(received: Iterable[str], failed: Iterable[str]) -> Mapping[str, Any]:
    """What the handler of an SQS event returns; Lambda deletes all but the messages named in it.

    Takes message ids in the order of the batch. On a FIFO queue a handler stops at the first that
    fails and passes that one and all after it as failed, lest the later overtake it.
    """
    order = list(received)
    lost = set(failed)
    if unknown := lost - set(order):
        # Lambda takes an unknown id for a failure of the whole batch.
        raise ValueError(f"not in the batch: {sorted(unknown)}")
    return {"batchItemFailures": [{"itemIdentifier": id} for id in order if id in lost]}


def _is_stale(error: ClientError) -> bool:
    if error_code(error) in _STALE_RECEIPT:
        return True
    # FIFO queues say so in words: "The receipt handle has expired."
    message = error.response.get("Error", {}).get("Message", "")
    return error_code(error).startswith("InvalidParameterValue") and "receipt" in message.lower()
