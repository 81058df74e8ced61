"""Asking for the retry of a run that has ended, on its row; the message has been sent before."""

from __future__ import annotations

from stepwell.core.messages import RetryRun
from stepwell.core.reopening import reopened, request_of
from stepwell.engine.ports import Ports


async def ask_retry(ports: Ports, message: RetryRun) -> None:
    """Reopen the header for a retry, unless the run has gone on already."""
    header = await ports.store.get_header(message.run_id)
    if header is None or not header.status.terminal or header.last_event != message.after:
        return
    asked = reopened(header, request_of(message), ports.clock.now())
    await ports.store.update_header(asked, over=header, reopens=True)
