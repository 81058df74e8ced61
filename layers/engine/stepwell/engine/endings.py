"""How a pass of a workflow over its history can end, and how a turn can."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from stepwell.core.records import Payload
from stepwell.errors import NonDeterminismError


class Returned(NamedTuple):
    """The workflow returned."""

    value: Any


class Raised(NamedTuple):
    """The workflow raised. `redo` names what a retry of the run has to do again."""

    error: BaseException
    redo: tuple[str, ...] = ()


class Cancelled(NamedTuple):
    """The run ended by its cancellation; `forced` without its code. `redo` as with `Raised`."""

    redo: tuple[str, ...] = ()
    forced: bool = False


class Blocked(NamedTuple):
    """The code does not fit the history."""

    error: NonDeterminismError


class Parked(NamedTuple):
    """The workflow raised `Suspend`: it is to begin again once there is input."""

    reason: str


class Continues(NamedTuple):
    """The workflow goes on as a new run with this input and context, as JSON."""

    input: Payload
    digest: str
    context: Payload | None = None


Outcome = Returned | Raised | Cancelled | Blocked | Parked | Continues


class TurnEnd(StrEnum):
    """How a turn left its run."""

    ENDED = "ended"
    WAITING = "waiting"
    HANDED_OVER = "handed over"
    BLOCKED = "blocked"
    PAUSED = "paused"
    STUCK = "stuck"
    DELETED = "deleted"
    NOTHING = "nothing to do"
