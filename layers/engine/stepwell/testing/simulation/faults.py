"""What may go wrong in one simulated run, and how often."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How many faults of each kind may come in one run.

    `crashes`: a process dies before or after a write. `freezes`: one stops before a write, its
    message is delivered again, and it may go on at any later moment, or never. `throttled`: a call
    is refused for now. `lost_replies`: a call is made and its caller is told that it was not.
    `denied`: a call is refused for good. `vanished`: a caller from outside dies and never asks
    again. `doubled`: a message of the step queue is delivered twice at once, a schedule fires
    twice, or one that was deleted fires. `lost_timers`: a schedule is deleted without having fired.
    `redriven`: a message that was done with, or a dead letter, comes again behind all others.
    `stale`: an index does not show yet what a sweep looks for.
    `delays`: time passes while work is under way, up to the next moment at which something is due.
    """

    crashes: int = 0
    freezes: int = 0
    throttled: int = 0
    lost_replies: int = 0
    denied: int = 0
    vanished: int = 0
    doubled: int = 0
    lost_timers: int = 0
    redriven: int = 0
    stale: int = 0
    delays: int = 0

    def budget(self) -> dict[str, int]:
        """What is left of each kind, to count down."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


#: A little of everything.
ANY = Faults(
    crashes=3,
    freezes=1,
    throttled=2,
    lost_replies=2,
    denied=1,
    vanished=1,
    doubled=2,
    lost_timers=1,
    redriven=2,
    stale=1,
    delays=4,
)
