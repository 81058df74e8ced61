"""`python -m benchmarks.maps [N ...]`: what a dispatched map costs on AWS, and how that grows.

Requests, capacity units and messages are counted through the real adapters and handlers on
emulated services; nothing is timed. Units are those of the table alone, by the sizes of items.
Ten thousand items take some five minutes each way.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from moto.sqs.models import sqs_backends

from benchmarks.tally import Tallied, Tally, table
from benchmarks.workflows import map_elsewhere, map_in_lanes
from stepwell.adapters.aws.handlers.telemetry import logger
from stepwell.authoring.decorators import Workflow
from tests.contract.given import run
from tests.contract.messaging import ACCOUNT, REGION
from tests.integration.aws.deployment import Deployed, open_deployment

SIZES = (10, 100, 1_000)


def bill_of(flow: Workflow[[int], Any], items: int) -> Tallied:
    """The bill of one run, after another one has made its process and its workflow known."""
    bill = Tallied(items)
    with open_deployment() as deployed:
        run(deployed.client.start(flow, 1))
        deployed.pump()
        tally = Tally(bill)
        tally.attach(deployed)
        handle = run(deployed.client.start(flow, items))
        _work(deployed, bill)
        tally.counting = False
        assert deployed.header(handle.id).status == "COMPLETED"
    return bill


def _work(deployed: Deployed, bill: Tallied) -> None:
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


def bills_of(sizes: Sequence[int]) -> dict[str, list[Tallied]]:
    """The bills of dispatched maps of these sizes, by what they are told."""
    flows = {"all at once": map_elsewhere, "ten at a time": map_in_lanes}
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        # The functions tell of what they count.
        return {name: [bill_of(flow, size) for size in sizes] for name, flow in flows.items()}


def tables(bills: dict[str, list[Tallied]]) -> str:
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
