"""Checkpoints of completed steps are dead: their rows are let go, some time later."""

from __future__ import annotations

import logging

from stepwell.core.records import Millis
from stepwell.engine.ports import Ports, TransientError

_LOG = logging.getLogger("stepwell.engine")
#: How long the row stays: as long as it is there, it fences a frozen entry of the step.
_KEPT: Millis = 24 * 60 * 60_000


async def expire_checkpoint(ports: Ports, run_id: str, step: str) -> None:
    """Let a checkpoint go; that its step completed is durable.

    To save storage, no more: one that stays harms nobody, so a failure fails nothing.
    """
    try:
        await ports.store.expire_checkpoint(run_id, step, ports.clock.now() + _KEPT)
    except TransientError as error:
        _LOG.info("the checkpoint of step %r of run %s stays: %s", step, run_id, error)
