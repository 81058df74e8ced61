"""Messages that nobody could handle: each is kept as a row for ninety days, so that none is lost.

The rows stand in one partition, by the time at which their messages were sent. What a token proves
is not kept: the client makes the token of an open hook again.
"""

from __future__ import annotations

import re

from stepwell.adapters.aws.handlers.batch import Record
from stepwell.adapters.aws.items import RawItem
from stepwell.adapters.aws.keys import DEAD_LETTERS
from stepwell.adapters.aws.wiring import AwsDeployment
from stepwell.core.payload import Sizes
from stepwell.engine.values import Values

_KEPT_S = 90 * 24 * 3600
_TIME_DIGITS = 15
#: A hook's token, wherever it stands in a body; its last part proves it.
_TOKEN = re.compile(r"(?<![A-Za-z0-9])([A-Za-z0-9]+\.[\w-]+\.[\w-]+)\.[\w-]{43}(?![\w-])", re.ASCII)


class DeadLetters:
    """The rows of dead letters."""

    def __init__(self, aws: AwsDeployment) -> None:
        self._aws = aws
        self._values = Values(aws.blobs, Sizes())

    async def keep(self, record: Record, reason: str, run_id: str | None) -> None:
        """Keep a message; doing it again changes nothing. Large bodies become blobs."""
        body = await self._values.put(_TOKEN.sub(r"\1", record.body), "dead letter")
        sent_at = record.attributes.sent_at
        item: RawItem = {
            "pk": {"S": DEAD_LETTERS},
            "sk": {"S": f"{sent_at:0{_TIME_DIGITS}}#{record.message_id}"},
            "sent_at": {"N": str(sent_at)},
            "queue": {"S": record.queue},
            "message_id": {"S": record.message_id},
            "reason": {"S": reason},
            "body": {"S": body},
            "expires_at": {"N": str(self._aws.ports.clock.now() // 1000 + _KEPT_S)},
        }
        if run_id is not None:
            item["run_id"] = {"S": run_id}
        await self._aws.clients.call(self._aws.table.put, item)
