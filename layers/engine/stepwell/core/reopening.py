"""Reopening a run that failed or was cancelled: who may, and what its header says then. Pure."""

from __future__ import annotations

from dataclasses import replace

from stepwell.core.messages import Message, RetryRun
from stepwell.core.records import Millis, RetryRequest, RunHeader, RunStatus
from stepwell.core.state import RunState


def request_of(message: RetryRun) -> RetryRequest:
    """What a message asks for."""
    return RetryRequest(
        request_id=message.request_id,
        after=message.after,
        actor=message.actor,
        change=message.change,
    )


def wanted_retry(state: RunState, header: RunHeader, message: Message) -> RetryRequest | None:
    """The retry of the run, which has ended, that somebody asked for: by its row, or this message.

    Only one that is about this very end: of two that were asked for at once, one is done.
    """
    if state.status not in ("failed", "cancelled"):
        return None
    asked = [] if header.retry is None else [header.retry]
    if isinstance(message, RetryRun):
        asked.append(request_of(message))
    return next((request for request in asked if request.after == state.last), None)


def reopened(header: RunHeader, request: RetryRequest, now: Millis) -> RunHeader:
    """The header of a run that is about to go on."""
    return replace(
        header,
        status=RunStatus.SUSPENDED,
        updated_at=max(now, header.updated_at),
        error=None,
        attention=None,
        cancel_requested=False,
        retry=request,
    )
