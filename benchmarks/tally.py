"""Counting what is asked of AWS, as it is asked: cheap, for there are many requests.

Units are those of the table alone, by the sizes of items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.adapters.aws.items import item_size
from tests.integration.aws.deployment import Deployed

#: What Lambda asks of SQS.
_LAMBDAS = frozenset({"ReceiveMessage", "DeleteMessage"})


@dataclass(slots=True)
class Tallied:
    """What something costs that is made of `items`. `messages` are those that went into queues."""

    items: int
    requests: dict[str, int] = field(default_factory=dict)
    written: int = 0
    read: int = 0
    messages: int = 0
    invocations: int = 0
    turns: int = 0


class Tally:
    """Counts requests as they are made."""

    def __init__(self, bill: Tallied) -> None:
        self._bill = bill
        self._asked = 0
        self.counting = True

    def attach(self, deployed: Deployed) -> None:
        """Count what a deployment asks for from here on."""
        table, clients = deployed.aws.table.client, deployed.aws.clients
        for client in (table, clients.sqs, clients.s3, clients.scheduler):
            client.meta.events.register("after-call", self._count)
        params = "provide-client-params"
        table.meta.events.register(f"{params}.dynamodb.PutItem", self._put)
        table.meta.events.register(f"{params}.dynamodb.BatchWriteItem", self._put_many)
        table.meta.events.register(f"{params}.dynamodb.BatchGetItem", self._ask)
        clients.sqs.meta.events.register(f"{params}.sqs.SendMessage", self._sent)
        clients.sqs.meta.events.register(f"{params}.sqs.SendMessageBatch", self._sent)

    def _count(self, event_name: str, parsed: dict[str, Any], **_: Any) -> None:
        operation = event_name.rpartition(".")[2]
        if operation in _LAMBDAS or not self.counting:
            return
        counted = self._bill.requests
        counted[operation] = counted.get(operation, 0) + 1
        if operation == "UpdateItem":
            self._bill.written += _units(item_size(parsed.get("Attributes", {})), 1024)
        elif operation == "BatchGetItem":
            self._got(parsed)
        elif operation in ("GetItem", "Query"):
            found = parsed.get("Items", [parsed.get("Item", {})])
            self._bill.read += _units(sum(map(item_size, found)), 4096)

    def _got(self, parsed: dict[str, Any]) -> None:
        """A unit for each item that is there, and for each that is not."""
        found = [item for items in parsed["Responses"].values() for item in items]
        self._bill.read += sum(_units(item_size(item), 4096) for item in found)
        self._bill.read += self._asked - len(found)

    def _ask(self, params: dict[str, Any], **_: Any) -> None:
        self._asked = sum(len(each["Keys"]) for each in params["RequestItems"].values())

    def _put_many(self, params: dict[str, Any], **_: Any) -> None:
        for requests in params["RequestItems"].values():
            for each in requests:
                self._written(each.get("PutRequest", {"Item": {}})["Item"])

    def _written(self, item: dict[str, Any]) -> None:
        if self.counting:
            self._bill.written += _units(item_size(item), 1024)

    def _put(self, params: dict[str, Any], **_: Any) -> None:
        self._written(params["Item"])

    def _sent(self, params: dict[str, Any], **_: Any) -> None:
        if self.counting:
            self._bill.messages += len(params.get("Entries", [1]))


def _units(size: int, of: int) -> int:
    return max(1, math.ceil(size / of))


def table(bills: Sequence[Tallied], of: str = "items") -> str:
    """The bills as text, and what each item costs."""
    lines = [f"{of:>7} {'requests':>9} {'WRU':>6} {'RRU':>6} {'messages':>8} {'turns':>5}  each"]
    for bill in bills:
        total = sum(bill.requests.values())
        each = ", ".join(
            f"{count / bill.items:.2f} {name}"
            for name, count in (
                ("requests", total),
                ("WRU", bill.written),
                ("RRU", bill.read),
                ("messages", bill.messages),
                ("turns", bill.turns),
            )
        )
        lines.append(
            f"{bill.items:>7} {total:>9} {bill.written:>6} {bill.read:>6} {bill.messages:>8} "
            f"{bill.turns:>5}  {each}"
        )
    return "\n".join(lines)
