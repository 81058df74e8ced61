"""One pass of code over its history, and on from there: perform and feed until nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from stepwell.core import events as e
from stepwell.engine.endings import Blocked
from stepwell.engine.perform import FRESH, Performer
from stepwell.engine.replay import Replay
from stepwell.engine.turn_context import TurnContext


@asynccontextmanager
async def passed(
    turn: TurnContext,
    replay: Replay,
    history: Sequence[e.Event],
    recorded: int,
    fraction: Callable[[], float],
    *,
    stop_at: float,
) -> AsyncIterator[bool]:
    """Replay a history, `recorded` events of which earlier turns left, and perform what is new.

    Gives whether steps were held back for want of time: none begins after `stop_at`, in seconds of
    the loop's clock. The pass is over when the block is left; the outcome is the replay's.
    """
    performer = Performer(turn, replay, fraction)
    try:
        replay.run(history, recorded=recorded)
        held = await _perform(turn, replay, performer, stop_at)
        if not isinstance(replay.outcome, Blocked):
            await performer.record_rest()
        await performer.stop()
        await turn.puts.settle()
        yield held
        await performer.expire_checkpoints()
    finally:
        try:
            await performer.stop()
            await turn.puts.close()
        finally:
            # Also when this turn is cancelled: code that were collected later would run its
            # cleanup outside of its run.
            replay.unwind()


def time_to_stop(turn: TurnContext) -> float:
    """When a turn begins no more steps, in seconds of the loop's clock."""
    now, most = asyncio.get_running_loop().time(), turn.settings.turn_time / 1000
    if turn.ends_at is not None:
        most = min(most, (turn.ends_at - now) * FRESH)
    return now + most


async def _perform(turn: TurnContext, replay: Replay, performer: Performer, stop_at: float) -> bool:
    """Perform and feed until nothing is left to do now. Whether steps were held back."""
    loop = asyncio.get_running_loop()
    while replay.outcome is None:
        new_steps = loop.time() < stop_at and not performer.cancelled
        held = await performer.begin(new_steps=new_steps)
        if replay.outcome is not None:
            break
        if not performer.busy:
            return held
        if turn.journal.needs_flush and not performer.reported:
            # Nothing else to do: outcomes must not wait for the slowest of their siblings.
            await turn.journal.flush()
        await performer.wait()
        await performer.take_reports()
    return False
