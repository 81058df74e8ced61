"""`python -m benchmarks.signals [N ...]`: what signals cost on AWS, and how that grows.

Counted as maps are: through the real adapters and handlers on emulated services, nothing timed.
Signals go to one subscription, in a burst or one by one; or one goes to many subscriptions. What
it costs to start the stream run is left out. Ten thousand signals take some ten minutes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.streams import TOLD, stream_of
from benchmarks.tally import Tallied, Tally, table
from stepwell.adapters.aws.handlers.telemetry import logger
from stepwell.client import NewSignal
from stepwell.streams.declare import StreamWorkflow
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed, open_deployment

SIZES = (10, 100, 1_000)
#: Subscriptions of one signal on AWS; more take time to emulate.
CROWDS = (1, 10, 100)
#: Signals that one call sends at most.
_AT_ONCE = 500


def _news(signals: int) -> list[NewSignal]:
    return [NewSignal(signal_type="told", payload=TOLD) for _ in range(signals)]


def bill_of(signals: int, subscriptions: int = 1, *, burst: bool = True) -> Tallied:
    """The bill of signals to one stream run, sent at once or each when the one before is through.

    Behind one that has made the process and the stream run known.
    """
    bill, stream = Tallied(signals), stream_of(subscriptions)
    with open_deployment(unchecked="it is counted; that it is right is seen in tests") as deployed:
        run(deployed.client.start(stream))
        _work(deployed, Tallied(0))
        _send(deployed, stream, 1, Tallied(0))
        tally = Tally(bill)
        tally.attach(deployed)
        for size in [signals] if burst else [1] * signals:
            _send(deployed, stream, size, bill)
        tally.counting = False
        standing = run(deployed.client.stream(stream))
        assert {each.handled for each in standing.subscriptions} == {1 + signals}
        assert len(standing.subscriptions) == subscriptions
    return bill


def _send(deployed: Deployed, stream: StreamWorkflow[[], Any], signals: int, bill: Tallied) -> None:
    for first in range(0, signals, _AT_ONCE):
        run(deployed.client.emit_all(stream, _news(min(_AT_ONCE, signals - first))))
    _work(deployed, bill)


def _work(deployed: Deployed, bill: Tallied) -> None:
    """Deliver until there is nothing to receive, the next batch of signals to each turn."""
    idle = False
    while not idle:
        before = deployed.delivered
        if deployed.held("signal.fifo"):
            deployed.deliver("signal.fifo")
        turns = deployed.delivered
        deployed.deliver("run.fifo", 1)
        bill.turns += deployed.delivered - turns
        bill.invocations += deployed.delivered - before
        idle = deployed.delivered == before


def bills_of(sizes: Sequence[int], crowds: Sequence[int] = CROWDS) -> dict[str, list[Tallied]]:
    """The bills of signals, so many to one subscription, and of one to so many, by what it is."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        # The functions tell of what they count.
        alone = [bill_of(1, size) for size in crowds]
        for bill, size in zip(alone, crowds, strict=True):
            bill.items = size
        return {
            "signals in a burst": [bill_of(size) for size in sizes],
            "signals one by one": [bill_of(size, burst=False) for size in sizes if size <= 100],
            "one signal to each": alone,
        }


def tables(bills: dict[str, list[Tallied]]) -> str:
    """All bills as text."""
    return "\n".join(f"\n{name}, on AWS\n{table(found, 'n')}" for name, found in bills.items())


def main() -> None:
    """Print the bills."""
    logger.setLevel("ERROR")
    print(tables(bills_of([int(each) for each in sys.argv[1:]] or SIZES)))


if __name__ == "__main__":
    main()
