"""Pending: what code has asked for and has no outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepwell.core.commands import (
    CANCEL_OF_CHILD,
    CancelChild,
    Command,
    EmitSignal,
    OpenHook,
    PollInbox,
    RunStep,
    StartMap,
    StartTimer,
)
from stepwell.engine.loop import Scope


@dataclass(slots=True)
class Pending:
    """A command without an outcome: `future` is told of it, or `fire` is called.

    `scope` is that of the code that asked for it.
    """

    command: Command
    future: asyncio.Future[Any] | None = None
    fire: Callable[[], None] | None = None
    scope: Scope | None = None


def kind_of(command: Command) -> str:
    """What a command is about, in one word."""
    if isinstance(command, RunStep):
        return "step"
    if isinstance(command, StartMap):
        return "map"
    if isinstance(command, OpenHook):
        return "hook"
    if isinstance(command, StartTimer):
        return "timer"
    if isinstance(command, EmitSignal):
        return "signal"
    if isinstance(command, PollInbox):
        return "poll"
    return CANCEL_OF_CHILD if isinstance(command, CancelChild) else "child"


def unrecorded_kind(identity: str) -> str:
    """What is asked for under an id of which nothing is recorded."""
    return CANCEL_OF_CHILD if identity.startswith("!") else "step"
