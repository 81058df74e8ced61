"""Checkpoints of steps: how an entry gets the one that stands, and how dead ones are let go.

An entry that takes over from one that may still be at work puts the row anew, with the number of
the last event it knows itself. What a frozen entry saves after that is refused: its output may have
been superseded in the meantime, and then nothing would fit together any more.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from stepwell.core.records import Checkpoint, Millis
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Ports
from stepwell.engine.turn_context import TurnContext

_LOG = logging.getLogger("stepwell.engine")
#: How long the row stays: as long as it is there, it fences a frozen entry of the step.
_KEPT: Millis = 24 * 60 * 60_000

#: What a row is saved by that only fences: nothing was saved yet.
_NOTHING = ""


async def take_over(turn: TurnContext, step: str) -> Checkpoint | None:
    """The checkpoint that stands, fenced against all who began before. Raises `Fenced`."""
    found = await turn.ports.store.get_checkpoint(turn.run_id, step)
    last_event = turn.journal.durable
    fence = Checkpoint(
        run_id=turn.run_id,
        step=step,
        last_event=last_event,
        save_id=_NOTHING,
        saved_at=turn.ports.clock.now(),
        output=0,
        answers=(),
        value="null",
    )
    if found is not None:
        # With our own number, also where a higher one stands: then the put is refused.
        fence = replace(found, last_event=last_event)
    if not await turn.ports.store.put_checkpoint(fence):
        raise Fenced(f"a later turn saved the checkpoint of step {step!r}")
    return _saved(found)


async def standing_checkpoint(turn: TurnContext, step: str) -> Checkpoint | None:
    """The checkpoint that stands, if one was saved."""
    return _saved(await turn.ports.store.get_checkpoint(turn.run_id, step))


def _saved(found: Checkpoint | None) -> Checkpoint | None:
    return None if found is None or found.save_id == _NOTHING else found


async def expire_checkpoint(ports: Ports, run_id: str, step: str) -> None:
    """Let a checkpoint go; that its step completed is durable.

    To save storage, no more: one that stays harms nobody, so a failure fails nothing.
    """
    try:
        await ports.store.expire_checkpoint(run_id, step, ports.clock.now() + _KEPT)
    except Exception as error:
        _LOG.info("the checkpoint of step %r of run %s stays: %s", step, run_id, error)
