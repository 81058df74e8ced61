"""A subscription in place of another: that of a stream run which ended, and was retried.

The one before was cancelled with its stream run. What it had come to is what the new one begins
with, as a snapshot right behind its start: signals that were handled are not handled again. One
that was under way then is taken anew.
"""

from __future__ import annotations

from dataclasses import replace

from stepwell.core import events as e
from stepwell.core.messages import CancelRun, Wake
from stepwell.core.records import RunHeader
from stepwell.core.signals import StreamKey, subscription_run_id
from stepwell.core.state import fold_commits
from stepwell.core.stream_state import dump_snapshot
from stepwell.core.subscription import ParkedSignal, Subscription
from stepwell.engine.ports import TransientError
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import Failure

#: More often than this nobody retries a stream run.
_GENERATIONS = 10_000
_CUT_OFF = Failure("CancelledError", "its stream run ended while it was handled again")


async def inherit(turn: TurnContext) -> None:
    """Take over from the subscription before, if this run has not begun and there was one.

    Raises `TransientError` while that one goes on.
    """
    known = turn.state.subscription
    if known is None or known.begun:
        return
    before = _before(StreamKey(known.stream, known.stream_run), known.step, turn.run_id)
    if before is None:
        return
    rows = await turn.ports.store.load(before)
    if rows.header is None or rows.header.deleted_at is not None:
        return
    await _wait_for_end(turn, known, rows.header)
    state = fold_commits(rows.commits)
    if state.subscription is None or not state.subscription.begun:
        return
    # A snapshot begins a commit, so that the log can be read from there.
    await turn.journal.flush()
    held = dump_snapshot(turn.state, _resting(state.subscription), state.attributes)
    turn.journal.record(e.SubscriptionSnapshot(at=turn.journal.now(), state=held))


def _before(key: StreamKey, step: str, run_id: str) -> str | None:
    """The run of the subscription that stood before this one."""
    before = None
    for generation in range(1, _GENERATIONS):
        found = subscription_run_id(key, step, generation)
        if found == run_id:
            return before
        before = found
    return None


async def _wait_for_end(turn: TurnContext, known: Subscription, before: RunHeader) -> None:
    """Have the one before end, and leave the row to this one."""
    key = StreamKey(known.stream, known.stream_run)
    cause = f"{turn.run_id}/succession"
    if not before.status.terminal:
        await turn.ports.queue.send(
            CancelRun(run_id=before.run_id, request_id=cause, reason="succeeded", force=True)
        )
    elif any(
        row.run_id == before.run_id and not row.ended
        for row in await turn.ports.streams.subscriptions(key)
    ):
        await turn.ports.queue.send(Wake(run_id=before.run_id, cause=cause))
    else:
        return
    raise TransientError(f"run {before.run_id!r} goes on, which {turn.run_id!r} is to succeed")


def _resting(known: Subscription) -> Subscription:
    """As it stood before the signal that was under way."""
    current = known.current
    if current is None:
        return known
    at = current.sequence
    resting = replace(known, current=None)
    if at > known.cursor and at not in known.ahead:
        return resting
    if at == 0 and not known.parked_total:
        return replace(resting, begun=False)
    # It was parked, and redriven.
    left = ParkedSignal(
        sequence=at,
        signal_type=None if current.signal is None else current.signal.type,
        at=0,
        attempts=current.attempt,
        error=_CUT_OFF,
    )
    return replace(resting, parked=(*resting.parked, left))
