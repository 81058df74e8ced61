"""Which signal a subscription takes next. Pure: what it has come to, and what is there, come in."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from stepwell.core.signals import NumberedSignal
from stepwell.core.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Found:
    """The next signal, None if there is none among those that were looked at.

    `held_from` is the first that it would be taken ahead of; `held` says that one at least was
    left for later; `seen` is the number of the last that was looked at.
    """

    signal: NumberedSignal | None
    held_from: int | None
    held: bool
    seen: int


def start_of(known: Subscription) -> int:
    """Behind which number the next signal is to be looked for."""
    return max(known.cursor, known.held) if known.status == "suspended" else known.cursor


def next_signal(
    known: Subscription, types: Collection[str], signals: Iterable[NumberedSignal]
) -> Found:
    """The first of the signals behind `start_of` that the subscription takes now.

    A suspended one takes only what resumes it: all others that it subscribes to are held, and come
    later, in their order.
    """
    wanted = types if known.resume is None else known.resume
    suspended = known.status == "suspended"
    held = suspended and known.held > known.cursor
    seen = start_of(known)
    for each in signals:
        seen = each.sequence
        if each.sequence <= known.cursor or each.sequence in known.ahead:
            continue
        kind = each.signal.type
        if kind not in types:
            continue
        if not suspended or kind in wanted:
            return Found(each, known.cursor + 1 if held else None, held, seen)
        held = True
    return Found(None, None, held, seen)
