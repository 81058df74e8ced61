"""Messages sent to SQS ten at a time. Of a batch some may be taken and others not."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from stepwell.adapters.aws.clients import ATTEMPTS, Clients, is_transient
from stepwell.engine.ports import TransientError

#: Bytes of a body, and of all bodies of a batch: SQS's own limit.
BODY_LIMIT = 1024 * 1024
#: Messages of one batch.
_BATCH = 10

#: What is sent of one message, as SQS names it: `MessageBody`, `MessageGroupId` and the like.
Entry = Mapping[str, Any]


async def send_all(clients: Clients, url: str, entries: Iterable[Entry]) -> None:
    """Send messages in batches. Raises as a send of each of them would.

    What SQS did not take it is asked to take again, a few times. The others of a batch are sent
    all the same: two messages of one group in one batch may change places.
    """
    for batch in batches(entries):
        await clients.call(_send, clients, url, batch)


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Messages in batches that SQS takes: ten, of at most one message's bytes together."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(entry["MessageBody"].encode())
        if batch and (len(batch) == _BATCH or size + length > BODY_LIMIT):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def _send(clients: Clients, url: str, batch: Sequence[Entry]) -> None:
    """Send one batch. Blocks."""
    left: list[Any] = [{"Id": str(n), **entry} for n, entry in enumerate(batch)]
    failed: dict[str, ClientError] = {}
    for attempt in range(1, ATTEMPTS + 1):
        reply = clients.sqs.send_message_batch(QueueUrl=url, Entries=left)
        failed = {each["Id"]: _error(each) for each in reply.get("Failed", ())}
        if not failed:
            return
        if lasting := next((each for each in failed.values() if not is_transient(each)), None):
            raise lasting
        left = [entry for entry in left if entry["Id"] in failed]
        if attempt < ATTEMPTS:
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
    raise TransientError(f"SQS does not take {len(left)} messages: {next(iter(failed.values()))}")


def _error(failed: Mapping[str, Any]) -> ClientError:
    """Why one message was not taken, as the error that a send of it alone would raise."""
    told = {"Code": failed["Code"], "Message": failed.get("Message", "")}
    status = 400 if failed.get("SenderFault") else 500
    reply: Any = {"Error": told, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(reply, "SendMessageBatch")
