"""`python -m benchmarks.maps [N ...]`: what a dispatched map costs on AWS, and how that grows.

Requests, capacity units and messages are counted through the real adapters and handlers on
emulated services; nothing is timed. Units are those of the table alone, by the sizes of items.
Ten thousand items take some five minutes each way.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moto.sqs.models import sqs_backends

from benchmarks.workflows import map_elsewhere, map_in_lanes
from stepwell.adapters.aws.handlers.telemetry import logger
from stepwell.adapters.aws.items import item_size
from stepwell.authoring.decorators import Workflow
from tests.contract.given import run
from tests.contract.messaging import ACCOUNT, REGION
from tests.integration.aws.deployment import Deployed, open_deployment

SIZES = (10, 100, 1_000)
#: What Lambda asks of SQS.
_LAMBDAS = frozenset({"ReceiveMessage", "DeleteMessage"})


@dataclass(slots=True)
class MapBill:
    """What one run costs that maps over `items`. `messages` are those that went into queues."""

    items: int
    requests: dict[str, int] = field(default_factory=dict)
    written: int = 0
    read: int = 0
    messages: int = 0
    invocations: int = 0
    turns: int = 0


class _Tally:
    """Counts requests as they are made. Cheap, for there are many."""

    def __init__(self, bill: MapBill) -> None:
        self._bill = bill
        self.counting = True

    def attach(self, deployed: Deployed) -> None:
        """Count what a deployment asks for from here on."""
        table, clients = deployed.aws.table.client, deployed.aws.clients
        for client in (table, clients.sqs, clients.s3, clients.scheduler):
            client.meta.events.register("after-call", self._count)
        params = "provide-client-params"
        table.meta.events.register(f"{params}.dynamodb.PutItem", self._put)
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
        elif operation in ("GetItem", "Query"):
            found = parsed.get("Items", [parsed.get("Item", {})])
            self._bill.read += _units(sum(map(item_size, found)), 4096)

    def _put(self, params: dict[str, Any], **_: Any) -> None:
        self._bill.written += _units(item_size(params["Item"]), 1024)

    def _sent(self, params: dict[str, Any], **_: Any) -> None:
        self._bill.messages += len(params.get("Entries", [1]))


def _units(size: int, of: int) -> int:
    return max(1, math.ceil(size / of))


def bill_of(flow: Workflow[[int], Any], items: int) -> MapBill:
    """The bill of one run, after another one has made its process and its workflow known."""
    bill = MapBill(items)
    with open_deployment() as deployed:
        run(deployed.client.start(flow, 1))
        deployed.pump()
        tally = _Tally(bill)
        tally.attach(deployed)
        handle = run(deployed.client.start(flow, items))
        _work(deployed, bill)
        tally.counting = False
        assert deployed.header(handle.id).status == "COMPLETED"
    return bill


def _work(deployed: Deployed, bill: MapBill) -> None:
    """Deliver until there is nothing to receive: turns first, then items."""
    items = _Backlog("step")
    items.offer()
    idle = False
    while not idle:
        before = deployed.delivered
        deployed.deliver("run.fifo", 1)
        bill.turns += deployed.delivered - before
        items.offer()
        deployed.deliver("step", 1)
        idle = deployed.delivered == before
        bill.invocations += deployed.delivered - before


class _Backlog:
    """Messages of a queue that wait outside of it, in their order.

    Whatever is asked of moto's queue goes through all of its messages, a send included. With one at
    a time in it the same requests get the same replies, and each takes as long as the one before.
    """

    def __init__(self, queue: str) -> None:
        self._queue: Any = sqs_backends[ACCOUNT][REGION].get_queue(queue)
        self._waiting: deque[Any] = deque()

    def offer(self) -> None:
        """Put the first message back, and keep back all others, those to come included."""
        self._waiting.extend(self._queue._messages)
        self._queue._messages = _OneMessage(self._waiting)
        if self._waiting:
            list.append(self._queue._messages, self._waiting.popleft())


class _OneMessage(list[Any]):
    def __init__(self, waiting: deque[Any]) -> None:
        super().__init__()
        self._waiting = waiting

    def append(self, message: Any) -> None:
        self._waiting.append(message)


def bills_of(sizes: Sequence[int]) -> dict[str, list[MapBill]]:
    """The bills of dispatched maps of these sizes, by what they are told."""
    flows = {"all at once": map_elsewhere, "ten at a time": map_in_lanes}
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        # The functions tell of what they count.
        return {name: [bill_of(flow, size) for size in sizes] for name, flow in flows.items()}


def table(bills: list[MapBill]) -> str:
    """The bills as text, and what each item costs."""
    lines = [
        f"{'items':>6} {'requests':>9} {'WRU':>6} {'RRU':>6} {'messages':>8} {'turns':>5}  each"
    ]
    for bill in bills:
        total = sum(bill.requests.values())
        each = ", ".join(
            f"{count / bill.items:.2f} {name}"
            for name, count in (
                ("requests", total),
                ("WRU", bill.written),
                ("RRU", bill.read),
                ("messages", bill.messages),
            )
        )
        lines.append(
            f"{bill.items:>6} {total:>9} {bill.written:>6} {bill.read:>6} {bill.messages:>8} "
            f"{bill.turns:>5}  {each}"
        )
    return "\n".join(lines)


def tables(bills: dict[str, list[MapBill]]) -> str:
    """All bills as text."""
    return "\n".join(
        f"\na dispatched map on AWS, {name}\n{table(found)}" for name, found in bills.items()
    )


def main() -> None:
    """Print the bills."""
    logger.setLevel("ERROR")
    print(tables(bills_of([int(each) for each in sys.argv[1:]] or SIZES)))


if __name__ == "__main__":
    main()
