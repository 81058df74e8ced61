"""SQS as Lambda meets it: groups in order, visibility, redelivery, dead letters, deduplication.

Stands in place of moto's, which forgets the order of a group when a message comes again. Time is
what it is told: seconds, and nothing happens by itself.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.deployed.built import BuiltQueue

ACCOUNT = "123456789012"
REGION = "us-east-1"
DEDUPLICATION_SECONDS = 300


@dataclass(kw_only=True)
class Message:
    """A message in a queue. `receipt` belongs to its last receive."""

    id: str
    body: str
    sent: float
    visible: float
    group: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    receives: int = 0
    first_receive: float = 0.0
    receipt: str | None = None
    deduplication_id: str | None = None


class Queue:
    """One queue."""

    def __init__(self, built: BuiltQueue) -> None:
        self.built = built
        self.name = built.name + (".fifo" if built.fifo else "")
        self.arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.name}"
        self.messages: list[Message] = []
        self._seen: dict[tuple[str | None, str], float] = {}

    def add(self, message: Message) -> None:
        """Take a message, unless its group had an equal one within five minutes."""
        if self.built.fifo:
            body = hashlib.sha256(message.body.encode()).hexdigest()
            key = (message.group, message.deduplication_id or body)
            if message.sent - self._seen.get(key, float("-inf")) < DEDUPLICATION_SECONDS:
                return
            self._seen[key] = message.sent
        self.messages.append(message)

    def clear(self) -> None:
        """Forget all messages, and what was sent before."""
        self.messages.clear()
        self._seen.clear()

    def ready(self, now: float) -> Iterable[Message]:
        """What could be received now: in a FIFO queue nothing of a group that has one in flight."""
        held = {each.group for each in self.messages if self.built.fifo and each.visible > now}
        for message in self.messages:
            if message.visible <= now and message.group not in held:
                yield message

    def next_time(self, now: float) -> float | None:
        """When something becomes visible that is not."""
        return min((each.visible for each in self.messages if each.visible > now), default=None)


class Queues:
    """All queues. Functions reach them through the front, from their own threads."""

    def __init__(self, built: Mapping[str, BuiltQueue], now: Callable[[], float]) -> None:
        self.by_name = {name: Queue(each) for name, each in built.items()}
        self._by_queue_name = {queue.name: queue for queue in self.by_name.values()}
        self._now = now
        self._lock = threading.RLock()

    def sent(self, url: str, body: Mapping[str, Any], message_id: str) -> None:
        """A message was sent to the queue of a URL."""
        queue = self._by_queue_name[url.rpartition("/")[2]]
        now = self._now()
        message = Message(
            id=message_id,
            body=body["MessageBody"],
            sent=now,
            visible=now + body.get("DelaySeconds", 0),
            group=body.get("MessageGroupId"),
            attributes=body.get("MessageAttributes", {}),
            deduplication_id=body.get("MessageDeduplicationId"),
        )
        with self._lock:
            queue.add(message)

    def put(self, queue: str, body: str, group: str | None = None) -> None:
        """What Scheduler does when it sends."""
        now = self._now()
        message = Message(id=str(uuid.uuid4()), body=body, sent=now, visible=now, group=group)
        with self._lock:
            self.by_name[queue].add(message)

    def clear(self) -> None:
        """Forget all messages, and what was sent before."""
        with self._lock:
            for queue in self.by_name.values():
                queue.clear()

    def receive(self, queue: Queue, most: int) -> list[Message]:
        """Up to so many messages to be received; what came too often becomes a dead letter."""
        taken: list[Message] = []
        with self._lock:
            for message in list(queue.ready(self._now())):
                if queue.built.dead is not None and message.receives >= queue.built.max_receives:
                    self._bury(queue, message)
                elif len(taken) < most:
                    self._take(queue, message)
                    taken.append(message)
        return taken

    def change_visibility(self, receipt: str, seconds: int) -> bool:
        """Let the message of a receipt be visible after so many seconds."""
        with self._lock:
            found = self._find(receipt)
            if found is not None:
                found[1].visible = self._now() + seconds
            return found is not None

    def delete(self, receipt: str) -> bool:
        """Delete the message of a receipt."""
        with self._lock:
            found = self._find(receipt)
            if found is not None:
                found[0].messages.remove(found[1])
            return found is not None

    def _take(self, queue: Queue, message: Message) -> None:
        now = self._now()
        message.receives += 1
        message.first_receive = message.first_receive or now
        message.receipt = uuid.uuid4().hex
        message.visible = now + queue.built.visibility

    def _bury(self, queue: Queue, message: Message) -> None:
        queue.messages.remove(message)
        message.receives, message.first_receive, message.visible = 0, 0.0, self._now()
        assert queue.built.dead is not None
        self.by_name[queue.built.dead].messages.append(message)

    def _find(self, receipt: str) -> tuple[Queue, Message] | None:
        for queue in self.by_name.values():
            for message in queue.messages:
                if message.receipt == receipt:
                    return queue, message
        return None


def record_of(queue: Queue, message: Message) -> dict[str, Any]:
    """A message as Lambda hands it to a function."""
    attributes = {
        "ApproximateReceiveCount": str(message.receives),
        "SentTimestamp": str(int(message.sent * 1000)),
        "SenderId": "AIDAEXAMPLE",
        "ApproximateFirstReceiveTimestamp": str(int(message.first_receive * 1000)),
    }
    if message.group is not None:
        attributes |= {"MessageGroupId": message.group}
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": attributes,
        "messageAttributes": {
            name: {key[0].lower() + key[1:]: value for key, value in given.items()}
            for name, given in message.attributes.items()
        },
        "md5OfBody": hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.arn,
        "awsRegion": REGION,
    }


def failed_ids(response: Any) -> set[str]:
    """The messages that a function named as failed."""
    assert set(response) == {"batchItemFailures"}, json.dumps(response)
    return {each["itemIdentifier"] for each in response["batchItemFailures"]}
