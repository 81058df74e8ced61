"""What a run tells others of how it stands: a child its parent, a subscription its stream run.

A parent is told when what its child waits for changes: a person, say. That is a function of the
child's log, so whoever finds the last turn unfinished tells it again; an older word that comes late
is known by the number of the event that it was said after.
"""

from __future__ import annotations

from stepwell.core.messages import ChildNoted
from stepwell.core.records import Glance, RunHeader
from stepwell.core.signals import StreamKey, SubscriptionRow
from stepwell.core.state import RunState
from stepwell.core.subscription import Subscription
from stepwell.engine.turn_context import TurnContext


def note_of(state: RunState) -> str | None:
    """What a parent is told that this run waits for, None for nothing that has to be told.

    A subscription that is suspended says why; a stream run says so when one of its subscriptions is
    suspended and none of them waits for signals or runs.
    """
    if state.subscription is not None:
        return state.subscription.note
    if state.started is None or state.started.stream_run is None:
        return None
    notes = [child.waits_for for child in state.open_children()]
    return None if None in notes else next(iter(notes), None)


async def tell_parent(turn: TurnContext) -> None:
    """Tell the parent what this run waits for, if that has changed."""
    parent, note = turn.header.parent, note_of(turn.state)
    if parent is None or (note == turn.told and turn.settled):
        return
    if note is None and turn.told is None:
        return  # it was never told anything
    await turn.ports.queue.send(
        ChildNoted(
            run_id=parent.run_id,
            child=parent.child,
            child_run=turn.run_id,
            order=turn.state.last,
            reason=note,
        )
    )


def subscription_row(turn: TurnContext, types: tuple[str, ...], *, ended: bool) -> SubscriptionRow:
    """The row of the subscription that this turn is of."""
    known = turn.state.subscription
    assert known is not None
    return SubscriptionRow(
        key=StreamKey(known.stream, known.stream_run),
        step=known.step,
        run_id=turn.run_id,
        types=types,
        created_at=turn.header.created_at,
        ended=ended,
    )


async def unsubscribe(turn: TurnContext) -> None:
    """Have nobody wake a subscription any more, which has ended."""
    row = subscription_row(turn, turn.types, ended=True)
    if turn.settled or await _is_own(turn, row):
        await turn.ports.streams.subscribe(row)


async def _is_own(turn: TurnContext, row: SubscriptionRow) -> bool:
    """Whether a row is still the one of this run, which may have ended long ago.

    The stream run may be deleted, or have another subscription of this step.
    """
    owner = await turn.ports.store.get_header(row.key.owner)
    if owner is None or owner.deleted_at is not None:
        return False
    rows = await turn.ports.streams.subscriptions(row.key)
    return all(each.run_id == row.run_id for each in rows if each.step == row.step)


def glance(known: Subscription | None, types: tuple[str, ...] = ()) -> Glance | None:
    """How a subscription stands, for its header; `types` are those of its row."""
    if known is None:
        return None
    blocked = known.blocked_by
    return Glance(
        step=known.step,
        status=known.shown,
        cursor=known.cursor,
        handled=known.handled,
        parked=len(known.parked),
        discarded=known.discarded,
        blocked_by=None if blocked is None else blocked.sequence,
        reason=known.reason if known.current is None else None,
        types=types,
        taken=known.taken,
    )


def lag(header: RunHeader, until: int) -> int | None:
    """How many numbers up to this one a subscription has not settled; None of another run.

    As its header says, which is written when all that it says is durable.
    """
    known = header.subscription
    return None if known is None else max(until - known.cursor, 0)
