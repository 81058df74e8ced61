"""Messages that cannot be done for good go to the dead letters of their queue, with the reason."""

from __future__ import annotations

from typing import Any

from stepwell.adapters.aws.batches import BODY_LIMIT
from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.handlers.batch import Record

_REASON_LIMIT = 1_000


class Refused(Exception):
    """A message asks for what cannot be done. `reason` may quote the message: it is not logged."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason


async def send_refused(clients: Clients, url: str, record: Record, refused: Refused) -> None:
    """Send a message to the dead letters. The caller acknowledges it afterwards."""
    attributes = _attributes(refused)
    size = len(record.body.encode()) + sum(
        len(name) + len("String") + len(each["StringValue"].encode())
        for name, each in attributes.items()
    )
    order: dict[str, Any] = {}
    if record.attributes.group is not None:
        order["MessageGroupId"] = record.attributes.group
        order["MessageDeduplicationId"] = record.message_id
    await clients.call(
        clients.sqs.send_message,
        QueueUrl=url,
        MessageBody=record.body,
        # The limit is on both together; the body is what must not be lost.
        MessageAttributes=attributes if size <= BODY_LIMIT else {},
        **order,
    )


def _attributes(refused: Refused) -> dict[str, Any]:
    # SQS refuses control characters, and an empty value.
    reason = refused.reason[:_REASON_LIMIT]
    line = "".join(c if c.isprintable() else " " for c in reason) or refused.code
    return {
        name: {"DataType": "String", "StringValue": value}
        for name, value in (("code", refused.code), ("reason", line))
    }
