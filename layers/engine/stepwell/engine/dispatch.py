"""Dispatching steps: their attempts are made elsewhere, by the step queue.

`StepStarted` with the step's input is durable before its message leaves, so whoever makes the
attempt needs no more than the message and the log. A turn that dies in between is followed by one
that sends again; the step's row sees to it that one of two equal messages does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from typing import Any

from stepwell.core import events as e
from stepwell.core.commands import RunStep
from stepwell.core.messages import StepAttempt
from stepwell.core.parts import StepState
from stepwell.core.records import Payload, StepRow
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import PayloadError

#: Messages, and large inputs, on their way at a time.
_SENDS = _PUTS = 16


async def inputs(turn: TurnContext, commands: Iterable[RunStep]) -> list[Payload | PayloadError]:
    """What to record as the input of each step, or why it cannot be carried.

    A step that was dispatched before keeps the input that it was dispatched with.
    """
    gate = asyncio.Semaphore(_PUTS)

    async def put(command: RunStep) -> Payload | PayloadError:
        known = turn.state.steps.get(command.id)
        if known is not None and known.input is not None:
            return known.input
        try:
            text = command.input()
            async with gate:
                return await turn.values.put(text, f"input of step {command.step.name!r}")
        except PayloadError as error:
            return error

    return await asyncio.gather(*(put(command) for command in commands))


def started(turn: TurnContext, command: RunStep, value: Payload) -> e.StepStarted:
    """The event that an attempt is dispatched with."""
    known = turn.state.steps.get(command.id)
    return e.StepStarted(
        at=turn.journal.now(),
        step=command.id,
        name=command.step.name,
        digest=command.digest,
        attempt=1 if known is None else known.attempts + 1,
        input=value,
        options=command.step.overrides,
        context=None if command.context is None else command.context.text,
    )


async def send_all(turn: TurnContext, steps: Iterable[StepState]) -> None:
    """Send the message of each attempt; what led to it must be durable."""
    gate = asyncio.Semaphore(_SENDS)

    async def send(step: StepState) -> None:
        attempt = StepAttempt(run_id=turn.run_id, step=step.id, name=step.name, order=step.order)
        async with gate:
            await turn.ports.steps.send(attempt)

    await all_of(send(step) for step in steps)


def perhaps_lost(turn: TurnContext, step: StepState) -> bool:
    """Whether the message of an attempt under way may never have been sent, or is gone."""
    if turn.settled:
        return False
    row = turn.steps.get(step.id)
    if row is None or row.order != step.order or row.claim is None:
        return True
    if row.cancelled and row.outcome is None:
        return True  # it was called off by a turn that did not come to record that
    return row.until <= turn.ports.clock.now()


async def call_off(turn: TurnContext, dropped: Collection[tuple[str, int]]) -> None:
    """Tell those who make attempts, by step and order, that nobody waits any more.

    They put a hook's row first and look at the step's row then; here it is the other way round. So
    either they find that they were called off, and tell nobody of the hook, or it is known here.
    """
    if not dropped:
        return
    # What made them unwanted must be durable before: the next turn may not find out by itself.
    await turn.journal.flush()
    gate = asyncio.Semaphore(_SENDS)

    async def mark(step: str, order: int) -> None:
        async with gate:
            await _mark(turn, step, order)

    await all_of(mark(step, order) for step, order in dropped)
    rows = await turn.ports.store.load(turn.run_id)
    turn.take_rows(rows.hooks)


async def all_of(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Make all calls; none goes on when this raises, as it would in the next turn of a process."""
    for ended in await asyncio.gather(*calls, return_exceptions=True):
        if ended is not None:
            raise ended


async def _mark(turn: TurnContext, step: str, order: int) -> None:
    row = turn.steps.get(step) or StepRow(run_id=turn.run_id, step=step, revision=0, order=order)
    while row.order <= order and not (row.order == order and row.outcome is not None):
        marked = StepRow(
            run_id=turn.run_id,
            step=step,
            revision=row.revision + 1,
            order=order,
            claim=row.claim if row.order == order else None,
            until=row.until if row.order == order else 0,
            cancelled=True,
        )
        row = await turn.ports.store.put_step(marked)
        if row == marked:
            return
