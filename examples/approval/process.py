"""One operating system process of the demo: `python -m examples.approval.process ROLE FOLDER`.

`begin` starts the refund and works until it is killed. `finish` answers as the reviewer and works
until the run has ended. They share nothing but the folder.
"""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from pathlib import Path

from examples.approval.workflow import Order, refund
from examples.outside import connect, outside
from stepwell import Client
from stepwell.adapters.local.runtime import LocalEngine

ORDER = Order(number="A-1001", customer="C-17", amount=Decimal("48.50"), complaint="arrived broken")


async def begin(engine: LocalEngine) -> None:
    """Start the refund, once however often this is called, and work for ever."""
    await engine.client.with_options(idempotency_key=ORDER.number).start(refund, ORDER)
    await engine.serve()


async def finish(engine: LocalEngine) -> None:
    """Answer every question in the reviewer's mailbox and work until all is done."""
    for token in outside().effects("review asked").values():
        resumed = await engine.client.resume_hook(
            token, {"approved": True, "reviewer": "the reviewer"}
        )
        await _work_until_ended(engine, engine.client, resumed.run_id)


async def _work_until_ended(engine: LocalEngine, client: Client, run_id: str) -> None:
    done = asyncio.Event()
    working = asyncio.create_task(engine.serve(until=done))
    await client.result(run_id, timeout="30s")
    done.set()
    await working


def main(role: str, folder: str) -> None:
    """Open the folder and play the role."""
    connect(Path(folder) / "outside.sqlite3")
    with LocalEngine.open(Path(folder) / "stepwell.sqlite3") as engine:
        asyncio.run({"begin": begin, "finish": finish}[role](engine))


if __name__ == "__main__":
    main(*sys.argv[1:])
