"""The lives of a run: it may end, be retried, and go on; or begin with a copy of another's log.

The log keeps all that happened in earlier lives. What a retry does again is forgotten there: from
the number of its `RunRetried` on, older events of the same id say nothing. What is not forgotten is
kept, and may be asked for again or not: code may have been mended in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stepwell.core import events as e
from stepwell.core.ids import again, inside, without_generation
from stepwell.core.records import Millis


@dataclass(slots=True)
class Lives:
    """What a fold knows of earlier lives.

    `retried` is the number of the last `RunRetried`, 0 without one, `late` that of the last one of
    the closings that directly follow it: of rows that were closed after the end before. `redo` is
    what the last end says that a retry does again. `forgotten` maps ids to the number before which
    events of theirs say nothing; `kept` are the ids that earlier lives have left. `generations`
    counts, by a hook's first id, how often it was opened anew, `children` how often each child was
    started anew.
    `pauses` are the times between two lives; `restarted` says from when on timers that had fired
    go on anew.
    """

    retried: int = 0
    late: int = 0
    redo: tuple[str, ...] = ()
    forgotten: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    generations: dict[str, int] = field(default_factory=dict)
    children: dict[str, int] = field(default_factory=dict)
    pauses: list[tuple[Millis, Millis]] = field(default_factory=list)
    restarted: dict[str, Millis] = field(default_factory=dict)
    forked: bool = False

    def begin(
        self,
        number: int,
        redo: Iterable[str],
        kept: set[str],
        pause: tuple[Millis, Millis],
    ) -> None:
        """Begin the next life with event `number`."""
        self.retried = self.late = number
        self.redo = ()
        self.kept = kept
        self.pauses.append(pause)
        self.forgotten |= dict.fromkeys(redo, number)

    def forget(self, identity: str, number: int) -> None:
        """What was kept of an id is not used after all."""
        self.kept.discard(identity)
        self.forgotten[identity] = number

    def effective(self, history: Sequence[e.Event], skipped: int = 0) -> list[e.Event]:
        """The history in which what was forgotten is replaced by its first event, which is told
        to nobody; as long as before. `skipped` events are left out behind the first.
        """
        first = history[0]
        return [
            first if number < self.retried and self._is_forgotten(event, number) else event
            for number, event in enumerate(history, 1 + skipped)
        ]

    def _is_forgotten(self, event: e.Event, number: int) -> bool:
        identity: str | None = None
        for name in ("step", "hook", "timer", "map", "child"):
            identity = identity or getattr(event, name, None)
        told = isinstance(event, e.CancelRequested)
        return told or (identity is not None and self.says_nothing(identity, number))

    def says_nothing(self, identity: str, number: int) -> bool:
        """Whether event `number` about an id was forgotten."""
        return number < self.forgotten.get(identity, 0)

    def open_again(self, hook: str, step: str | None) -> None:
        """Whoever asks for this hook from here on gets one of a new generation."""
        first, generation = _first(hook, step)
        self.generations[first] = max(generation + 1, self.generations.get(first, 1))

    def start_again(self, child: str) -> None:
        """Whoever asks for this child from here on gets another run."""
        self.children[child] = self.child_generation(child) + 1

    def child_generation(self, child: str) -> int:
        """Which run of a child it is that would be started now, the first being 1."""
        return self.children.get(child, 1)

    def hook_id(self, identity: str, step: str | None) -> str:
        """The id of the hook that stands for this identity, within its step if it has one, now."""
        whole = identity if step is None else inside(step, identity)
        generation = self.generations.get(whole)
        if generation is None:
            return whole
        identity = again(identity, generation)
        return identity if step is None else inside(step, identity)

    def is_past(self, hook: str, step: str | None) -> bool:
        """Whether a hook of this id was opened anew since."""
        if not self.generations:
            return False
        first, generation = _first(hook, step)
        return generation < self.generations.get(first, 1)

    def moved(self, timer: str, due: Millis, asked: Millis) -> Millis:
        """When a delay that was asked for at a time is over.

        No time passes between two lives, and one that a retry does again begins with that.
        """
        again = self.restarted.get(timer)
        if again is not None and asked < again:
            due, asked = again + due - asked, again
        for ended, went_on in self.pauses:
            if asked <= ended:
                due += went_on - ended
        return due


def _first(hook: str, step: str | None) -> tuple[str, int]:
    if step is None:
        return without_generation(hook)
    identity, generation = without_generation(hook[len(inside(step, "")) :])
    return inside(step, identity), generation
