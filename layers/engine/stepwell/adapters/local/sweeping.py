"""The sweep over one file: its dead letters are told to their runs, and what is overdue is woken.

A dead letter stays where it is, to be looked at or sent again; that it was taken is noted on it. A
process that dies in between takes it once more, which changes nothing but the time on the mark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from pydantic import ValidationError

from stepwell.adapters.local.dead_letters import DeadLetter
from stepwell.adapters.local.wiring import LocalPorts
from stepwell.core.messages import Message, StepMessage, load_attempt, load_message
from stepwell.core.records import Millis
from stepwell.engine.ports import Ports, TransientError
from stepwell.engine.sweep import Found, Sweep, reason_of

_LOG = logging.getLogger("stepwell.local")
_MINUTE: Millis = 60_000
#: A process on its owner's machine may take its time.
_TIME: Millis = 60_000


async def take_dead_letters(local: LocalPorts, ports: Ports | None = None) -> int:
    """Take the dead letters of both queues that nobody has taken. Returns how many.

    `ports` are those that the runs are told through, by default those of the file. What cannot be
    taken now is left for the next time, and keeps nothing else from being taken.
    """
    sweep, taken = Sweep(ports or local.ports), 0
    for letter in await local.queue.dead_letters(new=True):
        if await _taken(sweep, letter, "the run queue", load_message):
            taken += await local.queue.take(letter.message_id)
    for letter in await local.step_queue.dead_letters(new=True):
        if await _taken(sweep, letter, "the step queue", load_attempt):
            taken += await local.step_queue.take(letter.message_id)
    return taken


async def _taken(
    sweep: Sweep, letter: DeadLetter, queue: str, load: Callable[[str], Message | StepMessage]
) -> bool:
    message: Message | StepMessage | None = None
    with suppress(ValidationError):  # its run is marked all the same: the group says whose it is
        message = load(letter.body)
    reason = reason_of(message, queue)
    try:
        await sweep.take_dead_letter(letter.run_id, message, reason=reason, body=letter.body)
    except TransientError as error:
        _LOG.info("dead letter %s is not taken yet: %s", letter.message_id, error)
        return False
    except Exception:
        _LOG.exception("dead letter %s cannot be taken", letter.message_id)
        return False
    _LOG.error("run %s: dead letter: %s", letter.run_id, reason)
    return True


class MinuteSweep:
    """Sweeps once in each minute of the clock, of which it remembers the last."""

    def __init__(self, local: LocalPorts) -> None:
        self._local = local
        self._minute: int | None = None

    async def sweep(self) -> Found | None:
        """Take dead letters and wake what is overdue; None if this minute has had its sweep."""
        minute = self._local.ports.clock.now() // _MINUTE
        if minute == self._minute:
            return None
        self._minute = minute
        await take_dead_letters(self._local)
        sweep = Sweep(self._local.ports)
        await sweep.delete_expired(lambda: _TIME)
        return await sweep.wake_overdue(lambda: _TIME)
