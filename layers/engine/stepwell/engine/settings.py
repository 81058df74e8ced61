"""Settings of an engine: limits that are the same for all runs of a deployment."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from stepwell.core.payload import Sizes
from stepwell.core.records import Millis
from stepwell.core.retention import Retention
from stepwell.core.retry import RetryPolicy
from stepwell.core.tokens import Keyring
from stepwell.errors import DefinitionError

_LONGEST_INLINE = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large one run may grow before it ends as FAILED, with `LimitExceeded`.

    `events` and `bytes` are of its history, `steps` counts all that it asked for. `idle_hops` is
    how many turns in a row may hand over to the next one without having recorded anything, before
    the run is marked STUCK. `depth` is how many levels of children may stand below a run that was
    started from outside: a child below them is not started.
    """

    events: int = 5_000
    bytes: int = 2_000_000
    steps: int = 4_000
    idle_hops: int = 20
    depth: int = 10

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 1:
                raise DefinitionError(f"limit of {each.name}: {value}, must be 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a deployment fixes.

    `look_every` is how often a turn with steps in flight, or of a subscription, reads the header
    for a cancel;
    `step_grace` how long a cancelled step may take to clean up before it is abandoned;
    `turn_time` after how long a turn starts no more steps and hands over to the next one;
    `notify_retry` how often `on_created` of a workflow's hook is tried; `settle_time` how much of
    the time before its process ends a turn keeps for making durable what it did; `limits` how large
    a run may grow; `retention` how long it is kept once it has ended; `journal_dir` the folder of
    the file that a local engine works on; `guard_time` how long the guards of a step may take
    together, before it and after it.
    """

    keyring: Keyring
    sizes: Sizes = field(default_factory=Sizes)
    look_every: Millis = 5_000
    step_grace: Millis = 2_000
    turn_time: Millis = 90_000
    settle_time: Millis = 5_000
    notify_retry: RetryPolicy = field(default_factory=RetryPolicy)
    limits: Limits = field(default_factory=Limits)
    journal_dir: Path | None = None
    guard_time: Millis = 60_000
    retention: Retention = field(default_factory=Retention)

    def usable(self, time_left: Millis) -> Millis:
        """How much of the time before a process ends its work may take: at least half of it."""
        return max(time_left - self.settle_time, time_left // 2)

    def __post_init__(self) -> None:
        # A value is JSON text inside the JSON of its event, which may double it, and one event has
        # to fit an item.
        if self.sizes.inline_limit > _LONGEST_INLINE:
            raise DefinitionError(f"inline_limit: at most {_LONGEST_INLINE:,} bytes")
